/* Asynchronous runs: declarations that worker.c, order.c, server.c and async.c share. Private. */
#pragma once

#include "workers/workers.h"

/* Returns the bytes before the vector's part in a message to server k: the note, and for server 0
 * the batch statistics. */
static inline size_t wfi_message_head(const wf_workers *w, int k) {
    size_t stats = k ? 0 : wfi_vector_all_stats(&w->vector) * sizeof(float);
    return wfi_round_up(sizeof(wfi_note) + stats, WFI_ALIGN_BYTES);
}
static inline size_t wfi_message_bytes(const wf_workers *w, int k) {
    size_t n = wfi_vector_cut(&w->vector, w->n_servers, k + 1) -
               wfi_vector_cut(&w->vector, w->n_servers, k);
    return wfi_round_up(wfi_message_head(w, k) + n * sizeof(float), WFI_ALIGN_BYTES);
}
/* Returns the bytes of a request to server 0's order: the note, and the report of each microbatch.
 */
static inline size_t wfi_asking_bytes(const wf_workers *w) {
    return wfi_round_up(sizeof(wfi_note) + (size_t)w->vector.n_micro * 2 * sizeof(double),
                        WFI_ALIGN_BYTES);
}

/* A wait for messages, in naps. */
typedef struct wfi_nap {
    wf_workers *all;
    int64_t began_ms, us;
} wfi_nap;
wfi_nap wfi_nap_begin(wf_workers *w);
/* Sleeps for a moment. Errors: TIMEOUT (the sentence names `missing`), the failure of another. */
wf_status wfi_nap_take(wfi_nap *nap, const char *missing);

/* Runs the rank's workers until the run needs no more of them. `starts`: they begin with the
 * servers' parameters, otherwise with those that they have. */
wf_status wfi_worker_rank_run(wfi_worker_rank *rank, bool starts);

/* Server 0's decision: fills the ticket in the worker's note. *granted_out is false while the
 * worker has to wait. */
wf_status wfi_order_grant(wf_workers *w, wfi_note *note, const double *records, bool *granted_out);
/* Finds the next applied push of the record, from place `from` on: the worker's, or any worker's if
 * `worker` is < 0. NULL: there is none among the next n_pushes applied pushes. */
const wfi_push *wfi_order_find(const wf_workers *w, int worker, size_t from, int64_t n_pushes);
/* Begins a run of n_steps. */
void wfi_order_begin(wf_workers *w, int64_t n_steps, bool starts);
wf_status wfi_order_create(wf_workers *w);

/* Serves until all workers have ended. */
wf_status wfi_server_run(wfi_server *s);
