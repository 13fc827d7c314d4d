/* Simulation of pipeline schedules without a model.
 *
 * Given the times of each stage, the simulation finds the cost of a schedule. A stage is the part
 * of the model on one rank; some schedules cut it into chunks. All times are in milliseconds, for
 * one microbatch on one stage. Microbatches and stages count from 0.
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
    double backward_ms; /* gradient of the stage's input */
    double weight_ms;   /* gradient of the weights; both at once take backward_ms + weight_ms */
} wf_stage_times;

/* The time that `auto` minimizes. */
typedef enum wf_schedule_goal {
    WF_SCHEDULE_STEP,    /* the longest span of a stage, for steps that overlap */
    WF_SCHEDULE_MAKESPAN /* from the first begin to the last end */
} wf_schedule_goal;

typedef struct wf_schedule_request {
    size_t struct_size;   /* set by WF_SCHEDULE_REQUEST_INIT */
    const char *schedule; /* a name of wf_schedule_name */
    int n_stages, n_micro;
    const wf_stage_times *times; /* [n_stages] */
    double transfer_ms;          /* from a stage to its neighbour; does not occupy compute */
    int max_in_flight; /* maximum of microbatches that a stage may hold; 0: unlimited (auto: 2
                        * n_stages - 1)
                        */
    wf_schedule_goal goal;
    int n_chunks;       /* equally long chunks per stage, if the schedule allows a choice; 0: the
                         * schedule's       default, and auto chooses */
    double weight_held; /* the fraction of a microbatch's memory that the weight gradient needs,
                         * from the end of backward on: 0 to 1 */
} wf_schedule_request;

#define WF_SCHEDULE_REQUEST_INIT                                                                   \
    { sizeof(wf_schedule_request), "1f1b", 1, 1, 0, 0, 0, WF_SCHEDULE_STEP, 0, 1 }

typedef struct wf_schedule_result wf_schedule_result;

typedef struct wf_schedule_summary {
    double step_ms;       /* longest span of a stage */
    double makespan_ms;   /* from the first begin to the last end of all stages */
    double bubble;        /* (step_ms - the most work_ms of a stage) / step_ms */
    const char *schedule; /* the requested one, or the choice of auto; static */
    int n_chunks;
} wf_schedule_summary;

typedef struct wf_schedule_stage {
    double span_ms; /* last end minus first begin */
    double work_ms; /* compute time within the span */
    /* Maximum of microbatches held at once. A stage holds a microbatch from the begin of its
     * forward to the end of its weight gradient. A microbatch counts 1 over all chunks of the
     * stage, and weight_held after backward. */
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

/* The name of schedule `i`, NULL past the last; static. */
WF_API const char *wf_schedule_name(int i);

/* Makes the schedule and runs the list of each stage, strictly in order and as early as possible.
 * The caller owns the result. Errors: INVALID_ARG (a count or time out of bounds, an unknown
 * schedule, or one without a choice of chunks), DOES_NOT_FIT (a stage would hold more than
 * `max_in_flight`; the sentence names the stage, its number and the schedules that fit),
 * NO_MEMORY. */
WF_API WF_NODISCARD wf_status wf_schedule_simulate(wf_context *ctx,
                                                   const wf_schedule_request *request,
                                                   wf_schedule_result **result_out);
WF_API void wf_schedule_result_destroy(wf_schedule_result *result); /* NULL is allowed */

/* Times of the whole schedule. */
WF_API wf_schedule_summary wf_schedule_result_summary(const wf_schedule_result *result);
/* One stage; zeros if `stage` is out of range. */
WF_API wf_schedule_stage wf_schedule_result_stage(const wf_schedule_result *result, int stage);
/* Action i of the stage in order of execution. Out of range, `micro` is -1 and other fields are
 * 0. */
WF_API wf_schedule_action wf_schedule_result_action(const wf_schedule_result *result, int stage,
                                                    int i);

#ifdef __cplusplus
}
#endif
#endif
