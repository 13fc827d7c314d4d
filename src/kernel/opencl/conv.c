/* Convolutions as products of the weights with columns: the pixels under each window of the images.
 * One product covers the whole microbatch, so that it has many columns even if images have few
 * pixels. The channels of an image are therefore not adjacent. */
#include "kernel/opencl/product.h"

/* The most that a microbatch's columns take; where they would be more, weft's own kernels convolve.
 */
#define MOST_COLUMN_BYTES ((int64_t)256 << 20)

/* The latest launch takes that operand from the scratch memory, at offset `skip`. */
static void take_scratch(wfi_gpu_node *l, int operand, size_t skip) {
    wfi_gpu_planned *p = &l->all[l->n - 1];
    p->from[operand] = WFI_GPU_SCRATCH;
    p->skip[operand] = skip;
}

/* x becomes columns, or columns become x: n[2] samples. */
static void add_windows(wfi_gpu_node *l, const wfi_gpu_conv *c, int x) {
    int64_t n = x == WFI_GPU_OUT ? wf_shape_n_elem(c->x)
                                 : wf_shape_n_elem(c->y) / c->y->dim[1] * c->x->dim[1];
    wfi_launch_arguments *a =
        wfi_gpu_add_elements(l, x == WFI_GPU_OUT ? WFI_GPU_images : WFI_GPU_columns, n);
    wfi_gpu_set_windows(l, c, a);
    a->n[2] = c->x->dim[0];
    if (x != WFI_GPU_OUT) wfi_gpu_take(l, x, WFI_GPU_NONE, WFI_GPU_NONE);
    take_scratch(l, x == WFI_GPU_OUT ? 0 : WFI_GPU_OUT, 0);
}

/* Samples of channels [n, m, pixels] become channels of samples [m, n, pixels]. */
static void add_exchange(wfi_gpu_node *l, const wf_shape *y, int64_t n, int64_t m) {
    wfi_launch_arguments *a = wfi_gpu_add_elements(l, WFI_GPU_transpose, wf_shape_n_elem(y));
    a->n[1] = m;
    a->n[2] = 1;
    a->n[3] = n;
    a->n[4] = y->dim[2] * y->dim[3];
    wfi_gpu_take(l, 0, WFI_GPU_NONE, WFI_GPU_NONE);
}

/* The scratch memory begins with the columns; rows of y, or of its gradient, follow. y = weight
 * columns; columns = weight^T dy; dweight = dy columns^T */
static void make_conv(wfi_gpu_node *l, wfi_gpu_entry entry) {
    const wfi_gpu_conv c = wfi_gpu_conv_of(l);
    int64_t n_weights = c.weight->dim[1] * c.weight->dim[2] * c.weight->dim[3];
    int64_t outs = c.y->dim[1], samples = c.y->dim[0], n = wf_shape_n_elem(c.y) / outs;
    int64_t bytes = n * n_weights * (int64_t)sizeof(float);
    size_t rows = wfi_round_up((size_t)bytes, WFI_ALIGN_BYTES);
    bool is_weight = !c.is_forward && !c.is_data;
    wfi_product p = {1, outs, n, n_weights, .a = 1};
    if (c.is_data) p.m = n_weights, p.k = outs, p.a_is_transposed = true;
    if (is_weight) p.n = n_weights, p.k = n, p.b_is_transposed = true;
    if (attr_of(l)->conv.groups > 1) l->reason = "it has groups";
    if (bytes > MOST_COLUMN_BYTES) l->reason = "its columns are too many";
    l->scratch_bytes = rows + (size_t)(n * outs) * sizeof(float);
    if (!c.is_forward) {
        add_exchange(l, c.y, samples, outs);
        take_scratch(l, WFI_GPU_OUT, rows);
    }
    if (!c.is_data) add_windows(l, &c, is_weight);
    (void)wfi_gpu_add_product(l, entry, &p);
    if (is_weight) take_scratch(l, 0, rows);
    take_scratch(l, 1, c.is_data ? rows : 0);
    if (!is_weight) take_scratch(l, WFI_GPU_OUT, c.is_data ? 0 : rows);
    if (c.is_data) add_windows(l, &c, WFI_GPU_OUT);
    if (is_weight) wfi_gpu_add_channel_sum(l, c.y);
    if (!c.is_forward) return;
    add_exchange(l, c.y, outs, samples);
    take_scratch(l, 0, rows);
    wfi_clblast_add_bias(l, outs, c.y->dim[2] * c.y->dim[3]);
}

const wfi_gpu_row wfi_clblast_convs[] = {
    {&wfi_op_conv2d, make_conv, WFI_GPU_product},
    {&wfi_op_conv2d_backward_data, make_conv, WFI_GPU_product},
    {&wfi_op_conv2d_backward_weight, make_conv, WFI_GPU_product},
    {&wfi_op_conv_transpose2d, make_conv, WFI_GPU_product},
    {0},
};
