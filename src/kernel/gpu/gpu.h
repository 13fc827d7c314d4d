/* Kernels for devices that compile them from text (device/launch.h): one source for all of these,
 * source/ *.cl. The backend of such a device lists these kernels after those of a library. Private.
 */
#pragma once

#include "kernel/backend.h"
#include "kernel/gpu/kernels.h"

/* One of WFI_GPU_KERNELS, which lists the kernels of the source by their names there; CMake reads
 * them from it. */
typedef enum wfi_gpu_entry {
#define WFI_GPU_ENUM(name) WFI_GPU_##name,
    WFI_GPU_KERNELS(WFI_GPU_ENUM)
#undef WFI_GPU_ENUM
} wfi_gpu_entry;

extern const wfi_launch_source wfi_gpu_source;
extern const char wfi_gpu_text[]; /* source/ *.cl, concatenated by CMake */

/* Where a kernel's operands are: a node's inputs from 0 on, its outputs from here on, and its
 * scratch memory. */
#define WFI_GPU_OUT     8
#define WFI_GPU_SCRATCH 15
#define WFI_GPU_NONE    (-1)

/* Groups with a thread for each of n elements. */
static inline int64_t wfi_gpu_groups(int64_t n) {
    return (n + WFI_GROUP_SIZE - 1) / WFI_GROUP_SIZE;
}

/* A launch of a kernel with these operands, IN(0) and OUT(0). */
wfi_kernel_launch wfi_gpu_launch_of(wfi_gpu_entry entry, const void *in, void *out);
/* Launches a kernel with a thread for each of n elements, n[0]. */
wf_status wfi_gpu_launch_elements(wfi_stream_queue *stream, wfi_kernel_launch *launch, int64_t n);

/* ---- parts of a backend, each as in kernel/backend.h ---- */

extern const wfi_kernel_impl wfi_kernel_gpu;
wf_status wfi_gpu_copy(wfi_stream_queue *stream, float *to, const float *from, size_t n);
wf_status wfi_gpu_add(wfi_stream_queue *stream, float *sum, const float *summand, size_t n);
wf_status wfi_gpu_squares(wfi_stream_queue *stream, const float *gradient, size_t n,
                          double *squares_out);
wf_status wfi_gpu_total_norm(wfi_stream_queue *stream, const wfi_squares *squares, int32_t n_units,
                             double *total_out, double *norm_out);
wf_status wfi_gpu_update(wfi_stream_queue *stream, const wfi_update_call *call);
wf_status wfi_gpu_statistics(wfi_stream_queue *stream, const wfi_statistics_call *call);
wf_status wfi_gpu_collective_step(wfi_stream_queue *stream, const wfi_step_memory *memory,
                                  const wfi_reduce_part *part, const wfi_reduce_step *step);

/* A backend's members except its device, implementations and library. */
#define WFI_GPU_BACKEND                                                                            \
    .n_plain = 1, .most_summed = WFI_GPU_OUT, .copy = wfi_gpu_copy, .add = wfi_gpu_add,            \
    .squares = wfi_gpu_squares, .total_norm = wfi_gpu_total_norm, .update = wfi_gpu_update,        \
    .statistics = wfi_gpu_statistics, .collective_step = wfi_gpu_collective_step
