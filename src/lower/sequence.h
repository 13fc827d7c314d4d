/* One order for the actions of all ranks. Private. */
#pragma once

#include "plan/schedule/schedule.h"
#include "program/program.h"

/* One order of the begins and ends of all ranks' actions: as they would come if each began as soon
 * as it could. Ranks name their transfers in this order, so that none waits behind a transfer that
 * itself waits for it. */
typedef struct wfi_sequence {
    int32_t **begin, **end; /* [n_ranks][list's n] places in the order */
    /* [n_ranks][list's n + 1] the first instruction of each action, and the one after the last;
     * lowering fills them. */
    int32_t **emitted;
} wfi_sequence;

/* sequence.c. The arrays are the pool's. */
wf_status wfi_sequence_make(const wf_program *p, wfi_pool *pool, const wfi_action_list *lists,
                            bool is_even, wfi_sequence *sequence_out);
