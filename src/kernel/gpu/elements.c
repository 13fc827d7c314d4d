/* Elements, rows, channels, windows and tables. */
#include "kernel/gpu/node.h"

/* ---- elements ---- */

static void make_gelu(wfi_gpu_node *l, wfi_gpu_entry entry) {
    wfi_gpu_add_outputs(l, entry)->n[1] = attr_of(l)->gelu.tanh;
}

static void make_scale(wfi_gpu_node *l, wfi_gpu_entry entry) {
    wfi_gpu_add_outputs(l, entry)->f[0] = attr_of(l)->scale.factor;
}

/* ---- what changes places ---- */

static void make_transpose(wfi_gpu_node *l, wfi_gpu_entry entry) {
    const wf_shape *y = out_shape(l, 0);
    int a = attr_of(l)->transpose.dim_a, b = attr_of(l)->transpose.dim_b;
    int first = a < b ? a : b, second = a < b ? b : a;
    bool swaps = first != second;
    wfi_launch_arguments *arguments = wfi_gpu_add_outputs(l, entry);
    arguments->n[1] = y->dim[first];
    arguments->n[2] = size_of(y, first + 1, second);
    arguments->n[3] = swaps ? y->dim[second] : 1;
    arguments->n[4] = size_of(y, second + 1, y->n_dims);
}

/* From place `from` on along a dim of x, to place `to` on of y; as much as the smaller has. */
static void add_along(wfi_gpu_node *l, wfi_gpu_entry entry, const wf_shape *x, int64_t from,
                      const wf_shape *y, int64_t to) {
    int dim = attr_of(l)->slice.dim;
    const wf_shape *smaller = x->dim[dim] < y->dim[dim] ? x : y;
    wfi_launch_arguments *a = wfi_gpu_add_elements(l, entry, wf_shape_n_elem(smaller));
    a->n[1] = x->dim[dim];
    a->n[2] = size_of(x, dim + 1, x->n_dims);
    a->n[3] = from;
    a->n[4] = y->dim[dim];
    a->n[5] = to;
    a->n[6] = smaller->dim[dim];
}

static void make_slice(wfi_gpu_node *l, wfi_gpu_entry entry) {
    add_along(l, entry, in_shape(l, 0), attr_of(l)->slice.start, out_shape(l, 0), 0);
}

static void make_slice_backward(wfi_gpu_node *l, wfi_gpu_entry entry) {
    (void)wfi_gpu_add_outputs(l, WFI_GPU_zero);
    add_along(l, entry, in_shape(l, 0), 0, out_shape(l, 0), attr_of(l)->slice.start);
}

static void make_concat(wfi_gpu_node *l, wfi_gpu_entry entry) {
    int64_t start = 0;
    for (int i = 0; i < l->node->n_in; i++) {
        add_along(l, entry, in_shape(l, i), 0, out_shape(l, 0), start);
        wfi_gpu_take(l, i, WFI_GPU_NONE, WFI_GPU_NONE);
        start += in_shape(l, i)->dim[attr_of(l)->slice.dim];
    }
}

/* ---- rows ---- */

/* The gradient of the data last: it may lie over what comes in. */
static void make_layer_norm_backward(wfi_gpu_node *l, wfi_gpu_entry entry) {
    wfi_gpu_add_told(l, WFI_GPU_layer_norm_backward_weight);
    l->all[0].launch.n_groups = wfi_gpu_groups(last_dim(in_shape(l, 0)));
    wfi_gpu_add_told(l, entry);
}

/* ---- the table ---- */

const wfi_gpu_row wfi_gpu_elements[] = {
    {&wfi_op_reshape, wfi_gpu_add_told, WFI_GPU_copy},
    {&wfi_op_cast, wfi_gpu_add_told, WFI_GPU_copy},
    {&wfi_op_leaky_relu, make_scale, WFI_GPU_leaky_relu},
    {&wfi_op_leaky_relu_backward, make_scale, WFI_GPU_leaky_relu_backward},
    {&wfi_op_tanh, wfi_gpu_add_told, WFI_GPU_tanh_forward},
    {&wfi_op_gelu, make_gelu, WFI_GPU_gelu},
    {&wfi_op_gelu_backward, make_gelu, WFI_GPU_gelu_backward},
    {&wfi_op_scale, make_scale, WFI_GPU_scale},
    {&wfi_op_sum_leading, wfi_gpu_add_told, WFI_GPU_reduce},
    {&wfi_op_dropout_backward, wfi_gpu_add_told, WFI_GPU_dropout},
    {&wfi_op_transpose, make_transpose, WFI_GPU_transpose},
    {&wfi_op_slice, make_slice, WFI_GPU_copy_along},
    {&wfi_op_slice_backward, make_slice_backward, WFI_GPU_copy_along},
    {&wfi_op_concat, make_concat, WFI_GPU_copy_along},
    {&wfi_op_log_softmax, wfi_gpu_add_told, WFI_GPU_softmax},
    {&wfi_op_log_softmax_backward, wfi_gpu_add_told, WFI_GPU_softmax_backward},
    {&wfi_op_smoothed_cross_entropy, wfi_gpu_add_told, WFI_GPU_cross_entropy},
    {&wfi_op_smoothed_cross_entropy_backward, wfi_gpu_add_told, WFI_GPU_cross_entropy_backward},
    {&wfi_op_class_sums, wfi_gpu_add_cleared, WFI_GPU_class_sums},
    {&wfi_op_layer_norm_backward, make_layer_norm_backward, WFI_GPU_layer_norm_backward_data},
    {&wfi_op_gather_backward, wfi_gpu_add_cleared, WFI_GPU_gather_backward},
    {&wfi_op_embedding_backward, wfi_gpu_add_cleared, WFI_GPU_embedding_backward},
    {0},
};
