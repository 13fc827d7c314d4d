/* Kernels for devices that compile them from text (device/launch.h): one source for all of these,
 * source/ *.cl. A backend of such a device takes them from here, behind those of a library.
 * Private.
 */
#ifndef WFI_GPU_H
#define WFI_GPU_H

#include "kernel/backend.h"

/* Every kernel of the source, by its name there. */
#define WFI_GPU_KERNELS(X)                                                                         \
    X(copy)                                                                                        \
    X(relu)                                                                                        \
    X(relu_backward)                                                                               \
    X(leaky_relu)                                                                                  \
    X(leaky_relu_backward)                                                                         \
    X(tanh_forward)                                                                                \
    X(tanh_backward)                                                                               \
    X(sigmoid)                                                                                     \
    X(sigmoid_backward)                                                                            \
    X(gelu)                                                                                        \
    X(gelu_backward)                                                                               \
    X(scale)                                                                                       \
    X(add)                                                                                         \
    X(add_relu)                                                                                    \
    X(mul)                                                                                         \
    X(add_broadcast)                                                                               \
    X(zero)                                                                                        \
    X(accumulate)                                                                                  \
    X(loss_gradient)                                                                               \
    X(mse)                                                                                         \
    X(mse_backward)                                                                                \
    X(smooth_l1)                                                                                   \
    X(smooth_l1_backward)                                                                          \
    X(binary_cross_entropy)                                                                        \
    X(binary_cross_entropy_backward)                                                               \
    X(reduce)                                                                                      \
    X(reduce_backward)                                                                             \
    X(column_sum)                                                                                  \
    X(channel_sum)                                                                                 \
    X(copy_along)                                                                                  \
    X(gather)                                                                                      \
    X(gather_backward)                                                                             \
    X(transpose)                                                                                   \
    X(dropout)                                                                                     \
    X(softmax)                                                                                     \
    X(softmax_backward)                                                                            \
    X(cross_entropy)                                                                               \
    X(cross_entropy_backward)                                                                      \
    X(class_sums)                                                                                  \
    X(class_sums_backward)                                                                         \
    X(cross_entropy_of_sums)                                                                       \
    X(cross_entropy_of_sums_backward)                                                              \
    X(loss_record)                                                                                 \
    X(layer_norm)                                                                                  \
    X(layer_norm_backward_weight)                                                                  \
    X(layer_norm_backward_data)                                                                    \
    X(batch_norm)                                                                                  \
    X(batch_norm_inference)                                                                        \
    X(batch_norm_backward)                                                                         \
    X(max_pool)                                                                                    \
    X(max_pool_backward)                                                                           \
    X(avg_pool)                                                                                    \
    X(avg_pool_backward)                                                                           \
    X(global_avg_pool_backward)                                                                    \
    X(embedding)                                                                                   \
    X(embedding_backward)                                                                          \
    X(product)                                                                                     \
    X(conv2d)                                                                                      \
    X(conv2d_backward_data)                                                                        \
    X(conv2d_backward_weight)                                                                      \
    X(self_attention)                                                                              \
    X(attention_backward_queries)                                                                  \
    X(attention_backward_values)                                                                   \
    X(cached_attention)                                                                            \
    X(lstm)                                                                                        \
    X(lstm_gates_backward)                                                                         \
    X(lstm_weight)                                                                                 \
    X(lstm_cell)                                                                                   \
    X(lstm_cell_backward)                                                                          \
    X(squares)                                                                                     \
    X(sum_ranks)                                                                                   \
    X(sgd)                                                                                         \
    X(adam)                                                                                        \
    X(average)                                                                                     \
    X(statistics)

typedef enum wfi_gpu_entry {
#define WFI_GPU_ENUM(name) WFI_GPU_##name,
    WFI_GPU_KERNELS(WFI_GPU_ENUM)
#undef WFI_GPU_ENUM
} wfi_gpu_entry;

extern const wfi_launch_source wfi_gpu_source;
extern const char wfi_gpu_text[]; /* source/ *.cl, one behind the other; made by CMake */

/* Where a kernel's operands are: a node's inputs from 0 on, its outputs from here on, and its
 * scratch memory. */
#define WFI_GPU_OUT     8
#define WFI_GPU_SCRATCH 15
#define WFI_GPU_NONE    (-1)

/* Launches a kernel with a thread for each of n elements, n[0]. */
wf_status wfi_gpu_launch_elements(wfi_stream_queue *stream, wfi_kernel_launch *launch, int64_t n);

/* ---- what a backend is made of; each as in kernel/backend.h ---- */

extern const wfi_kernel_impl wfi_kernel_gpu;
wf_status wfi_gpu_copy(wfi_stream_queue *stream, float *to, const float *from, size_t n);
wf_status wfi_gpu_add(wfi_stream_queue *stream, float *sum, const float *summand, size_t n);
wf_status wfi_gpu_squares(wfi_stream_queue *stream, const float *gradient, size_t n,
                          double *squares_out);
wf_status wfi_gpu_update(wfi_stream_queue *stream, const wfi_update_call *call);
wf_status wfi_gpu_statistics(wfi_stream_queue *stream, const wfi_statistics_call *call);
wf_status wfi_gpu_collective_step(wfi_stream_queue *stream, const wfi_step_memory *memory,
                                  const wfi_reduce_part *part, const wfi_reduce_step *step);
wf_status wfi_gpu_thread_enter(wf_context *ctx, int rank, int n_threads, int *n_out);
static inline wfi_bf16_speed wfi_gpu_bf16_speed(void) {
    return WFI_BF16_SLOW;
}

#endif
