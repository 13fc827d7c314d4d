/* When each action of a schedule begins and ends, if every list runs strictly in order and
 * as early as it can; and whether the lists are legal. Pure; O(number of actions). Private.
 */
#pragma once

#include "plan/schedule/schedule.h"

/* In the unit of the request's times; 0 is the begin of the step. */
typedef struct wfi_moment {
    double begin, end;
    double held; /* by the device, in between */
} wfi_moment;

/* Held memory is a sum of parts of microbatches; one microbatch has so many distinct parts. */
#define WFI_HELD_UNITS 1e9

typedef struct wfi_timing {
    wfi_pool pool;
    int n_stages, n_devices, n_micro;
    int *first;          /* [n_devices] of its moments */
    wfi_moment *moments; /* [3 * n_stages * n_micro] device by device, by place in its list */
    double *span;        /* [n_devices] last end minus first begin */
    double *peak;        /* [n_devices] the most that is held, see wfi_stage_memory */
    double longest_span, makespan;
    struct wfi_clock *clocks;           /* [n_devices] */
    double *forward_end, *backward_end; /* [n_stages][n_micro]; negative: not yet */
    bool *has_weight;                   /* [n_stages][n_micro] */
    int *ready;                         /* devices that may go on; a stack */
} wfi_timing;

/* Room for schedules of this size, with this table of devices. */
wf_status wfi_timing_init(wf_context *ctx, const wfi_schedule_request *request, wfi_timing *timing);
void wfi_timing_release(wfi_timing *timing);

/* May be called again and again; allocates nothing. request->hold is not looked at. Errors:
 * INVALID_ARG: an action is missing, doubled, of a stage on another device, or before one that it
 * needs on its own stage; or stages wait for each other. The sentence names stage and microbatch.
 */
wf_status wfi_timing_run(const wfi_schedule_request *request, const wfi_action_list *lists,
                         wfi_timing *timing);

static inline const wfi_moment *wfi_timing_moment(const wfi_timing *timing, int device, int place) {
    return &timing->moments[timing->first[device] + place];
}
