/* Brings bytes that tasks read of other processes' memory, if ranks cannot map it. Private.
 *
 * Only copies read another rank's memory, and they write to a block of the reader's own (the plan
 * stages operands of kernels). Every process has the whole program, so both sides know of each
 * copy, and no requests are needed. The owner sends the bytes once its streams have done all tasks
 * that the reader's stream waits for before the copy. They are received in their final place, once
 * the reader's streams have done the tasks before the copy; the copying task finds them there.
 * Vector clocks, as in the happens-before checker, give these tasks. The clocks are the same in
 * every step, so they are kept only while the program is listed: gone through once, with all ranks'
 * tasks and waits, before the first step. A later task of the owner may overwrite the bytes of a
 * put, so it also waits until the put has departed.
 *
 * If only its own process sees a device's memory (wfi_worker.bounce), the bytes go through a
 * mirror of it in host memory, the bounce buffer. Processes that share memory see that buffer, so
 * nothing is sent, and a task waits for the owner's stream of such copies, which are as many in
 * every step. Where the job has a wire between devices, that moves the bytes (batches.h).
 */
#ifndef WFI_READS_H
#define WFI_READS_H

#include "execute/worker.h"

typedef struct wfi_reads wfi_reads;

/* A place in memory, `offset` bytes after the begin of a reference. */
typedef struct wfi_location {
    const wfi_reference *reference;
    size_t offset;
} wfi_location;

/* *reads_out is NULL if all ranks see each other's memory. The program is to be listed. */
wf_status wfi_reads_create(const wf_program *p, const wfi_worker *workers, wfi_reads **reads_out);
void wfi_reads_destroy(wfi_reads *reads); /* NULL is allowed */

/* A step begins; all streams are idle. The listing is complete. */
void wfi_reads_begin(wfi_reads *reads);
/* The stream of instruction i is about to be given a task of it ... */
wf_status wfi_reads_task(wfi_reads *reads, int32_t i);
/* ... which copies these bytes of another rank; or `from` and `to` are one place, of floats that
 * the wire sums with those of the same task of other ranks. The stream waits until they are there.
 */
wf_status wfi_reads_copy(wfi_reads *reads, const wfi_location *from, const wfi_location *to,
                         size_t bytes);
/* Listed: the stream of instruction i waits for the first tasks of another. */
void wfi_reads_wait(wfi_reads *reads, int32_t i, const wfi_stream_queue *other, uint64_t n_tasks);
/* Tasks follow that do not wait for each other. NULL is allowed, as below. */
void wfi_reads_phase(wfi_reads *reads);
/* All tasks of the step are done: waits until all of its puts have departed. */
wf_status wfi_reads_end(const wfi_reads *reads);

#endif
