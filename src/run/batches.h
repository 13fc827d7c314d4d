/* What ranks in different processes read of each other's devices, where a wire between these moves
 * it (comm/wire/device_wire.h): batches of it. Private.
 *
 * Whatever is read in one phase, by whichever rank, can be moved at once: nothing in the phase
 * waits for it. So each rank has one batch of the phase, with all that it sends and receives, and
 * moves it by two tasks of its stream `bounce`: the first comes after what the rank has to have
 * done before, and says so; the second, when all who have one of that phase are as far, moves. So
 * nothing waits on a GPU, and who does not come is named as any stream is. What is received goes
 * where the reading task would have copied it (so the plan stages at once); that task comes behind
 * the batch, and finds it there. What the wire sums is a part of both, whose owner is its reader.
 *
 * Batches are in the order of the program on every rank, so none waits for one behind it.
 */
#ifndef WFI_BATCHES_H
#define WFI_BATCHES_H

#include "run/worker.h"

typedef struct wfi_batches wfi_batches;

/* NULL if the job has no such wire. */
wf_status wfi_batches_create(wf_context *ctx, const wfi_worker *workers, int32_t n_ranks,
                             wfi_batches **batches_out);
void wfi_batches_destroy(wfi_batches *batches); /* NULL is allowed */

/* Listed, of all ranks: a phase begins; what is read in it, at `at` in the owner's memory, after
 * what a rank of this process, if it is the reader or the owner, has done in its streams
 * ([WFI_N_STREAMS] tasks); where what this process has listed last is read to. */
void wfi_batches_phase(wfi_batches *batches); /* NULL is allowed */
wf_status wfi_batches_list(wfi_batches *batches, const wfi_worker *owner, const wfi_worker *reader,
                           const int32_t *need, size_t at, size_t bytes);
void wfi_batches_write(wfi_batches *batches, size_t at);

/* A step begins; all streams are idle. Then, for each part that was listed of this process's rank,
 * in that order: the event after which it has been moved. */
void wfi_batches_begin(wfi_batches *batches);
wf_status wfi_batches_move(wfi_batches *batches, wfi_event *moved_out);
wf_status wfi_batches_end(const wfi_batches *batches);

#endif
