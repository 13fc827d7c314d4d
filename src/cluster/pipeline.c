/* The time of a pipeline: the schedule's own actions, run over stages and microbatches. */
#include "cluster/predict.h"
#include "plan/schedule/timing.h"

/* Rounds of pp microbatches after which a schedule repeats itself: of a long pipeline fewer, as
 * each takes long to simulate. */
static int steady_rounds(int pp) {
    return pp <= 32 ? 5 : 2;
}

static wf_status run(wf_context *ctx, const wfi_case *c, const wfi_schedule_request *r,
                     double *makespan_out, double *held) {
    wfi_action_list *lists = NULL;
    wfi_timing timing = {0};
    wf_status status = wfi_timing_init(ctx, r, &timing);
    if (status == WF_OK) status = wfi_schedule_make(ctx, c->schedule, r, &lists);
    if (status == WF_OK) status = wfi_timing_run(r, lists, &timing);
    if (status == WF_OK) *makespan_out = timing.makespan;
    for (int d = 0; d < c->pp && status == WF_OK; d++) held[d] = timing.peak[d];
    wfi_schedule_free(ctx, lists, c->pp);
    wfi_timing_release(&timing);
    return status;
}

/* A schedule that holds all of some microbatches holds all of more. */
static void extrapolate_held(const wfi_case *c, int n_short, int n_long, double *held) {
    for (int d = 0; d < c->pp; d++)
        if (held[d] >= n_short - 1e-6) held[d] = n_long;
}

/* The time of n_micro microbatches, from that of two smaller numbers. */
static wf_status run_any(wf_context *ctx, const wfi_case *c, wfi_schedule_request *r,
                         double *makespan_out, double *held) {
    int n = wfi_case_n_micro(c), few = steady_rounds(c->pp) * c->pp + n % c->pp;
    double shorter, longer;
    r->n_micro = n;
    if (n <= few + c->pp) return run(ctx, c, r, makespan_out, held);
    r->n_micro = few;
    WF_TRY(run(ctx, c, r, &shorter, held));
    r->n_micro = few + c->pp;
    WF_TRY(run(ctx, c, r, &longer, held));
    extrapolate_held(c, few + c->pp, n, held);
    *makespan_out = longer + (longer - shorter) / c->pp * (n - few - c->pp);
    return WF_OK;
}

/* A stage sends to the next one after its forward, and to the one before after its backward. */
static void copy_with_sends(const wfi_schedule_request *r, double busy_us, wfi_stage_times *to) {
    for (int s = 0; s < r->n_stages; s++) {
        to[s] = r->times[s];
        if (s + 1 < r->n_stages) to[s].forward += busy_us;
        if (s > 0) to[s].backward += busy_us;
    }
}

/* The times and the table of the request are one block, r->times. */
static wf_status describe(wf_context *ctx, const wfi_case *c, const wfi_stage_times *times,
                          double busy_us, double hidden_us, wfi_schedule_request *r) {
    int n = c->pp * c->chunks;
    wfi_stage_times *own = wfi_alloc(ctx, (size_t)n, sizeof *own + sizeof(int), "a pipeline");
    *r = (wfi_schedule_request){
        .n_stages = n, .times = times, .hold = 1, .n_devices = c->pp, .transfer = hidden_us};
    if (!own) return WF_NO_MEMORY;
    int *device_of = (int *)(own + n);
    for (int s = 0; s < n; s++) device_of[s] = wfi_schedule_device_of(c->schedule, c->pp, s);
    copy_with_sends(r, busy_us, own);
    r->times = own;
    r->device_of = device_of;
    return WF_OK;
}

/* ---- bounds ---- */

/* Of a pattern that repeats for each microbatch: `down` and `up` periods from F to B of a device's
 * first and second stage. */
static double held_by_v(int n, int pp, double down, double up) {
    return n < 2 * pp ? 0.5 : (ceil(down / WFI_V_PERIOD) + floor(up / WFI_V_PERIOD)) / 2;
}

/* Most schedules run some forwards before the first backward. */
static double least_held(const wfi_case *c, int d) {
    const wfi_schedule *s = c->schedule;
    int n = wfi_case_n_micro(c), pp = c->pp, ahead = pp - d, v = c->chunks;
    if (s == &wfi_schedule_1f1b || s == &wfi_schedule_zb1) return fmin(n, ahead);
    if (s == &wfi_schedule_zb2) return fmin(n, 2 * ahead - 1);
    if (s == &wfi_schedule_gpipe) return n;
    if (s == &wfi_schedule_interleaved) return fmin(n, ((v - 1) * fmin(n, pp) + 2 * ahead - 1) / v);
    if (s == &wfi_schedule_zbv) return (fmin(n, pp + ahead - 1) + fmin(n, d + 1)) / 2;
    if (s == &wfi_schedule_vhalf) return held_by_v(n, pp, 6 * pp - 2 - 3 * d, 3 * d + 1);
    if (s == &wfi_schedule_vmin) return held_by_v(n, pp, 4 * pp - 1 - 2 * d, 2 * d + 1);
    return 1.0 / v;
}

/* A simulation rounds parts of microbatches to WFI_HELD_UNITS. */
void wfi_pipeline_least_held(const wfi_case *c, double *held) {
    for (int d = 0; d < c->pp; d++) held[d] = (1 - 10 / WFI_HELD_UNITS) * least_held(c, d);
}

/* A device begins when the first microbatch has come through the stages before its first, and the
 * last one's gradients go back through these after its last backward. Naively, one works at a time.
 */
double wfi_pipeline_least_us(const wfi_case *c, const wfi_stage_times *times, double busy_us,
                             double transfer_us) {
    double most = 0, before = 0, after = 0, n = wfi_case_n_micro(c), sum = 0;
    int last = c->pp * c->chunks - 1;
    bool splits = c->schedule->splits_weight;
    for (int d = 0; d < c->pp; d++) {
        double work = 0, weight = 0;
        for (int k = 0; k < c->chunks; k++) {
            int s = wfi_case_stage(c, d, k);
            work += times[s].forward + times[s].backward + busy_us * ((s < last) + (s > 0));
            weight += times[s].weight;
        }
        double ends = before + n * (work + weight) + (splits ? 0 : after);
        most = fmax(most, fmax(ends, before + n * work + after));
        sum += work + weight;
        before += times[d].forward + transfer_us;
        after += times[d].backward + (splits ? 0 : times[d].weight) + (d ? transfer_us : 0);
    }
    return c->schedule == &wfi_schedule_naive ? n * sum : most;
}

/* ---- the whole ---- */

static double alone_us(const wfi_case *c, const wfi_stage_times *times) {
    return wfi_case_n_micro(c) * (times->forward + times->backward + times->weight);
}

/* Where microbatches of the steady phase differ, the bound corrects the time found from a few. */
static wf_status simulate(wf_context *ctx, const wfi_case *c, const wfi_stage_times *times,
                          double busy_us, double hidden_us, double *makespan_out, double *held) {
    wfi_schedule_request r;
    WF_TRY(describe(ctx, c, times, busy_us, hidden_us, &r));
    wf_status status = run_any(ctx, c, &r, makespan_out, held);
    wfi_free(ctx, (void *)(uintptr_t)r.times);
    double least = wfi_pipeline_least_us(c, times, busy_us, busy_us + hidden_us);
    if (status == WF_OK) *makespan_out = fmax(*makespan_out, least);
    return status;
}

wf_status wfi_pipeline_run(wf_context *ctx, const wfi_case *c, const wfi_stage_times *times,
                           double busy_us, double hidden_us, wfi_pipeline *to) {
    *to = (wfi_pipeline){.held = wfi_alloc(ctx, (size_t)c->pp, sizeof *to->held, "a pipeline")};
    if (!to->held) return WF_NO_MEMORY;
    if (c->pp * c->chunks == 1) {
        to->held[0] = c->schedule->by_unit ? wfi_case_n_micro(c) : 1;
        to->makespan_us = alone_us(c, times);
        return WF_OK;
    }
    wf_status status = simulate(ctx, c, times, busy_us, hidden_us, &to->makespan_us, to->held);
    if (status != WF_OK) wfi_free(ctx, to->held);
    return status;
}

wf_status wfi_pipeline_run_compute(wf_context *ctx, const wfi_case *c, const wfi_stage_times *times,
                                   wfi_pipeline *to) {
    to->compute_us = alone_us(c, times);
    if (c->pp * c->chunks == 1) return WF_OK;
    return simulate(ctx, c, times, 0, 0, &to->compute_us, to->held);
}
