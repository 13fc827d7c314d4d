/* What goes from token to token: attention and LSTMs. */
#include "kernel/gpu/node.h"

#include <math.h>

/* ---- attention ---- */

static void set_head(wfi_gpu_node *l, wfi_launch_arguments *a, int64_t n_elements) {
    a->n[4] = n_elements;
    a->f[0] = 1 / sqrt((double)n_elements);
    if (n_elements > 4 * WFI_GROUP_SIZE) l->reason = "heads of more than 256 elements";
}

static void add_attention(wfi_gpu_node *l, wfi_gpu_entry entry, const wf_shape *qkv) {
    int64_t c = qkv->dim[2] / 3, n_heads = attr_of(l)->attention.n_heads;
    wfi_launch_arguments *a = wfi_gpu_add_groups(l, entry, qkv->dim[0] * n_heads * qkv->dim[1]);
    a->n[1] = qkv->dim[1];
    a->n[2] = c;
    a->n[3] = n_heads;
    a->n[5] = attr_of(l)->attention.causal;
    set_head(l, a, c / n_heads);
}

static void make_attention(wfi_gpu_node *l, wfi_gpu_entry entry) {
    add_attention(l, entry, in_shape(l, 0));
}

static void make_attention_backward(wfi_gpu_node *l, wfi_gpu_entry entry) {
    add_attention(l, entry, in_shape(l, 1));
    add_attention(l, WFI_GPU_attention_backward_values, in_shape(l, 1));
}

/* A group for each head: tokens one after the other. */
static void make_cached_attention(wfi_gpu_node *l, wfi_gpu_entry entry) {
    const wf_shape *cache = in_shape(l, 2);
    int64_t c = cache->dim[1] / 2, n_heads = attr_of(l)->attention.n_heads;
    wfi_launch_arguments *a = wfi_gpu_add_groups(l, entry, n_heads);
    a->n[0] = in_shape(l, 0)->dim[0];
    a->n[1] = cache->dim[0];
    a->n[2] = c;
    set_head(l, a, c / n_heads);
}

/* ---- LSTMs ---- */

static wfi_launch_arguments *add_lstm(wfi_gpu_node *l, wfi_gpu_entry entry, const wf_shape *x,
                                      const wf_shape *y) {
    wfi_launch_arguments *a = wfi_gpu_add_groups(l, entry, x->dim[0]);
    a->n[1] = y->dim[2];
    a->n[2] = x->dim[2];
    a->n[3] = x->dim[1];
    a->n[4] = x->dim[0];
    return a;
}

static void make_lstm(wfi_gpu_node *l, wfi_gpu_entry entry) {
    (void)add_lstm(l, entry, in_shape(l, 0), out_shape(l, 0));
}

/* What the gates get of each token, and of these the gradients of x, both weights and the biases.
 */
static void make_lstm_backward(wfi_gpu_node *l, wfi_gpu_entry entry) {
    const wf_shape *x = in_shape(l, 1), *y = in_shape(l, 5);
    int64_t rows = n_rows(x), h = last_dim(y), n_in = last_dim(x), gates = 4 * h;
    l->scratch_bytes = (size_t)(rows * gates + x->dim[0] * h) * sizeof(float);
    (void)add_lstm(l, entry, x, y);
    const wfi_product dx = {1, rows, n_in, gates, .a = WFI_GPU_SCRATCH, .b = 2};
    const wfi_product dw_ih = {
        1, gates, n_in, rows, .a = WFI_GPU_SCRATCH, .b = 1, .a_is_transposed = true};
    const wfi_product dw_hh = {.n_matrices = 1, .m = gates, .n = h, .k = rows};
    (void)wfi_gpu_add_product(l, WFI_GPU_product, &dx);
    (void)wfi_gpu_add_product(l, WFI_GPU_product, &dw_ih);
    l->all[l->n - 1].from[WFI_GPU_OUT] = WFI_GPU_OUT + 1;
    wfi_launch_arguments *a = wfi_gpu_add_product(l, WFI_GPU_lstm_weight, &dw_hh);
    a->n[3] = gates;
    a->n[7] = x->dim[1];
    wfi_gpu_add_column_sum(l, WFI_GPU_SCRATCH, rows, gates, 3);
}

const wfi_gpu_row wfi_gpu_sequences[] = {
    {&wfi_op_self_attention, make_attention, WFI_GPU_self_attention},
    {&wfi_op_self_attention_backward, make_attention_backward, WFI_GPU_attention_backward_queries},
    {&wfi_op_cached_attention, make_cached_attention, WFI_GPU_cached_attention},
    {&wfi_op_lstm, make_lstm, WFI_GPU_lstm},
    {&wfi_op_lstm_backward, make_lstm_backward, WFI_GPU_lstm_gates_backward},
    {&wfi_op_lstm_cell, wfi_gpu_add_cleared, WFI_GPU_lstm_cell},
    {0},
};
