/* The time of a pipeline: the schedule's own actions, run over stages and microbatches. */
#include "cluster/predict.h"
#include "plan/schedule/timing.h"

/* Rounds of pp microbatches after which a schedule repeats itself: of a long pipeline fewer, as
 * each takes long to simulate. */
static int steady_rounds(int pp) {
    return pp <= 64 ? 5 : 2;
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
static void add_sends(const wfi_schedule_request *r, wfi_stage_times *times, double busy_us) {
    for (int s = 0; s < r->n_stages; s++) {
        if (s + 1 < r->n_stages) times[s].forward += busy_us;
        if (s > 0) times[s].backward += busy_us;
    }
}

static wf_status run_both(wf_context *ctx, const wfi_case *c, wfi_schedule_request *r,
                          wfi_stage_times *times, double busy_us, double hidden_us,
                          wfi_pipeline *to) {
    WF_TRY(run_any(ctx, c, r, &to->compute_us, to->held));
    add_sends(r, times, busy_us);
    r->transfer = hidden_us;
    return run_any(ctx, c, r, &to->makespan_us, to->held);
}

wf_status wfi_pipeline_run(wf_context *ctx, const wfi_case *c, wfi_stage_times *times,
                           double busy_us, double hidden_us, wfi_pipeline *to) {
    int n_stages = c->pp * c->chunks, n = wfi_case_n_micro(c);
    wfi_schedule_request r = {.n_stages = n_stages, .times = times, .hold = 1, .n_devices = c->pp};
    *to = (wfi_pipeline){.held = wfi_alloc(ctx, (size_t)c->pp, sizeof *to->held, "a pipeline")};
    int *device_of = wfi_alloc(ctx, (size_t)n_stages, sizeof *device_of, "a pipeline");
    wf_status status = to->held && device_of ? WF_OK : WF_NO_MEMORY;
    if (status == WF_OK && n_stages == 1) {
        to->held[0] = c->schedule->by_unit ? n : 1;
        to->compute_us = n * (times->forward + times->backward + times->weight);
        to->makespan_us = to->compute_us;
    } else if (status == WF_OK) {
        for (int s = 0; s < n_stages; s++)
            device_of[s] = wfi_schedule_device_of(c->schedule, c->pp, s);
        r.device_of = device_of;
        status = run_both(ctx, c, &r, times, busy_us, hidden_us, to);
    }
    wfi_free(ctx, device_of);
    if (status == WF_OK) return WF_OK;
    wfi_free(ctx, to->held);
    return status;
}
