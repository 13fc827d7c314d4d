/* The courier: for processes that share no memory, a thread of each that carries what the
 * segment and the arenas would have shown the others. Private.
 *
 * It makes all calls of the mail and sleeps between them. Orders are given by the host's thread
 * and return at once:
 *
 *   state      what this rank says of itself (wfi_control_rank), to all; comes to the others'
 *              copies, as failures do
 *   promises   "when stream s here has done n tasks, rank r is told": every process issues the
 *              whole program, so the owner of a stream knows who waits for it
 *   parcels    bytes of an arena, sent when they are ready: as soon as the local streams have
 *              done what the reader has waited for. Both sides give their orders in the
 *              program's order, and that says which parcel is which
 */
#ifndef WFI_COURIER_H
#define WFI_COURIER_H

#include "comm/control.h"

typedef struct wfi_courier wfi_courier;

typedef struct wfi_courier_config {
    int rank, n_ranks;
    int64_t timeout_ms;
    wfi_failure *failure;    /* this process's copy: watched, and told to all */
    wfi_control_rank *ranks; /* [n_ranks] this process's copies; its own streams count in its own */
    wfi_mail mail;           /* is the courier's from here on */
} wfi_courier_config;

/* Returns when the mail has started: all have come. Errors: TIMEOUT, INVALID_ARG (MPI counts other
 * ranks), those of the mail. */
wf_status wfi_courier_create(wf_context *ctx, const wfi_courier_config *config,
                             wfi_courier **courier_out);
/* Waits until the others leave as well; after a failure only for a while. False: something is still
 * under way, and keeps its memory. */
bool wfi_courier_destroy(wfi_courier *courier);

/* This rank's words, as they are now, to all. */
void wfi_courier_publish(wfi_courier *courier);
/* Streams count anew, here and at the others: between two meetings. */
wf_status wfi_courier_reset(wfi_courier *courier);
/* Tells `rank` (-1: all) when the local stream has done so many tasks. */
wf_status wfi_courier_promise(wfi_courier *courier, int rank, int stream, uint64_t epoch);

/* Streams of parcels: the tasks of that stream of the reader need them; HOST: nobody's. */
#define WFI_COURIER_HOST    WFI_CONTROL_STREAMS
#define WFI_COURIER_STREAMS (WFI_CONTROL_STREAMS + 1)

/* Sends bytes to a task of `stream` of rank `to`, its epoch-th, once the local streams have done
 * need[WFI_CONTROL_STREAMS] tasks (NULL: now). They stay as they are until that task is done. */
wf_status wfi_courier_send(wfi_courier *courier, int to, int stream, uint64_t epoch,
                           const uint64_t *need, const void *data, size_t bytes);
/* Receives the bytes of the sender's next order that is for this rank. */
wf_status wfi_courier_receive(wfi_courier *courier, int from, int stream, void *data, size_t bytes);
/* Waits until all that was received and sent for the HOST has come and gone. Errors: TIMEOUT, or
 * the failure of another. */
wf_status wfi_courier_flush(wfi_courier *courier);
/* The event of all parcels that were ordered for that local stream so far. */
wfi_event wfi_courier_arrival(const wfi_courier *courier, int stream);

#endif
