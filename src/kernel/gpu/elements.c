/* Elements, rows and tables. */
#include "kernel/gpu/node.h"

/* Each part goes where a slice's gradient goes. */
static void make_concat(wfi_gpu_node *l, wfi_gpu_entry entry) {
    wfi_call call = wfi_call_of(l->g, l->node);
    wfi_attr attr = *call.attr;
    call.attr = &attr;
    attr.slice.start = 0;
    for (int i = 0; i < l->node->n_in; i++) {
        call.in[0].shape = *in_shape(l, i);
        wfi_gpu_add_numbers(l, entry, wfi_op_slice_backward.numbers(&call));
        wfi_gpu_take(l, i, WFI_GPU_NONE, WFI_GPU_NONE);
        attr.slice.start += in_shape(l, i)->dim[attr.slice.dim];
    }
}

/* The data's gradient comes last: its memory may be that of an input. */
static void make_norm_backward(wfi_gpu_node *l, wfi_gpu_entry entry) {
    wfi_gpu_add_told(l, entry == WFI_GPU_rms_norm_backward_data
                            ? WFI_GPU_rms_norm_backward_weight
                            : WFI_GPU_layer_norm_backward_weight);
    l->all[0].launch.n_groups = wfi_gpu_groups(wfi_last_dim(in_shape(l, 0)));
    wfi_gpu_add_told(l, entry);
}

const wfi_gpu_row wfi_gpu_elements[] = {
    {&wfi_op_reshape, wfi_gpu_add_told, WFI_GPU_copy},
    {&wfi_op_cast, wfi_gpu_add_told, WFI_GPU_copy},
    {&wfi_op_tanh, wfi_gpu_add_told, WFI_GPU_tanh_forward},
    {&wfi_op_sum_leading, wfi_gpu_add_told, WFI_GPU_reduce},
    {&wfi_op_dropout_backward, wfi_gpu_add_told, WFI_GPU_dropout},
    {&wfi_op_slice, wfi_gpu_add_told, WFI_GPU_copy_along},
    {&wfi_op_slice_backward, wfi_gpu_add_cleared, WFI_GPU_copy_along},
    {&wfi_op_concat, make_concat, WFI_GPU_copy_along},
    {&wfi_op_log_softmax, wfi_gpu_add_told, WFI_GPU_softmax},
    {&wfi_op_log_softmax_backward, wfi_gpu_add_told, WFI_GPU_softmax_backward},
    {&wfi_op_smoothed_cross_entropy, wfi_gpu_add_told, WFI_GPU_cross_entropy},
    {&wfi_op_smoothed_cross_entropy_backward, wfi_gpu_add_told, WFI_GPU_cross_entropy_backward},
    {&wfi_op_class_sums, wfi_gpu_add_cleared, WFI_GPU_class_sums},
    {&wfi_op_layer_norm_backward, make_norm_backward, WFI_GPU_layer_norm_backward_data},
    {&wfi_op_rms_norm_backward, make_norm_backward, WFI_GPU_rms_norm_backward_data},
    {&wfi_op_gather_backward, wfi_gpu_add_cleared, WFI_GPU_gather_backward},
    {&wfi_op_embedding_backward, wfi_gpu_add_cleared, WFI_GPU_embedding_backward},
    {0},
};
