/* auto: searches for the best lists for given times and a limit on the memory of a device. Auto is
 * never worse than a fixed schedule with the same stages that keeps the limit, as those are tried
 * first; small ones are searched to the end. */
#include "plan/schedule/auto.h"

#include <math.h>
#include <string.h>

wf_status wfi_auto_offer(wfi_auto *a) {
    const wfi_timing *t = &a->timing;
    WF_TRY(wfi_timing_run(a->request, a->trial, &a->timing));
    double cost = a->request->by_stage_span ? t->longest_span : t->makespan;
    double tie = a->request->by_stage_span ? t->makespan : t->longest_span;
    if (cost > a->cost || (cost >= a->cost && tie >= a->tie)) return WF_OK;
    for (int d = 0; d < a->n_devices; d++)
        if (!wfi_auto_fits(a, t->peak[d])) return WF_OK;
    a->cost = cost;
    a->tie = tie;
    for (int d = 0; d < a->n_devices; d++) {
        a->best[d].n = a->trial[d].n;
        memcpy(a->best[d].actions, a->trial[d].actions,
               (size_t)a->trial[d].n * sizeof *a->trial[d].actions);
    }
    return WF_OK;
}

bool wfi_auto_is_done(const wfi_auto *a) {
    return a->cost <= a->bound * (1 + 1e-12);
}

/* ---- a bound ---- */

int wfi_auto_most_forward(const wfi_auto *a, int stage) {
    wfi_stage_memory memory = wfi_request_memory_of(a->request, stage);
    double most = floor(a->request->hold / fmax(memory.until_backward, 1e-6) + 1e-6);
    return (int)fmin(fmax(most, 1), a->request->n_micro);
}

int wfi_auto_most_late(const wfi_auto *a, int stage) {
    wfi_stage_memory memory = wfi_request_memory_of(a->request, stage);
    double left = a->request->hold - fmax(memory.until_backward, memory.until_weight);
    double most = 1 + floor(fmax(left, 0) / fmax(memory.until_weight, 1e-6) + 1e-6);
    return (int)fmin(most, a->request->n_micro);
}

/* When F of microbatch 0 begins. */
static double first_begin(const wfi_schedule_request *r, int stage) {
    double begin = 0;
    for (int s = 0; s < stage; s++) begin += r->times[s].forward + r->transfer;
    return begin;
}

/* A stage that has all its F, as many B, and only so many W left as it can hold: the last B still
 * has to travel to the first stage, and its W to be done there. */
static double bound_at_end(const wfi_auto *a, int stage) {
    const wfi_schedule_request *r = a->request;
    const wfi_stage_times *times = &r->times[stage];
    double n = r->n_micro;
    double end = first_begin(r, stage) + n * (times->forward + times->backward) +
                 (n - wfi_auto_most_late(a, stage)) * times->weight;
    double most = 0;
    for (int s = stage;; s--) {
        most = fmax(most, end + r->times[s].weight - a->offset[s]);
        if (s == 0) return most;
        end += r->transfer + r->times[s - 1].backward;
    }
}

/* Until the first B comes back, a stage has only so many F to do. */
static double bound_at_begin(const wfi_auto *a, int stage, double round_trip) {
    const wfi_schedule_request *r = a->request;
    const wfi_stage_times *times = &r->times[stage];
    double n = r->n_micro, first = first_begin(r, stage);
    double left = n - wfi_auto_most_forward(a, stage);
    double waits = first + times->forward + round_trip + left * times->forward;
    double works = first + n * times->forward;
    return fmax(waits, works) + n * (times->backward + times->weight) - a->offset[stage];
}

/* Microbatches 0, n, 2 n, ... follow each other, n being as many as the stage can hold: the next F
 * comes after B, and after W if that gives nothing back. */
static double bound_of_chain(const wfi_auto *a, int stage, double round_trip) {
    const wfi_schedule_request *r = a->request;
    const wfi_stage_times *times = &r->times[stage];
    wfi_stage_memory memory = wfi_request_memory_of(r, stage);
    bool waits = memory.until_weight >= memory.until_backward;
    double one = times->forward + round_trip + times->backward + waits * times->weight;
    int n_links = (r->n_micro - 1) / wfi_auto_most_forward(a, stage) + 1;
    return first_begin(r, stage) + n_links * one + !waits * times->weight - a->offset[stage];
}

static double work_of(const wfi_auto *a, int device) {
    double work = 0;
    for (int k = a->first_own[device]; k < a->first_own[device + 1]; k++) {
        const wfi_stage_times *times = &a->request->times[a->own[k]];
        work += a->request->n_micro * (times->forward + times->backward + times->weight);
    }
    return work;
}

/* With several stages a device, only that it has to work. */
static void find_bound(wfi_auto *a) {
    const wfi_schedule_request *r = a->request;
    double round_trip = 0; /* from the end of F to the begin of B of the same microbatch */
    for (int d = 0; d < a->n_devices; d++)
        a->bound =
            fmax(a->bound, first_begin(r, a->own[a->first_own[d]]) + work_of(a, d) - a->offset[d]);
    for (int s = r->n_stages - 1; s >= 0 && a->n_devices == r->n_stages; s--) {
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
    bool is_small = wfi_auto_is_small(a->request) && a->n_devices == a->request->n_stages;
    if (!wfi_auto_is_done(a) && is_small) WF_TRY(wfi_auto_exact(a));
    return WF_OK;
}

static wf_status allocate(wfi_auto *a) {
    static const wfi_schedule empty = {.name = "empty", .help = "", .splits_weight = true};
    const wfi_schedule_request *r = a->request;
    WF_TRY(wfi_timing_init(a->ctx, r, &a->timing));
    WF_TRY(wfi_schedule_make(a->ctx, &empty, r, &a->trial));
    size_t n = (size_t)a->n_devices;
    a->offset = wfi_alloc(a->ctx, n, sizeof *a->offset, "a schedule");
    a->first_own = wfi_alloc(a->ctx, n + 1, sizeof *a->first_own, "a schedule");
    a->own = wfi_alloc(a->ctx, (size_t)r->n_stages, sizeof *a->own, "a schedule");
    if (!a->offset || !a->first_own || !a->own) return WF_NO_MEMORY;
    for (int d = 0, n_own = 0; d < a->n_devices; d++) {
        for (int s = 0; s < r->n_stages; s++)
            if (wfi_request_device_of(r, s) == d) a->own[n_own++] = s;
        a->first_own[d + 1] = n_own;
    }
    return WF_OK;
}

static wf_status search(wf_context *ctx, const wfi_schedule_request *request,
                        wfi_action_list *lists) {
    wfi_auto a = {.ctx = ctx, .request = request, .best = lists, .cost = INFINITY, .tie = INFINITY};
    a.n_devices = wfi_request_n_devices(request);
    wf_status status = allocate(&a);
    if (status == WF_OK) {
        for (int d = 0; d < a.n_devices && request->by_stage_span; d++)
            a.offset[d] = first_begin(request, a.own[a.first_own[d]]);
        find_bound(&a);
        status = search_all(&a);
    }
    wfi_free(ctx, a.offset);
    wfi_free(ctx, a.first_own);
    wfi_free(ctx, a.own);
    wfi_schedule_free(ctx, a.trial, a.n_devices);
    wfi_timing_release(&a.timing);
    return status;
}

const wfi_schedule_choice wfi_auto_choices[] = {{&wfi_schedule_auto, 1},
                                                {&wfi_schedule_auto, 2},
                                                {&wfi_schedule_interleaved, 2},
                                                {&wfi_schedule_interleaved, 3},
                                                {&wfi_schedule_interleaved, 4}};

const wfi_schedule wfi_schedule_auto = {.name = "auto",
                                        .help =
                                            "the best lists found for the times given, within hold",
                                        .splits_weight = true,
                                        .search = search,
                                        .any_chunks = true,
                                        .is_v = true};
