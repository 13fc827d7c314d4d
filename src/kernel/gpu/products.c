/* Products of matrices, and convolutions as such. */
#include "kernel/gpu/node.h"

#define TILE 32 /* product.cl's */

wfi_launch_arguments *wfi_gpu_add_product(wfi_gpu_node *l, wfi_gpu_entry entry, int64_t n_matrices,
                                          int64_t m, int64_t n, int64_t k) {
    int64_t n_tiles = (m + TILE - 1) / TILE * ((n + TILE - 1) / TILE);
    wfi_launch_arguments *a = wfi_gpu_add_groups(l, entry, n_matrices * n_tiles);
    a->n[0] = m;
    a->n[1] = n;
    a->n[2] = k;
    a->n[9] = n_matrices;
    return a;
}

void wfi_gpu_set_strides(wfi_launch_arguments *a, int which, int64_t n_cols, bool is_transposed) {
    a->n[3 + 2 * which] = is_transposed ? 1 : n_cols;
    a->n[4 + 2 * which] = is_transposed ? n_cols : 1;
}

static void make_linear(wfi_gpu_node *l, wfi_gpu_entry entry) {
    const wf_shape *x = in_shape(l, 0), *weight = in_shape(l, 1), *y = out_shape(l, 0);
    bool is_backward = l->node->op == &wfi_op_linear_backward_data;
    wfi_launch_arguments *a = wfi_gpu_add_product(l, entry, 1, n_rows(x), last_dim(y), last_dim(x));
    wfi_gpu_set_strides(a, 0, last_dim(x), false);
    wfi_gpu_set_strides(a, 1, weight->dim[1], !attr_of(l)->linear.in_out != is_backward);
}

/* dy, x */
static void make_linear_backward_weight(wfi_gpu_node *l, wfi_gpu_entry entry) {
    const wf_shape *dy = in_shape(l, 0), *x = in_shape(l, 1);
    bool in_out = attr_of(l)->linear.in_out;
    int64_t m = last_dim(in_out ? x : dy), n = last_dim(in_out ? dy : x);
    wfi_launch_arguments *a = wfi_gpu_add_product(l, entry, 1, m, n, n_rows(dy));
    wfi_gpu_set_strides(a, 0, m, true);
    wfi_gpu_set_strides(a, 1, n, false);
    wfi_gpu_take(l, in_out, !in_out, WFI_GPU_NONE); /* x times dy, or dy times x */
    if (l->node->n_out > 1 && l->node->out[1] >= 0)
        wfi_gpu_add_elements(l, WFI_GPU_column_sum, last_dim(dy))->n[1] = n_rows(dy);
}

static void make_matmul(wfi_gpu_node *l, wfi_gpu_entry entry) {
    const wf_shape *a = in_shape(l, 0), *b = in_shape(l, 1), *c = out_shape(l, 0);
    int d = c->n_dims - 2;
    bool ta = attr_of(l)->matmul.transpose_a, tb = attr_of(l)->matmul.transpose_b;
    wfi_launch_arguments *arguments = wfi_gpu_add_product(l, entry, size_of(c, 0, d), c->dim[d],
                                                          c->dim[d + 1], a->dim[ta ? d : d + 1]);
    wfi_gpu_set_strides(arguments, 0, a->dim[d + 1], ta);
    wfi_gpu_set_strides(arguments, 1, b->dim[d + 1], tb);
    arguments->n[7] = a->dim[d] * a->dim[d + 1];
    arguments->n[8] = b->dim[d] * b->dim[d + 1];
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
    if (l->node->n_out > 1 && l->node->out[1] >= 0)
        (void)wfi_gpu_add_channels(l, WFI_GPU_channel_sum, y);
}

static void make_conv(wfi_gpu_node *l, wfi_gpu_entry entry) {
    const wfi_gpu_conv c = wfi_gpu_conv_of(l);
    const wf_shape *x = c.x, *y = c.y, *weight = c.weight;
    int64_t groups = attr_of(l)->conv.groups, n_outs = weight->dim[0] / groups;
    int64_t window = weight->dim[2] * weight->dim[3], n_weights = weight->dim[1] * window;
    int64_t x_pixels = x->dim[0] * x->dim[2] * x->dim[3];
    int64_t y_pixels = y->dim[0] * y->dim[2] * y->dim[3];
    wfi_launch_arguments *a =
        c.is_forward ? wfi_gpu_add_product(l, entry, groups, n_outs, y_pixels, n_weights)
        : c.is_data
            ? wfi_gpu_add_product(l, entry, groups, weight->dim[1], x_pixels, n_outs * window)
            : wfi_gpu_add_product(l, entry, groups, n_outs, n_weights, y_pixels);
    wfi_gpu_set_windows(l, &c, a);
    wfi_gpu_add_channel_sum(l, y);
}

const wfi_gpu_row wfi_gpu_products[] = {
    {&wfi_op_linear, make_linear, WFI_GPU_product},
    {&wfi_op_linear_backward_data, make_linear, WFI_GPU_product},
    {&wfi_op_linear_backward_weight, make_linear_backward_weight, WFI_GPU_product},
    {&wfi_op_matmul, make_matmul, WFI_GPU_product},
    {&wfi_op_conv2d, make_conv, WFI_GPU_conv2d},
    {&wfi_op_conv2d_backward_data, make_conv, WFI_GPU_conv2d_backward_data},
    {&wfi_op_conv2d_backward_weight, make_conv, WFI_GPU_conv2d_backward_weight},
    {&wfi_op_conv_transpose2d, make_conv, WFI_GPU_conv2d_backward_data},
    {0},
};
