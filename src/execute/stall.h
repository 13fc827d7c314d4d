/* Finds the rank that all others wait for. Private.
 *
 * Every process has the whole program and sees how many tasks each stream of each rank has done, so
 * it knows the current instruction of each stream. From a waiting stream it follows waits from rank
 * to rank, to a rank that could go on and does not. This costs nothing until a wait takes too long.
 */
#pragma once

#include "execute/worker.h"

struct wfi_executor;

typedef struct wfi_stall {
    wfi_watch watch;
    wfi_control *job; /* or NULL */
    const wfi_worker *workers;
    int n_workers;
    const struct wfi_executor *running; /* the program that runs, for the host; NULL: none */
    const struct wfi_executor *issued;  /* atomic access: the same when all of it is issued */
} wfi_stall;

/* Errors: INVALID_ARG: WEFT_STALL_MS is no number. */
wf_status wfi_stall_init(wfi_stall *stall, wf_context *ctx, wfi_control *job);
/* A step begins, is issued, is over. NULL is allowed. */
void wfi_stall_begin(wfi_stall *stall, const struct wfi_executor *e);
void wfi_stall_issued(wfi_stall *stall);
void wfi_stall_end(wfi_stall *stall);
