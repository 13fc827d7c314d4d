/* Shared parts of the schedule `auto`. Private.
 *
 * A stage's F, B and W each go in ascending order of microbatches. So with one stage a device a
 * list is a word of three letters, and the memory limit of a device is one more rule about order: F
 * comes after the B and W that make room. The first action of a device is always F of microbatch 0,
 * and no list can change its begin. So both measures are "the latest end, less a constant of the
 * device", and to delay something never helps: results about job shops apply.
 */
#pragma once

#include "plan/schedule/timing.h"

typedef struct wfi_auto {
    wf_context *ctx;
    const wfi_schedule_request *request;
    int n_devices;
    int *first_own, *own; /* device d has stages own[first_own[d]] to own[first_own[d + 1] - 1] */
    double *offset;       /* [n_devices] subtracted from a device's last end */
    double bound;         /* no schedule costs less */
    wfi_timing timing;
    wfi_action_list *trial, *best; /* [n_devices] */
    double cost, tie;              /* of the best; the tie is broken by the other measure */
} wfi_auto;

/* Makes `trial` the best if it costs less and no device holds too much. */
wf_status wfi_auto_offer(wfi_auto *search);
bool wfi_auto_is_done(const wfi_auto *search); /* the best costs as little as the bound */

/* Each offers schedules of its kind. */
wf_status wfi_auto_rules(wfi_auto *search);   /* fixed schedules and their relatives */
wf_status wfi_auto_greedy(wfi_auto *search);  /* event by event, by several policies */
wf_status wfi_auto_improve(wfi_auto *search); /* neighbours of the best */
wf_status wfi_auto_exact(wfi_auto *search);   /* all that could be best, within limits */
bool wfi_auto_is_small(const wfi_schedule_request *request); /* enough for exact */

static inline double wfi_auto_duration(const wfi_stage_times *times, wfi_action_kind kind) {
    return kind == WFI_ACTION_F   ? times->forward
           : kind == WFI_ACTION_B ? times->backward
                                  : times->weight;
}

static inline bool wfi_auto_fits(const wfi_auto *a, double held) {
    return held <= a->request->hold + 1 / WFI_HELD_UNITS;
}

/* Limits of a device with one stage: most microbatches between F and the end of B, and most weight
 * gradients that can be left when the last B is done. */
int wfi_auto_most_forward(const wfi_auto *search, int stage);
int wfi_auto_most_late(const wfi_auto *search, int stage);
