/* Elements, rows, channels, windows and tables. */
#include "kernel/gpu/node.h"

/* ---- elements ---- */

static void make_gelu(wfi_gpu_node *l, wfi_gpu_entry entry) {
    wfi_gpu_add_outputs(l, entry)->n[1] = attr_of(l)->gelu.tanh;
}

static void make_scale(wfi_gpu_node *l, wfi_gpu_entry entry) {
    wfi_gpu_add_outputs(l, entry)->f[0] = attr_of(l)->scale.factor;
}

static void make_add_broadcast(wfi_gpu_node *l, wfi_gpu_entry entry) {
    wfi_launch_arguments *a = wfi_gpu_add_outputs(l, entry);
    a->n[1] = wf_shape_n_elem(in_shape(l, 1));
    a->n[2] = 1;
}

/* Leading dims are one. */
static void make_sum_leading(wfi_gpu_node *l, wfi_gpu_entry entry) {
    wfi_launch_arguments *a = wfi_gpu_add_outputs(l, entry);
    a->n[2] = a->n[0] ? a->n[0] : 1;
    a->n[1] = wf_shape_n_elem(in_shape(l, 0)) / a->n[2];
    a->f[0] = 1;
}

static void make_dropout(wfi_gpu_node *l, wfi_gpu_entry entry) {
    const wf_shape *x = in_shape(l, 0);
    const wfi_attr *attr = attr_of(l);
    int64_t n = wf_shape_n_elem(x), sample = n / x->dim[0];
    bool is_part = attr->dropout.run > 0;
    if (is_part) sample = sample / attr->dropout.run * attr->dropout.stride;
    if (attr->dropout.sample_size) sample = attr->dropout.sample_size;
    wfi_launch_arguments *a = wfi_gpu_add_outputs(l, entry);
    a->n[1] = is_part ? attr->dropout.run : n;
    a->n[2] = attr->dropout.first;
    a->n[3] = is_part ? attr->dropout.stride : n;
    a->n[4] = sample;
    a->n[5] = (int64_t)attr->dropout.name;
    a->f[0] = attr->dropout.p;
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

/* ---- tables ---- */

static void make_embedding(wfi_gpu_node *l, wfi_gpu_entry entry) {
    const wf_shape *table = in_shape(l, 1);
    wfi_launch_arguments *a = wfi_gpu_add_outputs(l, entry);
    a->n[1] = table->dim[0];
    a->n[2] = table->dim[1];
    a->n[3] = attr_of(l)->embedding.first;
}

static void make_embedding_backward(wfi_gpu_node *l, wfi_gpu_entry entry) {
    const wf_shape *table = out_shape(l, 0);
    int64_t n_ids = wf_shape_n_elem(in_shape(l, 1));
    (void)wfi_gpu_add_outputs(l, WFI_GPU_zero);
    wfi_launch_arguments *a = wfi_gpu_add_groups(l, entry, n_ids);
    a->n[0] = n_ids;
    a->n[1] = table->dim[0];
    a->n[2] = table->dim[1];
    a->n[3] = attr_of(l)->embedding.first;
}

/* ---- the table ---- */

const wfi_gpu_row wfi_gpu_elements[] = {
    {&wfi_op_reshape, wfi_gpu_add_told, WFI_GPU_copy},
    {&wfi_op_relu, wfi_gpu_add_told, WFI_GPU_relu},
    {&wfi_op_relu_backward, wfi_gpu_add_told, WFI_GPU_relu_backward},
    {&wfi_op_cast, wfi_gpu_add_told, WFI_GPU_copy},
    {&wfi_op_leaky_relu, make_scale, WFI_GPU_leaky_relu},
    {&wfi_op_leaky_relu_backward, make_scale, WFI_GPU_leaky_relu_backward},
    {&wfi_op_tanh, wfi_gpu_add_told, WFI_GPU_tanh_forward},
    {&wfi_op_tanh_backward, wfi_gpu_add_told, WFI_GPU_tanh_backward},
    {&wfi_op_sigmoid, wfi_gpu_add_told, WFI_GPU_sigmoid},
    {&wfi_op_sigmoid_backward, wfi_gpu_add_told, WFI_GPU_sigmoid_backward},
    {&wfi_op_gelu, make_gelu, WFI_GPU_gelu},
    {&wfi_op_gelu_backward, make_gelu, WFI_GPU_gelu_backward},
    {&wfi_op_scale, make_scale, WFI_GPU_scale},
    {&wfi_op_add, wfi_gpu_add_told, WFI_GPU_add},
    {&wfi_op_add_relu, wfi_gpu_add_told, WFI_GPU_add_relu},
    {&wfi_op_mul, wfi_gpu_add_told, WFI_GPU_mul},
    {&wfi_op_add_broadcast, make_add_broadcast, WFI_GPU_add_broadcast},
    {&wfi_op_sum_leading, make_sum_leading, WFI_GPU_reduce},
    {&wfi_op_reduce, wfi_gpu_add_told, WFI_GPU_reduce},
    {&wfi_op_reduce_backward, wfi_gpu_add_told, WFI_GPU_reduce_backward},
    {&wfi_op_global_avg_pool, wfi_gpu_add_told, WFI_GPU_global_avg_pool},
    {&wfi_op_global_avg_pool_backward, wfi_gpu_add_told, WFI_GPU_global_avg_pool_backward},
    {&wfi_op_dropout, make_dropout, WFI_GPU_dropout},
    {&wfi_op_dropout_backward, make_dropout, WFI_GPU_dropout},
    {&wfi_op_transpose, make_transpose, WFI_GPU_transpose},
    {&wfi_op_slice, make_slice, WFI_GPU_copy_along},
    {&wfi_op_slice_backward, make_slice_backward, WFI_GPU_copy_along},
    {&wfi_op_concat, make_concat, WFI_GPU_copy_along},
    {&wfi_op_softmax, wfi_gpu_add_told, WFI_GPU_softmax},
    {&wfi_op_softmax_backward, wfi_gpu_add_told, WFI_GPU_softmax_backward},
    {&wfi_op_log_softmax, wfi_gpu_add_told, WFI_GPU_softmax},
    {&wfi_op_log_softmax_backward, wfi_gpu_add_told, WFI_GPU_softmax_backward},
    {&wfi_op_cross_entropy, wfi_gpu_add_told, WFI_GPU_cross_entropy},
    {&wfi_op_cross_entropy_backward, wfi_gpu_add_told, WFI_GPU_cross_entropy_backward},
    {&wfi_op_smoothed_cross_entropy, wfi_gpu_add_told, WFI_GPU_cross_entropy},
    {&wfi_op_smoothed_cross_entropy_backward, wfi_gpu_add_told, WFI_GPU_cross_entropy_backward},
    {&wfi_op_mse, wfi_gpu_add_told, WFI_GPU_mse},
    {&wfi_op_mse_backward, wfi_gpu_add_told, WFI_GPU_mse_backward},
    {&wfi_op_smooth_l1, wfi_gpu_add_told, WFI_GPU_smooth_l1},
    {&wfi_op_smooth_l1_backward, wfi_gpu_add_told, WFI_GPU_smooth_l1_backward},
    {&wfi_op_binary_cross_entropy, wfi_gpu_add_told, WFI_GPU_binary_cross_entropy},
    {&wfi_op_binary_cross_entropy_backward, wfi_gpu_add_told,
     WFI_GPU_binary_cross_entropy_backward},
    {&wfi_op_class_sums, wfi_gpu_add_cleared, WFI_GPU_class_sums},
    {&wfi_op_class_sums_backward, wfi_gpu_add_told, WFI_GPU_class_sums_backward},
    {&wfi_op_cross_entropy_of_sums, wfi_gpu_add_told, WFI_GPU_cross_entropy_of_sums},
    {&wfi_op_cross_entropy_of_sums_backward, wfi_gpu_add_told,
     WFI_GPU_cross_entropy_of_sums_backward},
    {&wfi_op_loss_record, wfi_gpu_add_told, WFI_GPU_loss_record},
    {&wfi_op_loss_gradient, wfi_gpu_add_told, WFI_GPU_loss_gradient},
    {&wfi_op_layer_norm, wfi_gpu_add_told, WFI_GPU_layer_norm},
    {&wfi_op_layer_norm_backward, make_layer_norm_backward, WFI_GPU_layer_norm_backward_data},
    {&wfi_op_batch_norm, wfi_gpu_add_told, WFI_GPU_batch_norm},
    {&wfi_op_batch_norm_inference, wfi_gpu_add_told, WFI_GPU_batch_norm_inference},
    {&wfi_op_batch_norm_backward, wfi_gpu_add_told, WFI_GPU_batch_norm_backward},
    {&wfi_op_max_pool, wfi_gpu_add_told, WFI_GPU_max_pool},
    {&wfi_op_max_pool_backward, wfi_gpu_add_told, WFI_GPU_max_pool_backward},
    {&wfi_op_avg_pool, wfi_gpu_add_told, WFI_GPU_avg_pool},
    {&wfi_op_avg_pool_backward, wfi_gpu_add_told, WFI_GPU_avg_pool_backward},
    {&wfi_op_gather, wfi_gpu_add_told, WFI_GPU_gather},
    {&wfi_op_gather_backward, wfi_gpu_add_cleared, WFI_GPU_gather_backward},
    {&wfi_op_embedding, make_embedding, WFI_GPU_embedding},
    {&wfi_op_embedding_backward, make_embedding_backward, WFI_GPU_embedding_backward},
    {0},
};
