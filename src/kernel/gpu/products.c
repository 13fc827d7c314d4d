/* Products of matrices, and convolutions as such. */
#include "kernel/gpu/node.h"

#define TILE 32 /* product.cl's */

static void set_strides(wfi_launch_arguments *a, int which, int64_t n_rows, int64_t n_cols,
                        bool is_transposed) {
    a->n[3 + 2 * which] = is_transposed ? 1 : n_cols;
    a->n[4 + 2 * which] = is_transposed ? n_rows : 1;
    a->n[7 + which] = n_rows * n_cols;
}

wfi_launch_arguments *wfi_gpu_add_product(wfi_gpu_node *l, wfi_gpu_entry entry,
                                          const wfi_product *p) {
    int64_t n_tiles = (p->m + TILE - 1) / TILE * ((p->n + TILE - 1) / TILE);
    wfi_launch_arguments *a = wfi_gpu_add_groups(l, entry, p->n_matrices * n_tiles);
    a->n[0] = p->m;
    a->n[1] = p->n;
    a->n[2] = p->k;
    a->n[9] = p->n_matrices;
    set_strides(a, 0, p->m, p->k, p->a_is_transposed);
    set_strides(a, 1, p->k, p->n, p->b_is_transposed);
    a->n[10] = p->n;
    a->n[11] = p->m * p->n;
    wfi_gpu_take(l, p->a, p->b, p->bias ? p->bias : WFI_GPU_NONE);
    return a;
}

wfi_gpu_matrix wfi_gpu_matrix_of(const wfi_kernel_launch *launch, int which) {
    const int64_t *n = launch->arguments.n;
    bool is_y = which == 2;
    int64_t rows = n[which == 1 ? 2 : 0], cols = n[which ? 1 : 2];
    int64_t across = is_y ? 1 : n[4 + 2 * which], down = n[is_y ? 10 : 3 + 2 * which];
    wfi_gpu_matrix m = {across != 1, rows, cols, down, n[is_y ? 11 : 7 + which], 0};
    if (m.is_turned) m.n_rows = cols, m.n_cols = rows, m.row = across;
    /* With a single row or column the step has no effect. */
    if (m.row < m.n_cols) m.row = m.n_cols;
    m.extent = (n[9] - 1) * m.apart + (m.n_rows - 1) * m.row + m.n_cols;
    return m;
}

void wfi_gpu_add_column_sum(wfi_gpu_node *l, int of, int64_t n_rows, int64_t n_cols, int to) {
    wfi_gpu_add_numbers(
        l, WFI_GPU_reduce,
        (wfi_numbers){.n_threads = n_cols, .n = {n_cols, n_rows, n_cols}, .f = {1}});
    l->all[l->n - 1].from[0] = (int8_t)of;
    l->all[l->n - 1].from[WFI_GPU_OUT] = (int8_t)(WFI_GPU_OUT + to);
}

/* A linear layer's bias has the sums of dy's columns for its gradient. */
static void make_product(wfi_gpu_node *l, wfi_gpu_entry entry) {
    const wfi_call call = wfi_call_of(l->g, l->node);
    const wfi_product p = l->node->op->product(&call);
    const wf_shape *dy = in_shape(l, 0);
    (void)wfi_gpu_add_product(l, entry, &p);
    if (has_second(l)) wfi_gpu_add_column_sum(l, 0, wfi_n_rows(dy), wfi_last_dim(dy), 1);
}

wfi_gpu_conv wfi_gpu_conv_of(const wfi_gpu_node *l) {
    const wfi_op *op = l->node->op;
    wfi_gpu_conv c = {.is_forward = op == &wfi_op_conv2d,
                      .is_data =
                          op == &wfi_op_conv2d_backward_data || op == &wfi_op_conv_transpose2d};
    c.x = c.is_forward ? in_shape(l, 0) : c.is_data ? out_shape(l, 0) : in_shape(l, 1);
    c.y = c.is_forward ? out_shape(l, 0) : in_shape(l, 0);
    c.weight = c.is_forward || c.is_data ? in_shape(l, 1) : out_shape(l, 0);
    return c;
}

void wfi_gpu_set_windows(const wfi_gpu_node *l, const wfi_gpu_conv *c, wfi_launch_arguments *a) {
    for (int k = 0; k < 3; k++) {
        a->n[3 + k] = c->x->dim[1 + k];
        a->n[6 + k] = c->y->dim[1 + k];
    }
    a->n[9] = c->weight->dim[2];
    a->n[10] = c->weight->dim[3];
    a->n[11] = attr_of(l)->conv.stride;
    a->n[12] = attr_of(l)->conv.pad;
    a->f[0] = (double)attr_of(l)->conv.groups;
    a->f[1] = (double)attr_of(l)->conv.dilation;
}

void wfi_gpu_add_channel_sum(wfi_gpu_node *l, const wf_shape *y) {
    if (has_second(l)) (void)wfi_gpu_add_channels(l, WFI_GPU_channel_sum, y);
}

static void make_conv(wfi_gpu_node *l, wfi_gpu_entry entry) {
    const wfi_gpu_conv c = wfi_gpu_conv_of(l);
    const wf_shape *x = c.x, *y = c.y, *weight = c.weight;
    int64_t groups = attr_of(l)->conv.groups, n_outs = weight->dim[0] / groups;
    int64_t window = weight->dim[2] * weight->dim[3], n_weights = weight->dim[1] * window;
    int64_t x_pixels = x->dim[0] * x->dim[2] * x->dim[3];
    int64_t y_pixels = y->dim[0] * y->dim[2] * y->dim[3];
    wfi_product p = {groups, n_outs, n_weights, y_pixels, .b = 1, .bias = 2};
    if (c.is_forward) p.n = y_pixels, p.k = n_weights;
    if (c.is_data) p.m = weight->dim[1], p.n = x_pixels, p.k = n_outs * window;
    wfi_gpu_set_windows(l, &c, wfi_gpu_add_product(l, entry, &p));
    wfi_gpu_add_channel_sum(l, y);
}

const wfi_gpu_row wfi_gpu_products[] = {
    {&wfi_op_linear, make_product, WFI_GPU_product},
    {&wfi_op_linear_backward_data, make_product, WFI_GPU_product},
    {&wfi_op_linear_backward_weight, make_product, WFI_GPU_product},
    {&wfi_op_matmul, make_product, WFI_GPU_product},
    {&wfi_op_conv2d, make_conv, WFI_GPU_conv2d},
    {&wfi_op_conv2d_backward_data, make_conv, WFI_GPU_conv2d_backward_data},
    {&wfi_op_conv2d_backward_weight, make_conv, WFI_GPU_conv2d_backward_weight},
    {&wfi_op_conv_transpose2d, make_conv, WFI_GPU_conv2d_backward_data},
    {0},
};
