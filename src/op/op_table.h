/* Every op, by family. One list: adding an op touches its file and one line. An op
 * lies in the file of its family (conv2d_backward_data in conv.c, add in arithmetic.c). */
#pragma once

#include "graph/op.h"

#define WFI_OP_LIST(X)                                                                             \
    X(linear)                                                                                      \
    X(linear_backward_data)                                                                        \
    X(linear_backward_weight)                                                                      \
    X(matmul)                                                                                      \
    X(conv2d)                                                                                      \
    X(conv2d_backward_data)                                                                        \
    X(conv2d_backward_weight)                                                                      \
    X(conv_transpose2d)                                                                            \
    X(batch_norm)                                                                                  \
    X(batch_norm_inference)                                                                        \
    X(batch_norm_backward)                                                                         \
    X(layer_norm)                                                                                  \
    X(layer_norm_backward)                                                                         \
    X(rms_norm)                                                                                    \
    X(rms_norm_backward)                                                                           \
    X(relu)                                                                                        \
    X(relu_backward)                                                                               \
    X(gelu)                                                                                        \
    X(gelu_backward)                                                                               \
    X(rotary)                                                                                      \
    X(rotary_backward)                                                                             \
    X(silu)                                                                                        \
    X(silu_backward)                                                                               \
    X(tanh)                                                                                        \
    X(tanh_backward)                                                                               \
    X(sigmoid)                                                                                     \
    X(sigmoid_backward)                                                                            \
    X(add)                                                                                         \
    X(add_relu)                                                                                    \
    X(add_broadcast)                                                                               \
    X(mul)                                                                                         \
    X(scale)                                                                                       \
    X(sum_leading)                                                                                 \
    X(softmax)                                                                                     \
    X(softmax_backward)                                                                            \
    X(log_softmax)                                                                                 \
    X(log_softmax_backward)                                                                        \
    X(cross_entropy)                                                                               \
    X(cross_entropy_backward)                                                                      \
    X(class_sums)                                                                                  \
    X(class_sums_backward)                                                                         \
    X(cross_entropy_of_sums)                                                                       \
    X(cross_entropy_of_sums_backward)                                                              \
    X(smoothed_cross_entropy)                                                                      \
    X(smoothed_cross_entropy_backward)                                                             \
    X(binary_cross_entropy)                                                                        \
    X(binary_cross_entropy_backward)                                                               \
    X(smooth_l1)                                                                                   \
    X(smooth_l1_backward)                                                                          \
    X(gather)                                                                                      \
    X(gather_backward)                                                                             \
    X(leaky_relu)                                                                                  \
    X(leaky_relu_backward)                                                                         \
    X(mse)                                                                                         \
    X(mse_backward)                                                                                \
    X(loss_record)                                                                                 \
    X(loss_gradient)                                                                               \
    X(max_pool)                                                                                    \
    X(max_pool_backward)                                                                           \
    X(avg_pool)                                                                                    \
    X(avg_pool_backward)                                                                           \
    X(global_avg_pool)                                                                             \
    X(global_avg_pool_backward)                                                                    \
    X(embedding)                                                                                   \
    X(embedding_backward)                                                                          \
    X(dropout)                                                                                     \
    X(dropout_backward)                                                                            \
    X(reshape)                                                                                     \
    X(reorder)                                                                                     \
    X(cast)                                                                                        \
    X(transpose)                                                                                   \
    X(concat)                                                                                      \
    X(slice)                                                                                       \
    X(slice_backward)                                                                              \
    X(reduce)                                                                                      \
    X(reduce_backward)                                                                             \
    X(lstm)                                                                                        \
    X(lstm_backward)                                                                               \
    X(lstm_cell)                                                                                   \
    X(lstm_cell_backward)                                                                          \
    X(self_attention)                                                                              \
    X(self_attention_backward)                                                                     \
    X(cached_attention)

#define WFI_OP_EXTERN(name) extern const wfi_op wfi_op_##name;
WFI_OP_LIST(WFI_OP_EXTERN)
#undef WFI_OP_EXTERN

/* Not in the table, because they compute nothing (slices.c). */
extern const wfi_op wfi_op_to_slices, wfi_op_sum_slices, wfi_op_split_rows, wfi_op_join_rows,
    wfi_op_place_rows;

/* wf_cached_attention with wf_self_attention's `causal`. */
wf_tensor wfi_cached_attention(wf_tensor qkv, wf_tensor position, const char *name, int64_t n_heads,
                               int64_t n_positions, int causal);

/* All of them, NULL-terminated. */
extern const wfi_op *const wfi_op_table[];
