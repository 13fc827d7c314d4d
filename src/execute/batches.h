/* Batches of reads between devices of different processes, moved by a wire
 * (comm/wire/device_wire.h). Private.
 *
 * The reads of one phase do not depend on each other, so they can move at once. Each rank has one
 * batch for a phase, with all that it sends and receives. Two tasks of its stream `bounce` move the
 * batch. The first task waits for the rank's earlier work and reports that. The second task waits
 * until all ranks with a batch of the phase have reported, and moves the bytes. So no GPU waits,
 * and the watchdog can name a late rank. The batch writes received bytes where the reading task
 * would have copied them, so the plan stages at once. That task runs after the batch and finds
 * them. A part that the wire sums is sent and received; its owner is its reader.
 *
 * Batches are in the order of the program on every rank, so none waits for one behind it.
 */
#ifndef WFI_BATCHES_H
#define WFI_BATCHES_H

#include "execute/worker.h"

typedef struct wfi_batches wfi_batches;

/* NULL if the job has no such wire. */
wf_status wfi_batches_create(wf_context *ctx, const wfi_worker *workers, int32_t n_ranks,
                             wfi_batches **batches_out);
void wfi_batches_destroy(wfi_batches *batches); /* NULL is allowed */

/* Calls that list the program, for all ranks: a phase begins. A copy of `bytes` bytes from at[0] in
 * the owner's memory to at[1] in the reader's; if a rank of this process is one of them, it comes
 * after `need` [WFI_N_STREAMS] tasks of its streams. */
void wfi_batches_phase(wfi_batches *batches); /* NULL is allowed */
wf_status wfi_batches_list(wfi_batches *batches, const wfi_worker *owner, const wfi_worker *reader,
                           const int32_t *need, const size_t at[2], size_t bytes);

/* A step begins; all streams are idle. Then, for each part that was listed of this process's rank,
 * in that order: the event after which it has been moved. */
void wfi_batches_begin(wfi_batches *batches);
wf_status wfi_batches_move(wfi_batches *batches, wfi_event *moved_out);
wf_status wfi_batches_end(const wfi_batches *batches);

#endif
