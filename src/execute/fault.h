/* Faults for tests: a bit of the state flips before a step, and a signal is raised before an
 * instruction. Neither happens after a restart, because faults of machines pass. Private.
 */
#pragma once

#include "base/base.h"

struct wfi_worker;
struct wfi_instruction;
struct wf_program;

typedef struct wfi_flip {
    int step, rank; /* step 0: none; else from 1 */
    int64_t bit;    /* of the rank's state */
} wfi_flip;

typedef struct wfi_raise {
    int signal, rank;
    int64_t left; /* instructions of that name up to the signal; 0: none */
    char name[24];
} wfi_raise;

/* Read WEFT_FLIP_BIT and WEFT_RAISE. Errors: INVALID_ARG. */
wf_status wfi_flip_read(wf_context *ctx, wfi_flip *flip_out);
wf_status wfi_raise_read(wf_context *ctx, wfi_raise *raise_out);

/* Flips the bit before that step, counted from 1; workers [p->n_ranks]. */
wf_status wfi_flip_strike(const wfi_flip *f, const struct wfi_worker *workers,
                          const struct wf_program *p, int64_t step);
/* Raises the signal in the thread that runs the rank's instruction, if it is the Nth. */
void wfi_raise_at(wfi_raise *r, const struct wfi_instruction *now);
