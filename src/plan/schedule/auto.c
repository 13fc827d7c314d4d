/* auto: searches for the best lists for given times and a limit on what a stage may hold. It
 * is never worse than a fixed schedule that keeps the limit, as those are tried first; small
 * ones are searched to the end. */
#include "plan/schedule/auto.h"

#include <math.h>
#include <string.h>

wf_status wfi_auto_offer(wfi_auto *a) {
    const wfi_timing *t = &a->timing;
    WF_TRY(wfi_timing_run(a->request, a->trial, &a->timing));
    double cost = a->request->by_stage_span ? t->longest_span : t->makespan;
    double tie = a->request->by_stage_span ? t->makespan : t->longest_span;
    if (cost > a->cost || (cost >= a->cost && tie >= a->tie)) return WF_OK;
    for (int s = 0; s < t->n_stages; s++)
        if (t->peak[s] > a->hold) return WF_OK;
    a->cost = cost;
    a->tie = tie;
    for (int s = 0; s < t->n_stages; s++) {
        a->best[s].n = a->trial[s].n;
        memcpy(a->best[s].actions, a->trial[s].actions,
               (size_t)a->trial[s].n * sizeof *a->trial[s].actions);
    }
    return WF_OK;
}

bool wfi_auto_is_done(const wfi_auto *a) {
    return a->cost <= a->bound * (1 + 1e-12);
}

/* ---- a bound ---- */

/* When F of microbatch 0 begins. */
static double first_begin(const wfi_schedule_request *r, int stage) {
    double begin = 0;
    for (int s = 0; s < stage; s++) begin += r->times[s].forward + r->transfer;
    return begin;
}

/* A stage that has all its F, as many B, and only `hold` W left: the last B still has to
 * travel to the first stage, and its W to be done there. */
static double bound_at_end(const wfi_auto *a, int stage) {
    const wfi_schedule_request *r = a->request;
    const wfi_stage_times *times = &r->times[stage];
    double n = r->n_micro;
    double end = first_begin(r, stage) + n * (times->forward + times->backward) +
                 (n - a->hold) * times->weight;
    double most = 0;
    for (int s = stage;; s--) {
        most = fmax(most, end + r->times[s].weight - a->offset[s]);
        if (s == 0) return most;
        end += r->transfer + r->times[s - 1].backward;
    }
}

/* Until the first B comes back, a stage has at most `hold` F to do. */
static double bound_at_begin(const wfi_auto *a, int stage, double round_trip) {
    const wfi_schedule_request *r = a->request;
    const wfi_stage_times *times = &r->times[stage];
    double n = r->n_micro, first = first_begin(r, stage);
    double waits = first + times->forward + round_trip + (n - a->hold) * times->forward;
    double works = first + n * times->forward;
    return fmax(waits, works) + n * (times->backward + times->weight) - a->offset[stage];
}

/* Microbatches 0, hold, 2 hold, ... follow each other: the next F comes after W. */
static double bound_of_chain(const wfi_auto *a, int stage, double round_trip) {
    const wfi_schedule_request *r = a->request;
    const wfi_stage_times *times = &r->times[stage];
    double one = times->forward + round_trip + times->backward + times->weight;
    int n_links = (r->n_micro - 1) / a->hold + 1;
    return first_begin(r, stage) + n_links * one - a->offset[stage];
}

static void find_bound(wfi_auto *a) {
    const wfi_schedule_request *r = a->request;
    double round_trip = 0; /* from the end of F to the begin of B of the same microbatch */
    for (int s = r->n_stages - 1; s >= 0; s--) {
        a->bound = fmax(a->bound, bound_at_begin(a, s, round_trip));
        a->bound = fmax(a->bound, bound_at_end(a, s));
        a->bound = fmax(a->bound, bound_of_chain(a, s, round_trip));
        round_trip += r->times[s].forward + r->times[s].backward + 2 * r->transfer;
    }
}

/* ---- the search ---- */

static wf_status search_all(wfi_auto *a) {
    WF_TRY(wfi_auto_rules(a));
    if (!wfi_auto_is_done(a)) WF_TRY(wfi_auto_greedy(a));
    if (!wfi_auto_is_done(a)) WF_TRY(wfi_auto_improve(a));
    if (!wfi_auto_is_done(a) && wfi_auto_is_small(a->request)) WF_TRY(wfi_auto_exact(a));
    return WF_OK;
}

static wf_status search(wf_context *ctx, const wfi_schedule_request *request,
                        wfi_action_list *lists) {
    static const wfi_schedule empty = {.name = "empty", .help = "", .splits_weight = true};
    wfi_auto a = {.ctx = ctx, .request = request, .best = lists, .cost = INFINITY, .tie = INFINITY};
    a.hold = (int)wfi_min_i64(wfi_max_i64(request->hold, 1), request->n_micro);
    wf_status status = wfi_timing_init(ctx, request, &a.timing);
    if (status == WF_OK) status = wfi_schedule_make(ctx, &empty, request, &a.trial);
    a.offset = wfi_alloc(ctx, (size_t)request->n_stages, sizeof *a.offset, "a schedule");
    if (status == WF_OK && !a.offset) status = WF_NO_MEMORY;
    if (status == WF_OK) {
        for (int s = 0; s < request->n_stages && request->by_stage_span; s++)
            a.offset[s] = first_begin(request, s);
        find_bound(&a);
        status = search_all(&a);
    }
    wfi_free(ctx, a.offset);
    wfi_schedule_free(ctx, a.trial, request->n_stages);
    wfi_timing_release(&a.timing);
    return status;
}

const wfi_schedule wfi_schedule_auto = {.name = "auto",
                                        .help =
                                            "the best lists found for the times given, within hold",
                                        .splits_weight = true,
                                        .search = search};
