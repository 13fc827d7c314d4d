/* The CPU's backend: which libraries and loops compute on it. Everything runs to its end on the
 * calling thread, which is the stream's. */
#include "kernel/cpu.h"

#include "base/finite.h"
#include "base/race.h"
#include "kernel/onednn/threads.h"
#include "kernel/update.h"

#include <fenv.h>
#include <string.h>

typedef struct adding {
    float *sum;
    const float *summand;
    size_t n;
} adding;

WFI_LOOP void add_loop(const adding *a) {
    float *restrict sum = a->sum;
    const float *restrict summand = a->summand;
    for (size_t i = 0, n = a->n; i < n; i++) sum[i] += summand[i];
}

WFI_VARIANTS(add, adding, add_loop)

void wfi_cpu_add(wfi_variant variant, float *sum, const float *summand, size_t n) {
    wfi_touches(sum, n * sizeof *sum, true);
    wfi_touches(summand, n * sizeof *summand, false);
    add(variant, &(adding){sum, summand, n});
}

static wf_status cpu_copy(wfi_stream_queue *stream, float *to, const float *from, size_t n) {
    (void)stream;
    if (n) memcpy(to, from, n * sizeof *to);
    return WF_OK;
}

static wf_status cpu_add(wfi_stream_queue *stream, float *sum, const float *summand, size_t n) {
    (void)stream;
    wfi_cpu_add(wfi_best_variant(), sum, summand, n);
    return WF_OK;
}

static wf_status cpu_squares(wfi_stream_queue *stream, const float *gradient, size_t n,
                             double *squares_out) {
    (void)stream;
    wfi_touches(gradient, n * sizeof *gradient, false);
    size_t n_squares = (n + WFI_NORM_BLOCK_ELEMENTS - 1) / WFI_NORM_BLOCK_ELEMENTS;
    wfi_touches(squares_out, n_squares * sizeof *squares_out, true);
    wfi_gradient_squares(wfi_best_variant(), gradient, n, squares_out);
    return WF_OK;
}

/* ---- update ---- */

/* The tree over a unit's sums, then over units, both in fixed order. */
static wf_status cpu_total_norm(wfi_stream_queue *stream, const wfi_squares *squares,
                                int32_t n_units, double *total_out, double *norm_out) {
    (void)stream;
    double total = 0;
    for (int32_t u = 0; u < n_units; u++) {
        wfi_touches(squares[u].data, squares[u].n * sizeof *squares[u].data, false);
        total += wfi_tree_sum(squares[u].data, squares[u].n);
    }
    wfi_touches(total_out, sizeof *total_out, true);
    *total_out = total;
    wfi_report_norm(total, norm_out);
    return WF_OK;
}

static wf_status update_stretch(void *self, const wfi_update *u) {
    wfi_update_result *worst = self;
    wfi_update_result now = wfi_optimizer_update(u->recipe, u->lr, u->step, u->scale, u->param,
                                                 u->gradient, u->state, u->n);
    if (now > *worst) *worst = now;
    return WF_OK;
}

static wf_status cpu_update(wfi_stream_queue *stream, const wfi_update_call *c) {
    (void)stream;
    wfi_touches(c->param, c->n * sizeof *c->param, true);
    wfi_touches(c->gradient, c->n * sizeof *c->gradient, false);
    for (int k = 0; k < WFI_MAX_STATES; k++)
        wfi_touches(c->state[k], c->n * sizeof *c->state[k], true);
    wfi_touches(c->total_norm, c->total_norm ? sizeof *c->total_norm : 0, false);
    float scale = c->total_norm ? wfi_clip_scale(c->recipe->clip_norm, *c->total_norm) : 1;
    wfi_update_result result = WFI_UPDATE_FINITE;
    WF_TRY(wfi_update_groups(c, scale, update_stretch, &result));
    if (result == WFI_UPDATE_FINITE) return WF_OK;
    wfi_not_finite what =
        wfi_find_not_finite(c->gradient, c->n) < c->n
            ? WFI_FINITE_NO_GRADIENT
            : (result == WFI_UPDATE_PARAM ? WFI_FINITE_NO_WEIGHTS : WFI_FINITE_NO_STATE);
    wfi_not_finite_record(c->not_finite, what, c->unit);
    return WF_OK;
}

/* ---- statistics ---- */

/* running = (1 - momentum) running + momentum batch; the variance of the batch is made unbiased
 * first. */
WFI_LOOP void statistics_loop(const wfi_statistics_call *c) {
    float *restrict running_mean = c->running_mean, *restrict running_var = c->running_var;
    const float *restrict mean = c->mean, *restrict var = c->var;
    double m = c->momentum;
    double unbiased = c->n_reduced > 1 ? (double)c->n_reduced / (double)(c->n_reduced - 1) : 1;
    for (size_t i = 0, n = c->n; i < n; i++) {
        running_mean[i] = (float)((1 - m) * running_mean[i] + m * mean[i]);
        running_var[i] = (float)((1 - m) * running_var[i] + m * unbiased * var[i]);
    }
}

WFI_PUBLIC_VARIANTS(wfi_cpu_statistics, wfi_statistics_call, statistics_loop)

static wf_status cpu_statistics(wfi_stream_queue *stream, const wfi_statistics_call *c) {
    (void)stream;
    wfi_touches(c->running_mean, c->n * sizeof *c->running_mean, true);
    wfi_touches(c->running_var, c->n * sizeof *c->running_var, true);
    wfi_touches(c->mean, c->n * sizeof *c->mean, false);
    wfi_touches(c->var, c->n * sizeof *c->var, false);
    wfi_cpu_statistics(wfi_best_variant(), c);
    ++*c->n_batches;
    if (wfi_find_not_finite(c->running_mean, c->n) < c->n ||
        wfi_find_not_finite(c->running_var, c->n) < c->n)
        wfi_not_finite_record(c->not_finite, WFI_FINITE_NO_STATISTICS, c->unit);
    return WF_OK;
}

/* ---- collectives ---- */

static wf_status cpu_collective_step(wfi_stream_queue *stream, const wfi_step_memory *memory,
                                     const wfi_reduce_part *part, const wfi_reduce_step *step) {
    (void)stream;
    if (wfi_reduce_run(memory, part, step)) wfi_stream_fence();
    return WF_OK;
}

/* ---- threads ---- */

static wf_status cpu_thread_enter(wf_context *ctx, int rank, int n_threads, int *n_out) {
    /* Default rounding, no flush to zero: OpenMP's workers inherit it. */
    if (fesetenv(FE_DFL_ENV) != 0)
        return wfi_fail(ctx, WF_DEVICE, "the floating-point mode could not be set");
    return wfi_library_start_threads(ctx, rank, n_threads, n_out);
}

static const wfi_kernel_impl *const implementations[] = {&wfi_kernel_onednn, &wfi_kernel_widened,
                                                         &wfi_kernel_reference, &wfi_kernel_adding};

const wfi_backend wfi_backend_cpu = {
    .device = &wfi_device_cpu,
    .has_layouts = true,
    .implementations = implementations,
    .n_implementations = WFI_COUNT(implementations),
    .n_plain = 3,
    .copy = cpu_copy,
    .add = cpu_add,
    .squares = cpu_squares,
    .total_norm = cpu_total_norm,
    .update = cpu_update,
    .statistics = cpu_statistics,
    .collective_step = cpu_collective_step,
    .thread_enter = cpu_thread_enter,
    .library = wfi_library_text,
    .bf16_speed = wfi_library_bf16_speed,
};
