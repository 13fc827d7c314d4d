#include "plan/schedule/timing.h"

#include <math.h>
#include <string.h>

/* How far a device is. */
struct wfi_clock {
    double free, held;
    int place;
    bool is_ready; /* stands on the stack */
};

static const char *const kind_names[] = {"F", "B", "W", "BW"};

wf_status wfi_timing_init(wf_context *ctx, const wfi_schedule_request *r, wfi_timing *t) {
    *t = (wfi_timing){.pool.ctx = ctx,
                      .n_stages = r->n_stages,
                      .n_devices = wfi_request_n_devices(r),
                      .n_micro = r->n_micro};
    const char *what = "a schedule's times";
    size_t devices = (size_t)t->n_devices, cells = (size_t)r->n_stages * (size_t)r->n_micro;
    t->moments = wfi_pool_array(&t->pool, 3 * cells, sizeof *t->moments, what);
    t->first = wfi_pool_array(&t->pool, devices, sizeof *t->first, what);
    t->span = wfi_pool_array(&t->pool, devices, sizeof *t->span, what);
    t->peak = wfi_pool_array(&t->pool, devices, sizeof *t->peak, what);
    t->clocks = wfi_pool_array(&t->pool, devices, sizeof *t->clocks, what);
    t->forward_end = wfi_pool_array(&t->pool, cells, sizeof *t->forward_end, what);
    t->backward_end = wfi_pool_array(&t->pool, cells, sizeof *t->backward_end, what);
    t->has_weight = wfi_pool_array(&t->pool, cells, sizeof *t->has_weight, what);
    t->ready = wfi_pool_array(&t->pool, devices, sizeof *t->ready, what);
    if (t->pool.failed) {
        wfi_timing_release(t);
        return WF_NO_MEMORY;
    }
    for (int d = 0; d + 1 < t->n_devices; d++) {
        t->first[d + 1] = t->first[d];
        for (int s = 0; s < r->n_stages; s++)
            t->first[d + 1] += wfi_request_device_of(r, s) == d ? 3 * r->n_micro : 0;
    }
    return WF_OK;
}

void wfi_timing_release(wfi_timing *t) {
    wfi_pool_release(&t->pool);
}

static size_t cell(const wfi_timing *t, int stage, int micro) {
    return (size_t)stage * (size_t)t->n_micro + (size_t)micro;
}

/* ---- rules for one list alone ---- */

static wf_status before(const wfi_timing *t, const wfi_action *a, int stage, const char *first) {
    return wfi_fail(t->pool.ctx, WF_INVALID_ARG,
                    "stage %d does %s of microbatch %d before its %s; put %s first", stage,
                    kind_names[a->kind], a->micro, first, first);
}

static wf_status check_action(const wfi_schedule_request *request, const wfi_timing *t,
                              const wfi_action *a, int device) {
    int stage = a->stage;
    if (stage < 0 || stage >= t->n_stages || wfi_request_device_of(request, stage) != device ||
        a->micro < 0 || a->micro >= t->n_micro || a->kind < WFI_ACTION_F || a->kind > WFI_ACTION_BW)
        return wfi_fail(t->pool.ctx, WF_INVALID_ARG,
                        "the list of stage %d has an action of stage %d, microbatch %d; it may "
                        "have its own stage's and microbatches 0 to %d",
                        device, stage, a->micro, t->n_micro - 1);
    size_t c = cell(t, stage, a->micro);
    bool forward = t->forward_end[c] >= 0, backward = t->backward_end[c] >= 0;
    if (a->kind == WFI_ACTION_F ? forward : a->kind == WFI_ACTION_W ? t->has_weight[c] : backward)
        return wfi_fail(t->pool.ctx, WF_INVALID_ARG,
                        "stage %d does %s of microbatch %d twice; leave one out", stage,
                        kind_names[a->kind], a->micro);
    if (a->kind == WFI_ACTION_W && !backward) return before(t, a, stage, "B");
    if (a->kind != WFI_ACTION_F && !forward) return before(t, a, stage, "F");
    return WF_OK;
}

static wf_status check_complete(const wfi_timing *t, int stage) {
    for (int m = 0; m < t->n_micro; m++) {
        size_t c = cell(t, stage, m);
        const char *missing = t->forward_end[c] < 0    ? "F"
                              : t->backward_end[c] < 0 ? "B"
                              : !t->has_weight[c]      ? "W"
                                                       : NULL;
        if (missing)
            return wfi_fail(t->pool.ctx, WF_INVALID_ARG, "stage %d never does %s of microbatch %d",
                            stage, missing, m);
    }
    return WF_OK;
}

/* ---- time ---- */

/* The stage with the action that this action waits for; outside the pipeline: none. */
static int awaited_stage(const wfi_action *a) {
    return a->kind == WFI_ACTION_F ? a->stage - 1 : a->kind == WFI_ACTION_W ? -1 : a->stage + 1;
}

/* When the value that the action needs from a neighbour arrives; negative: not yet known. */
static double arrival(const wfi_schedule_request *request, const wfi_timing *t,
                      const wfi_action *a) {
    int from = awaited_stage(a);
    if (from < 0 || from == t->n_stages) return 0;
    const double *end = a->kind == WFI_ACTION_F ? t->forward_end : t->backward_end;
    double sent = end[cell(t, from, a->micro)];
    bool moves = wfi_request_device_of(request, from) != wfi_request_device_of(request, a->stage);
    return sent < 0 || !moves ? sent : sent + request->transfer;
}

static void wake(const wfi_schedule_request *request, wfi_timing *t, int stage, int *n_ready) {
    if (stage < 0 || stage == t->n_stages) return;
    int device = wfi_request_device_of(request, stage);
    if (t->clocks[device].is_ready) return;
    t->clocks[device].is_ready = true;
    t->ready[(*n_ready)++] = device;
}

static void perform(const wfi_schedule_request *request, wfi_timing *t, const wfi_action *a,
                    double begin) {
    int device = wfi_request_device_of(request, a->stage);
    struct wfi_clock *clock = &t->clocks[device];
    const wfi_stage_times *times = &request->times[a->stage];
    wfi_stage_memory memory = wfi_request_memory_of(request, a->stage);
    size_t c = cell(t, a->stage, a->micro);
    double end = begin;
    if (a->kind == WFI_ACTION_F) {
        t->forward_end[c] = end += times->forward;
        clock->held += memory.until_backward;
    }
    if (a->kind == WFI_ACTION_B || a->kind == WFI_ACTION_BW) {
        end += a->kind == WFI_ACTION_B ? times->backward : times->backward + times->weight;
        t->backward_end[c] = end;
        clock->held += memory.until_weight - memory.until_backward;
    }
    if (a->kind == WFI_ACTION_W) end += times->weight;
    if (clock->held > t->peak[device] && a->kind != WFI_ACTION_BW) t->peak[device] = clock->held;
    t->moments[t->first[device] + clock->place++] = (wfi_moment){begin, end, clock->held};
    if (a->kind == WFI_ACTION_W || a->kind == WFI_ACTION_BW) {
        t->has_weight[c] = true;
        clock->held -= memory.until_weight;
    }
    clock->free = end;
}

/* Runs a device until it waits or is done. */
static wf_status run_device(const wfi_schedule_request *request, const wfi_action_list *list,
                            int device, wfi_timing *t, int *n_ready) {
    struct wfi_clock *clock = &t->clocks[device];
    while (clock->place < list->n) {
        const wfi_action *a = &list->actions[clock->place];
        WF_TRY(check_action(request, t, a, device));
        double there = arrival(request, t, a);
        if (there < 0) return WF_OK;
        perform(request, t, a, there > clock->free ? there : clock->free);
        if (a->kind == WFI_ACTION_F) wake(request, t, a->stage + 1, n_ready);
        if (a->kind == WFI_ACTION_B || a->kind == WFI_ACTION_BW)
            wake(request, t, a->stage - 1, n_ready);
    }
    return WF_OK;
}

static wf_status deadlock(const wfi_timing *t, const wfi_action *a, const char *why) {
    return wfi_fail(t->pool.ctx, WF_INVALID_ARG,
                    "deadlock: stage %d waits with %s of microbatch %d for stage %d, which %s",
                    a->stage, kind_names[a->kind], a->micro, awaited_stage(a), why);
}

/* Names a stage that waits for one that has ended, if there is any: that is where it began. */
static wf_status check_ended(const wfi_schedule_request *request, const wfi_action_list *lists,
                             const wfi_timing *t) {
    const wfi_action *waiting = NULL;
    for (int d = 0; d < t->n_devices; d++) {
        if (t->clocks[d].place == lists[d].n) continue;
        const wfi_action *a = &lists[d].actions[t->clocks[d].place];
        int from = wfi_request_device_of(request, awaited_stage(a));
        if (t->clocks[from].place == lists[from].n) return deadlock(t, a, "ends without it");
        waiting = a;
    }
    return waiting ? deadlock(t, waiting, "waits too") : WF_OK;
}

static wf_status summarize(const wfi_schedule_request *request, const wfi_action_list *lists,
                           wfi_timing *t) {
    WF_TRY(check_ended(request, lists, t));
    for (int s = 0; s < t->n_stages; s++) WF_TRY(check_complete(t, s));
    t->longest_span = t->makespan = 0;
    for (int d = 0; d < t->n_devices; d++) {
        t->span[d] = t->clocks[d].free - wfi_timing_moment(t, d, 0)->begin;
        if (t->span[d] > t->longest_span) t->longest_span = t->span[d];
        t->peak[d] = rint(t->peak[d] * WFI_HELD_UNITS) / WFI_HELD_UNITS;
        if (t->clocks[d].free > t->makespan) t->makespan = t->clocks[d].free;
    }
    return WF_OK;
}

wf_status wfi_timing_run(const wfi_schedule_request *request, const wfi_action_list *lists,
                         wfi_timing *t) {
    size_t cells = (size_t)t->n_stages * (size_t)t->n_micro;
    int n_ready = 0;
    memset(t->clocks, 0, (size_t)t->n_devices * sizeof *t->clocks);
    memset(t->peak, 0, (size_t)t->n_devices * sizeof *t->peak);
    memset(t->has_weight, 0, cells * sizeof *t->has_weight);
    for (size_t c = 0; c < cells; c++) t->forward_end[c] = t->backward_end[c] = -1;
    for (int s = t->n_stages - 1; s >= 0; s--) wake(request, t, s, &n_ready);
    while (n_ready) {
        int device = t->ready[--n_ready];
        t->clocks[device].is_ready = false;
        WF_TRY(run_device(request, &lists[device], device, t, &n_ready));
    }
    return summarize(request, lists, t);
}
