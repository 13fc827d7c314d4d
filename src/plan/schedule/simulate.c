/* What a schedule costs for given times, without a model. */
#include "plan/schedule/timing.h"

#include <math.h>
#include <string.h>
#include <weft/schedule.h>

struct wf_schedule_result {
    wf_context *ctx;
    wfi_schedule_request request;
    wfi_stage_times *times; /* [n_stages] */
    wfi_action_list *lists; /* [n_stages] */
    wfi_timing timing;
};

const char *wf_schedule_name(int i) {
    for (int k = 0; k < i && k >= 0; k++)
        if (!wfi_schedules[k]) return NULL;
    return i >= 0 && wfi_schedules[i] ? wfi_schedules[i]->name : NULL;
}

/* ---- what is asked ---- */

static wf_status check_counts(wf_context *ctx, const wf_schedule_request *q) {
    if (q->struct_size != sizeof *q || !q->schedule || !q->times)
        return wfi_fail(ctx, WF_INVALID_ARG,
                        "a schedule request needs a schedule and times; begin with "
                        "WF_SCHEDULE_REQUEST_INIT");
    if (q->n_stages < 1 || q->n_stages > WF_SCHEDULE_MAX_STAGES)
        return wfi_fail(ctx, WF_INVALID_ARG, "%d stages; a schedule has 1 to %d", q->n_stages,
                        WF_SCHEDULE_MAX_STAGES);
    if (q->n_micro < 1 || q->n_micro > WF_SCHEDULE_MAX_CELLS / q->n_stages)
        return wfi_fail(ctx, WF_INVALID_ARG,
                        "%d microbatches; a schedule of %d stage%s has 1 to %d", q->n_micro,
                        q->n_stages, q->n_stages == 1 ? "" : "s",
                        WF_SCHEDULE_MAX_CELLS / q->n_stages);
    if (q->max_in_flight < 0)
        return wfi_fail(ctx, WF_INVALID_ARG,
                        "a stage cannot hold %d microbatches; give 1 or more, or 0 for any number",
                        q->max_in_flight);
    return WF_OK;
}

static wf_status check_time(wf_context *ctx, double time, const char *of, int stage) {
    if (time >= 0 && time <= WF_SCHEDULE_MAX_TIME_MS) return WF_OK;
    return wfi_fail(ctx, WF_INVALID_ARG, "%s of stage %d takes %g ms; a time is from 0 to %g", of,
                    stage, time, WF_SCHEDULE_MAX_TIME_MS);
}

static wf_status check_times(wf_context *ctx, const wf_schedule_request *q) {
    for (int s = 0; s < q->n_stages; s++) {
        WF_TRY(check_time(ctx, q->times[s].forward_ms, "forward", s));
        WF_TRY(check_time(ctx, q->times[s].backward_ms, "backward", s));
        WF_TRY(check_time(ctx, q->times[s].weight_ms, "the weight gradient", s));
    }
    if (q->transfer_ms >= 0 && q->transfer_ms <= WF_SCHEDULE_MAX_TIME_MS) return WF_OK;
    return wfi_fail(ctx, WF_INVALID_ARG, "a transfer takes %g ms; a time is from 0 to %g",
                    q->transfer_ms, WF_SCHEDULE_MAX_TIME_MS);
}

static wf_status find_schedule(wf_context *ctx, const char *name, const wfi_schedule **found_out) {
    *found_out = wfi_schedule_find(name);
    if (*found_out) return WF_OK;
    return wfi_fail_unknown(ctx, WF_INVALID_ARG, wf_schedule_name, "there is no schedule '%.60s'",
                            name);
}

/* ---- what fits ---- */

static int fullest(const wfi_timing *t) {
    int stage = 0;
    for (int s = 1; s < t->n_stages; s++)
        if (t->peak[s] > t->peak[stage]) stage = s;
    return stage;
}

/* The names of all schedules that keep the limit; auto always does. */
static wf_status list_fitting(wf_schedule_result *a, int hold, wfi_text *names) {
    for (int i = 0; wfi_schedules[i]; i++) {
        bool fits = wfi_schedules[i]->search != NULL;
        if (!fits) {
            wfi_schedule_free(a->ctx, a->lists, a->request.n_stages);
            a->lists = NULL;
            WF_TRY(wfi_schedule_make(a->ctx, wfi_schedules[i], &a->request, &a->lists));
            WF_TRY(wfi_timing_run(&a->request, a->lists, &a->timing));
            fits = a->timing.peak[fullest(&a->timing)] <= hold;
        }
        if (fits) wfi_text_add(names, "%s%s", names->n ? ", " : "", wfi_schedules[i]->name);
    }
    return wfi_text_status(names);
}

static wf_status check_hold(wf_schedule_result *a, const wfi_schedule *schedule, int hold) {
    int stage = fullest(&a->timing), peak = a->timing.peak[stage];
    if (hold == 0 || peak <= hold) return WF_OK;
    wfi_text names;
    wfi_text_init(&names, a->ctx);
    wf_status status = list_fitting(a, hold, &names);
    if (status == WF_OK)
        status = wfi_fail(a->ctx, WF_DOES_NOT_FIT,
                          "schedule %s needs stage %d to hold %d microbatches, but it may hold %d; "
                          "these would fit: %s",
                          schedule->name, stage, peak, hold, names.data);
    wfi_free(a->ctx, names.data);
    return status;
}

/* ---- the result ---- */

static wf_status make_result(wf_schedule_result *a, const wfi_schedule *schedule,
                             const wf_schedule_request *q) {
    a->times = wfi_alloc(a->ctx, (size_t)q->n_stages, sizeof *a->times, "a schedule's times");
    if (!a->times) return WF_NO_MEMORY;
    for (int s = 0; s < q->n_stages; s++)
        a->times[s] = (wfi_stage_times){q->times[s].forward_ms, q->times[s].backward_ms,
                                        q->times[s].weight_ms};
    a->request =
        (wfi_schedule_request){.n_stages = q->n_stages,
                               .n_micro = q->n_micro,
                               .times = a->times,
                               .transfer = q->transfer_ms,
                               .hold = q->max_in_flight ? q->max_in_flight : 2 * q->n_stages - 1,
                               .by_stage_span = q->goal == WF_SCHEDULE_STEP};
    WF_TRY(wfi_timing_init(a->ctx, &a->request, &a->timing));
    WF_TRY(wfi_schedule_make(a->ctx, schedule, &a->request, &a->lists));
    WF_TRY(wfi_timing_run(&a->request, a->lists, &a->timing));
    return check_hold(a, schedule, q->max_in_flight);
}

wf_status wf_schedule_simulate(wf_context *ctx, const wf_schedule_request *request,
                               wf_schedule_result **result_out) {
    const wfi_schedule *schedule;
    WF_TRY(check_counts(ctx, request));
    WF_TRY(check_times(ctx, request));
    WF_TRY(find_schedule(ctx, request->schedule, &schedule));
    wf_schedule_result *result = wfi_alloc(ctx, 1, sizeof *result, "a schedule's result");
    if (!result) return WF_NO_MEMORY;
    result->ctx = ctx;
    wf_status status = make_result(result, schedule, request);
    if (status == WF_OK)
        *result_out = result;
    else
        wf_schedule_result_destroy(result);
    return status;
}

void wf_schedule_result_destroy(wf_schedule_result *a) {
    if (!a) return;
    wfi_schedule_free(a->ctx, a->lists, a->request.n_stages);
    wfi_timing_release(&a->timing);
    wfi_free(a->ctx, a->times);
    wfi_free(a->ctx, a);
}

static double work_of(const wf_schedule_result *a, int stage) {
    const wfi_stage_times *times = &a->times[stage];
    return a->request.n_micro * (times->forward + times->backward + times->weight);
}

wf_schedule_summary wf_schedule_result_summary(const wf_schedule_result *a) {
    wf_schedule_summary s = {a->timing.longest_span, a->timing.makespan, 0};
    double work = 0;
    for (int i = 0; i < a->request.n_stages; i++) work = fmax(work, work_of(a, i));
    /* Sums in another order may differ by rounding; a bubble is not negative. */
    if (s.step_ms > 0) s.bubble = fmax(0, (s.step_ms - work) / s.step_ms);
    return s;
}

wf_schedule_stage wf_schedule_result_stage(const wf_schedule_result *a, int stage) {
    if (stage < 0 || stage >= a->request.n_stages) return (wf_schedule_stage){0};
    return (wf_schedule_stage){a->timing.span[stage], work_of(a, stage), a->timing.peak[stage],
                               a->lists[stage].n};
}

wf_schedule_action wf_schedule_result_action(const wf_schedule_result *a, int stage, int i) {
    static const wf_span_kind kinds[] = {
        [WFI_ACTION_F] = WF_SPAN_FORWARD,
        [WFI_ACTION_B] = WF_SPAN_BACKWARD,
        [WFI_ACTION_W] = WF_SPAN_WEIGHT,
        [WFI_ACTION_BW] = WF_SPAN_BACKWARD_WEIGHT,
    };
    if (i < 0 || i >= wf_schedule_result_stage(a, stage).n_actions)
        return (wf_schedule_action){.micro = -1};
    const wfi_action *action = &a->lists[stage].actions[i];
    const wfi_moment *moment = wfi_timing_moment(&a->timing, stage, i);
    return (wf_schedule_action){kinds[action->kind], action->micro, moment->begin, moment->end};
}
