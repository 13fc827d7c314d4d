/* Backends: all kernels of a kind of device. Private.
 *
 * Only kernels touch device memory. An operation and a kind of device choose a kernel, which runs
 * on a stream. Nodes of a graph use the backend's list of implementations; other operations use the
 * functions below. A backend is registered in kernel.c, and nowhere else.
 */
#pragma once

#include "comm/runtime/step.h"
#include "kernel/kernel.h"
#include "optimizer/optimizer.h"

/* Sums of squares of a gradient (optimizer.h) in device memory. */
typedef struct wfi_squares {
    const double *data; /* NULL: the unit has no parameters */
    size_t n;
} wfi_squares;

/* The optimizer on n elements of a unit: any stretch of it. */
typedef struct wfi_update_call {
    const wf_recipe *recipe;
    double lr;
    int64_t step; /* from 0 */
    float *param;
    const float *gradient;
    float *state[WFI_MAX_STATES];
    size_t n;
    size_t begin;                  /* bytes of the unit's flat storage before `param` */
    const wfi_param_group *groups; /* the unit's; the last ends at or after the updated part */
    /* The result of `total_norm`, in device memory: gradients are clipped to the recipe's norm.
     * NULL: no clipping. */
    const double *total_norm;
    /* The unit's non-finite tensors are recorded here, in host memory (base/finite.h). */
    int64_t *not_finite;
    int32_t unit;
} wfi_update_call;

/* One microbatch's statistics [n] into the running ones. */
typedef struct wfi_statistics_call {
    float *running_mean, *running_var;
    int64_t *n_batches;
    const float *mean, *var; /* of the microbatch; the variance is biased */
    size_t n;
    int64_t n_reduced; /* elements behind each mean */
    double momentum;
    int64_t *not_finite; /* as above */
    int32_t unit;
} wfi_statistics_call;

/* A task of the stream calls these functions, as it calls wfi_kernel_run. Their work completes
 * before the next task of the stream begins. */
typedef struct wfi_backend {
    const wfi_device_class *device;
    const wfi_kernel_impl *const *implementations; /* in the order in which they are asked */
    int n_implementations;
    int n_plain;      /* the last ones, which use no library */
    bool has_layouts; /* images may be C16 */
    bool has_tf32;    /* wfi_kernel_options.multiplies_tf32 */
    int most_summed;  /* ranks that a step of a collective adds at once; 0: any number */

    /* to = from; sum += summand: n elements, which do not overlap. */
    wf_status (*copy)(wfi_stream_queue *stream, float *to, const float *from, size_t n);
    wf_status (*add)(wfi_stream_queue *stream, float *sum, const float *summand, size_t n);
    /* A sum for each WFI_NORM_BLOCK_ELEMENTS elements of `gradient`: a stretch that begins at a
     * multiple of them has the sums that it has in the whole. */
    wf_status (*squares)(wfi_stream_queue *stream, const float *gradient, size_t n,
                         double *squares_out);
    /* The square of the global norm: the sums of all units in their order, on whichever ranks they
     * are. The norm itself goes to norm_out, in host memory. */
    wf_status (*total_norm)(wfi_stream_queue *stream, const wfi_squares *squares, int32_t n_units,
                            double *total_out, double *norm_out);
    wf_status (*update)(wfi_stream_queue *stream, const wfi_update_call *call);
    wf_status (*statistics)(wfi_stream_queue *stream, const wfi_statistics_call *call);
    /* A step of a collective (comm/runtime/step.h). */
    wf_status (*collective_step)(wfi_stream_queue *stream, const wfi_step_memory *memory,
                                 const wfi_reduce_part *part, const wfi_reduce_step *step);

    /* To be called on a thread of rank `rank` before it prepares or runs kernels: sets the
     * floating-point mode, starts the library's threads and counts those that come. Errors:
     * UNSUPPORTED, if they are fewer than `n_threads`. NULL: there is nothing to start. */
    wf_status (*thread_enter)(wf_context *ctx, int rank, int n_threads, int *n_out);
    /* The kernels' libraries for reports, as "oneDNN 2.6.3 (avx512_core)". The text lives as long
     * as ctx. */
    const char *(*library)(wf_context *ctx);
    wfi_bf16_speed (*bf16_speed)(void); /* NULL: slow */
} wfi_backend;

wf_status wfi_backend_enter(const wfi_backend *backend, wf_context *ctx, int rank, int n_threads,
                            int *n_out);
wfi_bf16_speed wfi_backend_bf16_speed(const wfi_backend *backend);

/* NULL: there are no kernels for that kind. */
const wfi_backend *wfi_backend_of(const wfi_device_class *device);

/* Fills a kernel of the backend in its options that adds a plain gradient to its accumulator, or,
 * without `add`, overwrites that. */
wf_status wfi_accumulate_plain(wfi_kernel *kernel, const wf_shape *shape, bool add);

extern const wfi_backend wfi_backend_cpu, wfi_backend_opencl, wfi_backend_cuda;
