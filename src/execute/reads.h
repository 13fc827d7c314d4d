/* Transports bytes that tasks read from other processes' memory, if ranks cannot map it. Private.
 *
 * Every process has the whole program, so both sides know of each such read: the reader's process
 * receives the bytes from the owner's, and lets the task wait for them; the owner's sends them. No
 * requests are needed. The owner sends the bytes once its streams have done all tasks that the
 * reader's stream waits for before the read. Vector clocks, as in the happens-before checker, give
 * these tasks. The clocks are the same in every step, so they are kept only while the program is
 * listed: gone through once, with all ranks' tasks and waits, before the first step. The bytes come
 * into the reader's shadow copy of the owner's arena, at the place that they have there; a task
 * reads them as if it were the arena. A later task of the owner may overwrite the bytes of a put,
 * so it also waits until the put has departed.
 *
 * If only its own process sees a device's memory (wfi_worker.bounce), the bytes are first copied to
 * a bounce buffer. Processes that share memory see that buffer, so nothing is sent, and a task
 * waits for the owner's stream of such copies, which are as many in every step. Where the job has a
 * wire between devices, that moves the bytes to where the task would have copied them to
 * (batches.h).
 */
#ifndef WFI_READS_H
#define WFI_READS_H

#include "execute/worker.h"

typedef struct wfi_reads wfi_reads;

/* *reads_out is NULL if all ranks see each other's memory. The program is to be listed. */
wf_status wfi_reads_create(const wf_program *p, const wfi_worker *workers, wfi_reads **reads_out);
void wfi_reads_destroy(wfi_reads *reads); /* NULL is allowed */

/* A step begins; all streams are idle. The listing is complete. */
void wfi_reads_begin(wfi_reads *reads);
/* The stream of instruction i is about to be given a task of it ... */
wf_status wfi_reads_task(wfi_reads *reads, int32_t i);
/* ... which reads `bytes` bytes, `offset` after the begin of the reference. */
wf_status wfi_reads_read(wfi_reads *reads, const wfi_reference *reference, size_t offset,
                         size_t bytes);
/* ... and writes there. */
void wfi_reads_write(wfi_reads *reads, const wfi_reference *reference, size_t offset);
/* ... and its bytes are floats, which the wire sums with those of the same task of other ranks. */
wf_status wfi_reads_join(wfi_reads *reads, const wfi_reference *reference);
/* The stream waits for the bytes that the task reads from other ranks. */
wf_status wfi_reads_arrive(wfi_reads *reads, int32_t i);
/* Listed: the stream of instruction i waits for the first tasks of another. */
void wfi_reads_wait(wfi_reads *reads, int32_t i, const wfi_stream_queue *other, uint64_t n_tasks);
/* Tasks follow that do not wait for each other. NULL is allowed, as below. */
void wfi_reads_phase(wfi_reads *reads);
/* Whether bytes of that rank's memory are already at the destination when a task that copies them
 * begins. */
bool wfi_reads_moves(const wfi_reads *reads, int32_t rank);
/* All tasks of the step are done: waits until all of its puts have departed. */
wf_status wfi_reads_end(const wfi_reads *reads);

#endif
