/* The short form of a step. Private. */
#pragma once

#include "lower/sequence.h"

/* The short form of a step: each lane of a replica leaves out a part of its steady phase
 * (short_form.c).
 */
typedef struct wfi_short_form {
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
} wfi_short_form;

/* short_form.c: finds whether the middle of each lane's step repeats, and plans the memory of the
 * short form. `form_out` has no period if nothing repeats. */
wf_status wfi_short_form_find(wf_program *p, wfi_pool *pool, const wfi_action_list *lists,
                              wfi_short_form *form_out);
/* Ends the program of a short form, or NULL. */
void wfi_program_end_shorter(wf_program *shorter);
/* period.c: keeps in the short form where it repeats. */
wf_status wfi_short_form_mark(const wfi_short_form *form);
/* next_out [n_blocks of the short form]: the block that has the same offset one period
 * later, or -1. *is_periodic_out: whether the short form's instructions repeat. */
wf_status wfi_short_form_next(const wfi_short_form *form, int32_t *next_out, bool *is_periodic_out);
/* Gives blocks of the program the offsets of the short form's. Errors: BUG: it does not repeat. */
wf_status wfi_short_form_copy(const wfi_short_form *form, wf_program *p);
