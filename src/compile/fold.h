/* The short form of a step. Private. */
#ifndef WFI_COMPILE_FOLD_H
#define WFI_COMPILE_FOLD_H

#include "lower/sequence.h"

/* The short form of a step: each lane of a replica leaves out a part of its steady phase (fold.c).
 */
typedef struct wfi_fold {
    int64_t n_period;   /* microbatches after which the steady phase repeats; 0: it does not */
    int64_t n_left_out; /* microbatches of each lane: whole periods */
    int32_t n_cuts;     /* lanes of a replica */
    int32_t *cuts;      /* [n_cuts] places in the sequence at which parts are left out, ... */
    int32_t n_places;   /* ... so many */
    wfi_sequence sequence;
    const wfi_action_list *lists;
    wf_program *shorter; /* the program of the short form, and its lists and sequence */
    wfi_action_list *short_lists;
    wfi_sequence short_sequence;
} wfi_fold;

/* fold.c: finds whether the middle of each lane's step repeats, and plans the memory of the short
 * form. `fold_out` has no period if nothing repeats. */
wf_status wfi_fold_find(wf_program *p, wfi_pool *pool, const wfi_action_list *lists,
                        wfi_fold *fold_out);
/* Ends the program of a short form, or NULL. */
void wfi_program_end_shorter(wf_program *shorter);
/* turns.c: keeps in the short form where it repeats. */
wf_status wfi_fold_mark(const wfi_fold *fold);
/* next_out [n_blocks of the short form]: the block that has the same offset one period
 * later, or -1. *is_periodic_out: whether the short form's instructions repeat. */
wf_status wfi_fold_find_turns(const wfi_fold *fold, int32_t *next_out, bool *is_periodic_out);
/* Gives blocks of the program the offsets of the short form's. Errors: BUG: it does not repeat. */
wf_status wfi_fold_copy(const wfi_fold *fold, wf_program *p);

#endif
