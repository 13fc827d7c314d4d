/* Schedules without a model: what a pipeline schedule costs for given times of its stages. A stage
 * is all that a rank has of the model; some schedules cut it into chunks. All times are in
 * milliseconds, of one microbatch on one stage; microbatches and stages count from 0.
 *
 *     wf_stage_times times[4] = ...;
 *     wf_schedule_request request = WF_SCHEDULE_REQUEST_INIT;
 *     wf_schedule_result *result;
 *     request.schedule = "zb1", request.n_stages = 4, request.n_micro = 8;
 *     request.times = times;
 *     if (wf_schedule_simulate(ctx, &request, &result) == WF_OK) ...
 *     wf_schedule_result_destroy(result);
 */
#ifndef WEFT_SCHEDULE_H
#define WEFT_SCHEDULE_H

#include <weft/timeline.h>

/* Bounds of a request. */
#define WF_SCHEDULE_MAX_STAGES  4096
#define WF_SCHEDULE_MAX_CELLS   1000000 /* stages times chunks times microbatches */
#define WF_SCHEDULE_MAX_TIME_MS 1e9

typedef struct wf_stage_times {
    double forward_ms;
    double backward_ms; /* gradient of what goes in */
    double weight_ms;   /* gradient of the weights; both at once take backward_ms + weight_ms */
} wf_stage_times;

/* What `auto` makes small. */
typedef enum wf_schedule_goal {
    WF_SCHEDULE_STEP,    /* the longest time of any one stage, as where steps overlap */
    WF_SCHEDULE_MAKESPAN /* from the first begin to the last end */
} wf_schedule_goal;

typedef struct wf_schedule_request {
    size_t struct_size;   /* set by WF_SCHEDULE_REQUEST_INIT */
    const char *schedule; /* one of those that wf_schedule_name gives */
    int n_stages, n_micro;
    const wf_stage_times *times; /* [n_stages] */
    double transfer_ms;          /* from a stage to its neighbour; takes no compute */
    int max_in_flight; /* microbatches that a stage may hold; 0: any number (auto: 2 n_stages - 1)
                        */
    wf_schedule_goal goal;
    int n_chunks; /* into which each stage is cut, where the schedule leaves it open; they take
                   * equally long. 0: as the schedule has it, and auto chooses */
    double weight_held; /* of the memory of a microbatch, the part that the weight gradient needs,
                         * from the end of backward on: 0 to 1 */
} wf_schedule_request;

#define WF_SCHEDULE_REQUEST_INIT                                                                   \
    { sizeof(wf_schedule_request), "1f1b", 1, 1, 0, 0, 0, WF_SCHEDULE_STEP, 0, 1 }

typedef struct wf_schedule_result wf_schedule_result;

typedef struct wf_schedule_summary {
    double step_ms;       /* longest span of a stage */
    double makespan_ms;   /* from the first begin to the last end of all stages */
    double bubble;        /* part of step_ms that the stage with most work could do without */
    const char *schedule; /* the one asked for, or the one that auto has chosen; static */
    int n_chunks;
} wf_schedule_summary;

typedef struct wf_schedule_stage {
    double span_ms; /* last end minus first begin */
    double work_ms; /* of it, computing */
    /* Most microbatches held at once: F begun, weight gradient not ended. What a microbatch holds
     * is 1 in all chunks of the stage together, and weight_held of it after backward. */
    double held;
    int n_actions;
} wf_schedule_stage;

typedef struct wf_schedule_action {
    wf_span_kind kind; /* FORWARD, BACKWARD, WEIGHT or BACKWARD_WEIGHT */
    int chunk, micro;
    double begin_ms, end_ms; /* 0: the first begin of the first stage */
} wf_schedule_action;

#ifdef __cplusplus
extern "C" {
#endif

/* Name of schedule `i`, NULL past the last; static. */
WF_API const char *wf_schedule_name(int i);

/* Makes the schedule and runs its lists, each strictly in order and as early as it can. The
 * result is the caller's. Errors: INVALID_ARG: a count or time outside the bounds, an unknown
 * schedule, one that does not have so many chunks; DOES_NOT_FIT: a stage would hold more than
 * `max_in_flight`; the sentence names the stage, what it would hold and the schedules that fit. */
WF_API WF_NODISCARD wf_status wf_schedule_simulate(wf_context *ctx,
                                                   const wf_schedule_request *request,
                                                   wf_schedule_result **result_out);
WF_API void wf_schedule_result_destroy(wf_schedule_result *result); /* NULL is allowed */

WF_API wf_schedule_summary wf_schedule_result_summary(const wf_schedule_result *result);
/* Zeros if there is no such stage. */
WF_API wf_schedule_stage wf_schedule_result_stage(const wf_schedule_result *result, int stage);
/* In the order in which the stage performs them: i from 0 to its n_actions - 1; else `micro` is -1
 * and all others are 0. */
WF_API wf_schedule_action wf_schedule_result_action(const wf_schedule_result *result, int stage,
                                                    int i);

#ifdef __cplusplus
}
#endif
#endif
