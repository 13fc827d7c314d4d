/* Convolutions as products of matrices: of weights with columns, which are what lies under each
 * window of the images. A product is of the whole microbatch, so that it has many columns where
 * images have few pixels: an image's channels lie apart there. */
#include "kernel/opencl/product.h"

/* The most that a microbatch's columns take; where they would be more, weft's own kernels convolve.
 */
#define MOST_COLUMN_BYTES ((int64_t)256 << 20)

/* The latest launch takes that, of what is in scratch memory behind so many bytes. */
static void take_scratch(wfi_gpu_node *l, int operand, size_t skip) {
    wfi_gpu_planned *p = &l->all[l->n - 1];
    p->from[operand] = WFI_GPU_SCRATCH;
    p->skip[operand] = skip;
}

static void add_columns(wfi_gpu_node *l, const wfi_gpu_conv *c, int x) {
    int64_t n = wf_shape_n_elem(c->y) / c->y->dim[1] * c->x->dim[1];
    wfi_launch_arguments *a = wfi_gpu_add_elements(l, WFI_GPU_columns, n);
    wfi_gpu_set_windows(l, c, a);
    a->n[2] = c->x->dim[0];
    wfi_gpu_take(l, x, WFI_GPU_NONE, WFI_GPU_NONE);
    take_scratch(l, WFI_GPU_OUT, 0);
}

static void add_images(wfi_gpu_node *l, const wfi_gpu_conv *c) {
    wfi_launch_arguments *a = wfi_gpu_add_outputs(l, WFI_GPU_images);
    wfi_gpu_set_windows(l, c, a);
    a->n[2] = c->x->dim[0];
    take_scratch(l, 0, 0);
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

static void make_forward(wfi_gpu_node *l, const wfi_gpu_conv *c, int64_t n_weights, size_t rows) {
    int64_t outs = c->y->dim[1], n = wf_shape_n_elem(c->y) / outs;
    add_columns(l, c, 0);
    wfi_launch_arguments *a = wfi_gpu_add_product(l, WFI_GPU_product, 1, outs, n, n_weights);
    wfi_gpu_set_strides(a, 0, n_weights, false);
    wfi_gpu_set_strides(a, 1, n, false);
    wfi_gpu_take(l, 1, WFI_GPU_NONE, WFI_GPU_NONE);
    take_scratch(l, 1, 0);
    take_scratch(l, WFI_GPU_OUT, rows);
    add_exchange(l, c->y, outs, c->y->dim[0]);
    take_scratch(l, 0, rows);
    wfi_clblast_add_bias(l, outs, c->y->dim[2] * c->y->dim[3]);
}

/* dy, weight -> dx */
static void make_data(wfi_gpu_node *l, const wfi_gpu_conv *c, int64_t n_weights, size_t rows) {
    int64_t outs = c->y->dim[1], n = wf_shape_n_elem(c->y) / outs;
    add_exchange(l, c->y, c->y->dim[0], outs);
    take_scratch(l, WFI_GPU_OUT, rows);
    wfi_launch_arguments *a = wfi_gpu_add_product(l, WFI_GPU_product, 1, n_weights, n, outs);
    wfi_gpu_set_strides(a, 0, n_weights, true);
    wfi_gpu_set_strides(a, 1, n, false);
    wfi_gpu_take(l, 1, WFI_GPU_NONE, WFI_GPU_NONE);
    take_scratch(l, 1, rows);
    take_scratch(l, WFI_GPU_OUT, 0);
    add_images(l, c);
}

/* dy, x -> dweight, dbias */
static void make_weight(wfi_gpu_node *l, const wfi_gpu_conv *c, int64_t n_weights, size_t rows) {
    int64_t outs = c->y->dim[1], n = wf_shape_n_elem(c->y) / outs;
    add_exchange(l, c->y, c->y->dim[0], outs);
    take_scratch(l, WFI_GPU_OUT, rows);
    add_columns(l, c, 1);
    wfi_launch_arguments *a = wfi_gpu_add_product(l, WFI_GPU_product, 1, outs, n_weights, n);
    wfi_gpu_set_strides(a, 0, n, false);
    wfi_gpu_set_strides(a, 1, n, true);
    take_scratch(l, 0, rows);
    take_scratch(l, 1, 0);
    wfi_gpu_add_channel_sum(l, c->y);
}

static void make_conv(wfi_gpu_node *l, wfi_gpu_entry entry) {
    const wfi_gpu_conv c = wfi_gpu_conv_of(l);
    int64_t n_weights = c.weight->dim[1] * c.weight->dim[2] * c.weight->dim[3];
    int64_t y_bytes = wf_shape_n_elem(c.y) * (int64_t)sizeof(float);
    int64_t bytes = y_bytes / c.y->dim[1] * n_weights;
    size_t rows = wfi_round_up((size_t)bytes, WFI_ALIGN_BYTES);
    (void)entry;
    if (attr_of(l)->conv.groups > 1) l->reason = "it has groups";
    if (bytes > MOST_COLUMN_BYTES) l->reason = "its columns are too many";
    l->scratch_bytes = rows + (size_t)y_bytes;
    (c.is_forward ? make_forward : c.is_data ? make_data : make_weight)(l, &c, n_weights, rows);
}

const wfi_gpu_row wfi_clblast_convs[] = {
    {&wfi_op_conv2d, make_conv, WFI_GPU_product},
    {&wfi_op_conv2d_backward_data, make_conv, WFI_GPU_product},
    {&wfi_op_conv2d_backward_weight, make_conv, WFI_GPU_product},
    {&wfi_op_conv_transpose2d, make_conv, WFI_GPU_product},
    {0},
};
