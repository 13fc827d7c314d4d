/* Transports what tasks read of other processes' memory, where ranks cannot see it. Private.
 *
 * Every process issues the whole program, so both sides know of each such read when it is
 * issued: the reader's process orders the bytes of the owner's, and lets the task wait for them;
 * the owner's sends them. Nothing has to be asked for. They are sent as soon as the owner's streams
 * have done what the reader's stream will have waited for by then; vector clocks, as the tracker of
 * events has them, say what that is. They come into the reader's shadow copy of the owner's arena,
 * at the place that they have there; a task reads them as if it were the arena.
 */
#ifndef WFI_READS_H
#define WFI_READS_H

#include "run/worker.h"

typedef struct wfi_reads wfi_reads;

/* *reads_out is NULL if all ranks see each other's memory. */
wf_status wfi_reads_create(const wf_program *p, const wfi_worker *workers, wfi_reads **reads_out);
void wfi_reads_destroy(wfi_reads *reads); /* NULL is allowed */

/* A step begins; all streams are idle. */
void wfi_reads_begin(wfi_reads *reads);
/* The stream of instruction i is about to be given a task of it ... */
wf_status wfi_reads_task(wfi_reads *reads, int32_t i);
/* ... which reads `bytes` bytes, `offset` after the begin of the reference. */
wf_status wfi_reads_read(wfi_reads *reads, const wfi_reference *reference, size_t offset,
                         size_t bytes);
/* The stream waits for what that task reads of others. */
wf_status wfi_reads_arrive(wfi_reads *reads, int32_t i);
/* The stream of instruction i waits for the event. */
void wfi_reads_wait(wfi_reads *reads, int32_t i, wfi_event event);

#endif
