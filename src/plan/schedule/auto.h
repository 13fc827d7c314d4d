/* What the parts of the schedule `auto` share. Private.
 *
 * A stage's F, B and W each go in ascending order of microbatches, so a list is a word of
 * three letters, and `hold` is one more rule about order: F of microbatch m comes after W of
 * m - hold. The first action of a stage is always F of microbatch 0, whose begin no list can
 * change. So both measures are "the latest end, less a constant of the stage", and to delay
 * something never helps: what is known about job shops applies.
 */
#ifndef WFI_AUTO_H
#define WFI_AUTO_H

#include "plan/schedule/timing.h"

typedef struct wfi_auto {
    wf_context *ctx;
    const wfi_schedule_request *request;
    int hold;       /* of the request, at most n_micro */
    double *offset; /* [n_stages] what is taken off a stage's last end */
    double bound;   /* no schedule costs less */
    wfi_timing timing;
    wfi_action_list *trial, *best; /* [n_stages] */
    double cost, tie;              /* of the best; the tie is broken by the other measure */
} wfi_auto;

/* Makes `trial` the best if it costs less and no stage holds too many. */
wf_status wfi_auto_offer(wfi_auto *search);
bool wfi_auto_is_done(const wfi_auto *search); /* the best costs as little as the bound */

/* Each offers schedules of its kind. */
wf_status wfi_auto_rules(wfi_auto *search);   /* fixed schedules and their relatives */
wf_status wfi_auto_greedy(wfi_auto *search);  /* event by event, by several policies */
wf_status wfi_auto_improve(wfi_auto *search); /* neighbours of the best */
wf_status wfi_auto_exact(wfi_auto *search);   /* all that could be best, within limits */
bool wfi_auto_is_small(const wfi_schedule_request *request); /*/* enough for exact */

static inline double wfi_auto_duration(const wfi_stage_times *times, wfi_action_kind kind) {
    return kind == WFI_ACTION_F   ? times->forward
           : kind == WFI_ACTION_B ? times->backward
                                  : times->weight;
}

#endif
