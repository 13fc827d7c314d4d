/* Bytes that published runs read and wrote between their products of matrices. */
#include "cluster/work.h"

/* A transformer as Megatron-LM has it: its kernels fuse bias, dropout and residual. */
bool wfi_work_has_papers(const wfi_work_request *q) {
    const wf_model_config *m = wf_model_config_of(q->model);
    return q->accounting == WF_ACCOUNTING_MEGATRON && m && m->n_heads;
}

/* So many kernels that pass over so many bytes in all. */
static void add_bytes(const wfi_work_request *q, wfi_model_block *block, wfi_phase phase,
                      double bytes, int n) {
    block->phase[phase].us += wfi_bytes_us(q->cluster, bytes) + (n - 1) * q->cluster->launch_us;
}

/* Random numbers of the dropouts that are not in attention. */
static void add_drawn(const wfi_work_request *q, wfi_model_block *block, double n) {
    if (q->cluster->random_per_s > 0) block->phase[WFI_F].us += 1e6 * n / q->cluster->random_per_s;
}

static void add_papers_layer(const wfi_work_request *q, wfi_model_block *block, double rows,
                             double h, double e) {
    double t = q->tp, divided = q->divides_rows ? rows / t : rows;
    add_drawn(q, block, 2 * divided * h);
    add_bytes(q, block, WFI_F, divided * h * (10 * e + 2), 4);
    add_bytes(q, block, WFI_F, rows * h / t * 4 * e, 2);
    add_bytes(q, block, WFI_F, 4 * rows * h / t * 2 * e, 1);
    add_bytes(q, block, WFI_B, divided * h * (16 * e + 2), 8);
    add_bytes(q, block, WFI_B, rows * h / t * 4 * e, 2);
    add_bytes(q, block, WFI_B, 4 * rows * h / t * 3 * e, 2);
}

void wfi_work_add_papers(const wfi_work_request *q, wfi_model_block *block, bool is_head) {
    const wf_model_config *m = wf_model_config_of(q->model);
    double e = q->precision == WFI_F32 ? 4 : 2, h = (double)m->hidden;
    double rows = (double)q->n_samples * (double)m->n_tokens;
    double logits = rows * (double)m->n_classes / q->tp;
    const double *loss = q->cluster->loss_bytes;
    double sums = block->n_used * (e + 2 * q->cluster->bytes[q->precision][1]);
    if (block->is_layer) add_papers_layer(q, block, rows, h, e);
    for (int k = 0; k < 2 && !block->is_layer; k++)
        add_bytes(q, block, k ? WFI_B : WFI_F, is_head ? loss[k] * logits : rows * h * 2 * e, 3);
    add_bytes(q, block, WFI_W, sums, 4);
}
