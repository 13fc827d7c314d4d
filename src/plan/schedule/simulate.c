/* The cost of a schedule for given times, without a model. */
#include "plan/schedule/timing.h"

#include <math.h>
#include <string.h>
#include <weft/schedule.h>

/* Stages of the request are the schedule's devices; its stages are chunks of them. */
struct wf_schedule_result {
    wf_context *ctx;
    const wfi_schedule *schedule;
    wfi_schedule_request request;
    wfi_stage_times *times;   /* [n_stages] */
    wfi_stage_memory *memory; /* [n_stages] */
    int *device_of;           /* [n_stages] */
    wfi_action_list *lists;   /* [n_devices] */
    wfi_timing timing;
};

const char *wf_schedule_name(int i) {
    for (int k = 0; k < i && k >= 0; k++)
        if (!wfi_schedules[k]) return NULL;
    return i >= 0 && wfi_schedules[i] ? wfi_schedules[i]->name : NULL;
}

/* ---- request ---- */

static wf_status check_counts(wf_context *ctx, const wf_schedule_request *q) {
    if (q->struct_size != sizeof *q || !q->schedule || !q->times)
        return wfi_fail(ctx, WF_INVALID_ARG,
                        "a schedule request needs a schedule and times; begin with "
                        "WF_SCHEDULE_REQUEST_INIT");
    if (q->n_stages < 1 || q->n_stages > WF_SCHEDULE_MAX_STAGES)
        return wfi_fail(ctx, WF_INVALID_ARG, "%d stages; a schedule has 1 to %d", q->n_stages,
                        WF_SCHEDULE_MAX_STAGES);
    int most = WF_SCHEDULE_MAX_CELLS / q->n_stages;
    if (q->n_micro < 1 || q->n_micro > most)
        return wfi_fail(ctx, WF_INVALID_ARG,
                        "%d microbatches; a schedule of %d stage%s has 1 to %d", q->n_micro,
                        q->n_stages, q->n_stages == 1 ? "" : "s", most);
    if (q->n_chunks < 0 || q->n_chunks > most / q->n_micro)
        return wfi_fail(
            ctx, WF_INVALID_ARG,
            "%d chunks per stage; with %d stages and %d microbatches a schedule has 1 to %d",
            q->n_chunks, q->n_stages, q->n_micro, most / q->n_micro);
    if (!(q->weight_held >= 0 && q->weight_held <= 1))
        return wfi_fail(ctx, WF_INVALID_ARG,
                        "the weight gradient keeps %g of a microbatch; it must be from 0 to 1",
                        q->weight_held);
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

static wf_status find_schedule(wf_context *ctx, const wf_schedule_request *q,
                               const wfi_schedule **found_out) {
    *found_out = wfi_schedule_find(q->schedule);
    if (!*found_out)
        return wfi_fail_unknown(ctx, WF_INVALID_ARG, wf_schedule_name, q->schedule,
                                "there is no schedule '%.60s'", q->schedule);
    const char *refuses = q->n_chunks ? wfi_schedule_refuses_chunks(*found_out, q->n_chunks) : NULL;
    if (!refuses) return WF_OK;
    return wfi_fail(
        ctx, WF_INVALID_ARG,
        "%d chunks do not go with schedule %s: %s; interleaved and auto take any number",
        q->n_chunks, q->schedule, refuses);
}

/* ---- one schedule ---- */

static void release(wf_schedule_result *a) {
    wf_context *ctx = a->ctx;
    wfi_schedule_free(ctx, a->lists, wfi_request_n_devices(&a->request));
    wfi_timing_release(&a->timing);
    wfi_free(ctx, a->times);
    wfi_free(ctx, a->memory);
    wfi_free(ctx, a->device_of);
    *a = (wf_schedule_result){.ctx = ctx};
}

/* Each stage of the request is cut into chunks that are alike. */
static wf_status cut_stages(wf_schedule_result *a, const wf_schedule_request *q, int n_chunks) {
    int n = q->n_stages * n_chunks;
    a->times = wfi_alloc(a->ctx, (size_t)n, sizeof *a->times, "a schedule's times");
    a->memory = wfi_alloc(a->ctx, (size_t)n, sizeof *a->memory, "a schedule's times");
    a->device_of = wfi_alloc(a->ctx, (size_t)n, sizeof *a->device_of, "a schedule's times");
    if (!a->times || !a->memory || !a->device_of) return WF_NO_MEMORY;
    for (int s = 0; s < n; s++) {
        int d = a->device_of[s] = wfi_schedule_device_of(a->schedule, q->n_stages, s);
        const wf_stage_times *whole = &q->times[d];
        a->times[s] = (wfi_stage_times){whole->forward_ms / n_chunks, whole->backward_ms / n_chunks,
                                        whole->weight_ms / n_chunks};
        a->memory[s] = (wfi_stage_memory){1.0 / n_chunks, q->weight_held / n_chunks};
    }
    a->request =
        (wfi_schedule_request){.n_stages = n,
                               .n_micro = q->n_micro,
                               .times = a->times,
                               .transfer = q->transfer_ms,
                               .hold = q->max_in_flight ? q->max_in_flight : 2 * q->n_stages - 1,
                               .by_stage_span = q->goal == WF_SCHEDULE_STEP,
                               .n_devices = q->n_stages,
                               .device_of = a->device_of,
                               .memory = a->memory};
    return WF_OK;
}

static wf_status make_one(wf_schedule_result *a, const wfi_schedule *schedule, int n_chunks,
                          const wf_schedule_request *q) {
    a->schedule = schedule;
    WF_TRY(cut_stages(a, q, n_chunks));
    WF_TRY(wfi_timing_init(a->ctx, &a->request, &a->timing));
    WF_TRY(wfi_schedule_make(a->ctx, schedule, &a->request, &a->lists));
    return wfi_timing_run(&a->request, a->lists, &a->timing);
}

/* ---- memory limit ---- */

static int fullest(const wf_schedule_result *a) {
    int device = 0;
    for (int d = 1; d < a->request.n_devices; d++)
        if (a->timing.peak[d] > a->timing.peak[device]) device = d;
    return device;
}

static double peak_of(const wf_schedule_result *a) {
    return a->timing.peak[fullest(a)];
}

/* The names of all schedules that keep the limit; auto always does. */
static wf_status list_fitting(wf_context *ctx, const wf_schedule_request *q, wfi_text *names) {
    for (int i = 0; wfi_schedules[i]; i++) {
        wf_schedule_result other = {.ctx = ctx};
        wf_status status = WF_OK;
        bool fits = wfi_schedules[i]->search != NULL;
        if (!fits) {
            int n_chunks = wfi_schedule_n_chunks(wfi_schedules[i], 0);
            status = make_one(&other, wfi_schedules[i], n_chunks, q);
            fits = status == WF_OK && peak_of(&other) <= q->max_in_flight;
            release(&other);
        }
        WF_TRY(status);
        if (fits) wfi_text_add(names, "%s%s", names->n ? ", " : "", wfi_schedules[i]->name);
    }
    return wfi_text_status(names);
}

static wf_status check_hold(wf_schedule_result *a, const wf_schedule_request *q) {
    if (q->max_in_flight == 0 || peak_of(a) <= q->max_in_flight) return WF_OK;
    wfi_text names = {.ctx = a->ctx};
    wf_status status = list_fitting(a->ctx, q, &names);
    if (status == WF_OK)
        status =
            wfi_fail(a->ctx, WF_DOES_NOT_FIT,
                     "schedule %s needs stage %d to hold %.4g microbatches, but it may hold %d; "
                     "these would fit: %s",
                     a->schedule->name, fullest(a), peak_of(a), q->max_in_flight, names.data);
    wfi_free(a->ctx, names.data);
    return status;
}

/* ---- the result ---- */

/* Shorter, or as short and by the other measure shorter. */
static bool is_shorter(const wf_schedule_result *a, const wf_schedule_result *b) {
    double span = a->timing.longest_span - b->timing.longest_span;
    double makespan = a->timing.makespan - b->timing.makespan;
    double first = a->request.by_stage_span ? span : makespan;
    double least = 1e-9 * b->timing.makespan;
    return first < -least || (first <= least && span + makespan < -least);
}

/* The shortest of auto's candidates that keep the limit. The first always does. */
static wf_status choose(wf_schedule_result *best, const wf_schedule_request *q) {
    WF_TRY(make_one(best, wfi_auto_choices[0].schedule, wfi_auto_choices[0].n_chunks, q));
    for (int k = 1; k < WFI_N_AUTO_CHOICES; k++) {
        const wfi_schedule_choice *choice = &wfi_auto_choices[k];
        wf_schedule_result other = {.ctx = best->ctx};
        if (choice->n_chunks > WF_SCHEDULE_MAX_CELLS / q->n_stages / q->n_micro) break;
        wf_status status = make_one(&other, choice->schedule, choice->n_chunks, q);
        bool fits = status == WF_OK && peak_of(&other) <= best->request.hold;
        if (fits && is_shorter(&other, best)) {
            release(best);
            *best = other;
        } else {
            release(&other);
        }
        WF_TRY(status);
    }
    return WF_OK;
}

wf_status wf_schedule_simulate(wf_context *ctx, const wf_schedule_request *request,
                               wf_schedule_result **result_out) {
    const wfi_schedule *schedule;
    WF_TRY(check_counts(ctx, request));
    WF_TRY(check_times(ctx, request));
    WF_TRY(find_schedule(ctx, request, &schedule));
    wf_schedule_result *result = wfi_alloc(ctx, 1, sizeof *result, "a schedule's result");
    if (!result) return WF_NO_MEMORY;
    result->ctx = ctx;
    bool chooses = schedule == &wfi_schedule_auto && !request->n_chunks;
    int n_chunks = wfi_schedule_n_chunks(schedule, request->n_chunks);
    wf_status status =
        chooses ? choose(result, request) : make_one(result, schedule, n_chunks, request);
    if (status == WF_OK) status = check_hold(result, request);
    if (status == WF_OK)
        *result_out = result;
    else
        wf_schedule_result_destroy(result);
    return status;
}

void wf_schedule_result_destroy(wf_schedule_result *a) {
    if (!a) return;
    release(a);
    wfi_free(a->ctx, a);
}

static double work_of(const wf_schedule_result *a, int device) {
    double work = 0;
    for (int s = 0; s < a->request.n_stages; s++)
        if (a->device_of[s] == device)
            work += a->times[s].forward + a->times[s].backward + a->times[s].weight;
    return a->request.n_micro * work;
}

wf_schedule_summary wf_schedule_result_summary(const wf_schedule_result *a) {
    wf_schedule_summary s = {.step_ms = a->timing.longest_span,
                             .makespan_ms = a->timing.makespan,
                             .schedule = a->schedule->name,
                             .n_chunks = wfi_request_n_chunks(&a->request)};
    double work = 0;
    for (int d = 0; d < a->request.n_devices; d++) work = fmax(work, work_of(a, d));
    /* Sums in another order may differ by rounding; a bubble is not negative. */
    if (s.step_ms > 0) s.bubble = fmax(0, (s.step_ms - work) / s.step_ms);
    return s;
}

wf_schedule_stage wf_schedule_result_stage(const wf_schedule_result *a, int stage) {
    if (stage < 0 || stage >= a->request.n_devices) return (wf_schedule_stage){0};
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
    return (wf_schedule_action){kinds[action->kind], action->stage / a->request.n_devices,
                                action->micro, moment->begin, moment->end};
}
