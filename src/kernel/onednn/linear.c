/* Linear layers and products of matrices. Weights stay as they are: with oneDNN 2.6.3
 * on one Zen 5 core, 1024 rows, the shapes of GPT-2, its GEMM on plain weights
 * (GFLOP/s forward, backward data, backward weight) reaches 204-219, 197-213, 207-220;
 * weights in the format that the library would choose 190-220, 147-186, 125-205, and
 * the reorders come on top (up to 36 ms for [50257, 768] against 360 of product). Only
 * its forward at 32 rows of 2048 -> 1000 gains (1.35 to 0.68 ms), less than one reorder. */
#include "kernel/cpu.h"
#include "kernel/onednn/onednn.h"
#include "op/op_table.h"

/* The library's weight is [out, in]; the node's may lie the other way. */
static wfi_md weight_md(const wfi_kernel *kernel, int operand) {
    wfi_md md = wfi_operand_md(kernel, operand);
    return kernel->node->attr.linear.in_out ? wfi_md_transposed(md) : md;
}

/* x, weight, bias -> y */
wf_status wfi_describe_linear(wfi_kernel *kernel, const char **reason_out) {
    int n_in = kernel->node->n_in;
    wfi_md x = wfi_operand_rows(kernel, 0), weight = weight_md(kernel, 1);
    wfi_md bias = {.kind = WFI_MD_ABSENT}, y = wfi_operand_rows(kernel, n_in);
    wfi_md wanted = wfi_wanted_weight(&x, &weight);
    if (n_in > 2) bias = wfi_operand_md(kernel, 2);
    dnnl_primitive_desc_t desc;
    wfi_primitive *primitive;
    WF_TRY(wfi_describe_inner_product(&wfi_onednn_of(kernel)->lib, dnnl_forward_training, &x,
                                      &wanted, &bias, &y, NULL, &desc));
    WF_TRY(wfi_add_primitive(kernel, desc, NULL, reason_out, &primitive));
    WF_TRY(wfi_bind(kernel, primitive, DNNL_ARG_SRC, 0));
    WF_TRY(wfi_bind(kernel, primitive, DNNL_ARG_DST, n_in));
    if (bias.kind != WFI_MD_ABSENT) WF_TRY(wfi_bind(kernel, primitive, DNNL_ARG_BIAS, 2));
    return wfi_bind_format(kernel, primitive, DNNL_ARG_WEIGHTS, 1, &weight);
}

static wf_status describe_backward(const wfi_kernel *kernel, dnnl_prop_kind_t prop, const wfi_md *x,
                                   const wfi_md *weight, const wfi_md *bias, const wfi_md *y,
                                   dnnl_primitive_desc_t *hint_out,
                                   dnnl_primitive_desc_t *desc_out) {
    const wfi_library *lib = &wfi_onednn_of(kernel)->lib;
    dnnl_primitive_desc_t forward;
    wfi_md wanted = wfi_wanted_weight(x, weight);
    WF_TRY(wfi_describe_inner_product(lib, dnnl_forward_training, x, &wanted, NULL, y, NULL,
                                      &forward));
    wf_status status = wfi_describe_inner_product(lib, prop, x, weight, bias, y, forward, desc_out);
    if (status != WF_OK) dnnl_primitive_desc_destroy(forward);
    WF_TRY(status);
    *hint_out = forward;
    return WF_OK;
}

/* dy, weight -> dx */
wf_status wfi_describe_linear_backward_data(wfi_kernel *kernel, const char **reason_out) {
    wfi_md y = wfi_operand_rows(kernel, 0), weight = weight_md(kernel, 1),
           x = wfi_operand_rows(kernel, 2), wanted = wfi_wanted_weight(&y, &weight);
    /* Where several threads divide the sum, oneDNN 2.6.3's kernel for weights in its own format
     * (brgemm_bwd_d) adds what it finds in its scratch memory. */
    if (kernel->options.n_threads > 1) wanted.kind = weight.kind;
    dnnl_primitive_desc_t hint, desc;
    wfi_primitive *primitive;
    WF_TRY(describe_backward(kernel, dnnl_backward_data, &x, &wanted, NULL, &y, &hint, &desc));
    WF_TRY(wfi_add_primitive(kernel, desc, hint, reason_out, &primitive));
    WF_TRY(wfi_bind(kernel, primitive, DNNL_ARG_DIFF_DST, 0));
    WF_TRY(wfi_bind(kernel, primitive, DNNL_ARG_DIFF_SRC, 2));
    return wfi_bind_format(kernel, primitive, DNNL_ARG_WEIGHTS, 1, &weight);
}

/* What is added to a large gradient is computed a few rows at a time. */
#define CHUNK_BYTES ((size_t)4 << 20)

typedef struct chunks {
    int64_t n_tokens, n_rows, n_cols; /* of the gradient */
    int64_t n_at_once;                /* rows */
    int rows, cols;                   /* operands: whose columns are its rows, and its columns */
    dnnl_data_type_t type;            /* of these */
} chunks;

static chunks chunks_of(const wfi_kernel *kernel) {
    bool in_out = kernel->node->attr.linear.in_out;
    wfi_md rows = wfi_operand_rows(kernel, in_out), cols = wfi_operand_rows(kernel, !in_out);
    size_t row_bytes = (size_t)cols.dim[1] * sizeof(float);
    int64_t n_at_once = wfi_max_i64((int64_t)(CHUNK_BYTES / row_bytes), 1);
    return (chunks){rows.dim[0], rows.dim[1], cols.dim[1], n_at_once, in_out, !in_out, rows.type};
}

static wf_status run_adding(wfi_kernel *kernel, wfi_stream_queue *stream, void *const operands[],
                            void *scratch, const wfi_step_args *step) {
    (void)step;
    chunks c = chunks_of(kernel);
    size_t element_bytes = dnnl_data_type_size(c.type);
    char *rows = operands[c.rows];
    float *sum = operands[2];
    for (int64_t first = 0; first < c.n_rows; first += c.n_at_once) {
        int64_t n = wfi_min_i64(c.n_at_once, c.n_rows - first);
        void *own[2];
        own[c.rows] = rows + (size_t)first * element_bytes;
        own[c.cols] = operands[c.cols];
        WF_TRY(wfi_run_primitive(kernel, n < c.n_at_once, own, scratch));
        WF_TRY(
            wfi_backend_cpu.add(stream, sum + first * c.n_cols, scratch, (size_t)(n * c.n_cols)));
    }
    return WF_OK;
}

/* Number 0: as many rows as are computed at once; number 1: those that are left. */
static wf_status add_chunk(wfi_kernel *kernel, const chunks *c, int64_t n,
                           const char **reason_out) {
    wfi_md rows = wfi_md_make(WFI_MD_STRIDED, 2, (int64_t[]){c->n_tokens, n});
    rows.stride[0] = c->n_rows;
    rows = wfi_md_transposed(rows);
    wfi_md cols = wfi_md_make(WFI_MD_STRIDED, 2, (int64_t[]){c->n_tokens, c->n_cols});
    rows.type = cols.type = c->type;
    wfi_md product = wfi_md_make(WFI_MD_STRIDED, 2, (int64_t[]){n, c->n_cols});
    dnnl_primitive_desc_t desc;
    wfi_primitive *primitive;
    WF_TRY(wfi_describe_matmul(&wfi_onednn_of(kernel)->lib, &rows, &cols, &product, &desc));
    WF_TRY(wfi_add_primitive(kernel, desc, NULL, reason_out, &primitive));
    WF_TRY(wfi_bind_at(kernel, primitive, DNNL_ARG_SRC, c->rows, 0));
    WF_TRY(wfi_bind_at(kernel, primitive, DNNL_ARG_WEIGHTS, c->cols, 0));
    return wfi_bind_at(kernel, primitive, DNNL_ARG_DST, WFI_SCRATCH, 0);
}

/* dy, x -> dweight, which is added to. */
static wf_status describe_adding(wfi_kernel *kernel, const char **reason_out) {
    wfi_onednn *state = wfi_onednn_of(kernel);
    chunks c = chunks_of(kernel);
    if (kernel->node->n_out > 1 || c.n_rows <= c.n_at_once)
        return wfi_decline(reason_out, "it is small, or has a bias");
    state->own_scratch_bytes =
        wfi_round_up((size_t)(c.n_at_once * c.n_cols) * sizeof(float), WFI_ALIGN_BYTES);
    state->run = run_adding;
    WF_TRY(add_chunk(kernel, &c, c.n_at_once, reason_out));
    if (c.n_rows % c.n_at_once) WF_TRY(add_chunk(kernel, &c, c.n_rows % c.n_at_once, reason_out));
    wfi_use_whole_values(kernel);
    return WF_OK;
}

/* dy, x -> dweight, dbias */
wf_status wfi_describe_linear_backward_weight(wfi_kernel *kernel, const char **reason_out) {
    if (kernel->adds) return describe_adding(kernel, reason_out);
    wfi_md y = wfi_operand_rows(kernel, 0), x = wfi_operand_rows(kernel, 1),
           weight = weight_md(kernel, 2);
    wfi_md bias = {.kind = WFI_MD_ABSENT};
    if (kernel->node->n_out > 1) bias = wfi_operand_md(kernel, 3);
    dnnl_primitive_desc_t hint, desc;
    wfi_primitive *primitive;
    WF_TRY(describe_backward(kernel, dnnl_backward_weights, &x, &weight, &bias, &y, &hint, &desc));
    WF_TRY(wfi_add_primitive(kernel, desc, hint, reason_out, &primitive));
    WF_TRY(wfi_bind(kernel, primitive, DNNL_ARG_DIFF_DST, 0));
    WF_TRY(wfi_bind(kernel, primitive, DNNL_ARG_SRC, 1));
    if (bias.kind != WFI_MD_ABSENT) WF_TRY(wfi_bind(kernel, primitive, DNNL_ARG_DIFF_BIAS, 3));
    return wfi_bind_format(kernel, primitive, DNNL_ARG_DIFF_WEIGHTS, 2, &weight);
}

/* a, b -> c */
wf_status wfi_describe_product(wfi_kernel *kernel, const char **reason_out) {
    const wfi_attr *attr = &kernel->node->attr;
    wfi_md a = wfi_operand_md(kernel, 0), b = wfi_operand_md(kernel, 1);
    wfi_md c = wfi_operand_md(kernel, 2);
    if (attr->matmul.transpose_a) a = wfi_md_transposed(a);
    if (attr->matmul.transpose_b) b = wfi_md_transposed(b);
    dnnl_primitive_desc_t desc;
    wfi_primitive *primitive;
    WF_TRY(wfi_describe_matmul(&wfi_onednn_of(kernel)->lib, &a, &b, &c, &desc));
    WF_TRY(wfi_add_primitive(kernel, desc, NULL, reason_out, &primitive));
    WF_TRY(wfi_bind(kernel, primitive, DNNL_ARG_SRC, 0));
    WF_TRY(wfi_bind(kernel, primitive, DNNL_ARG_WEIGHTS, 1));
    return wfi_bind(kernel, primitive, DNNL_ARG_DST, 2);
}
