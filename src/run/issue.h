/* How a step's work reaches the streams. Private.
 *
 * While a program runs, all of its tasks and waits pass through here and nowhere else, so
 * that the happens-before checker (happens.h) misses none, nor what brings what tasks read of other
 * processes (reads.h); the checker notices if one went past it. What is said here of an instruction
 * of a rank that lives elsewhere is heard by those two alone, and by the transport, which tells
 * that rank when what it waits for has happened.
 */
#ifndef WFI_ISSUE_H
#define WFI_ISSUE_H

#include "run/executor.h"

/* One of the tasks of an instruction, and what it touches. */
typedef struct wfi_work {
    wfi_task run; /* with the executor, and instruction and phase as one argument */
    /* Tells, by wfi_issue_touch, of all device memory that `run` reads or writes. NULL: none. */
    wf_status (*touch)(const wfi_executor *e, int32_t i, int32_t phase);
} wfi_work;

static inline int32_t wfi_argument_instruction(void *argument) {
    return (int32_t)((intptr_t)argument & INT32_MAX);
}
static inline int32_t wfi_argument_phase(void *argument) {
    return (int32_t)((intptr_t)argument >> 31);
}

/* The work that is being issued touches `bytes` bytes, `offset` after the reference's begin. */
wf_status wfi_issue_touch(const wfi_executor *e, const wfi_reference *reference, size_t offset,
                          size_t bytes, int access);

/* Appends the work to the stream of instruction i. */
wf_status wfi_issue(wfi_executor *e, int32_t i, int32_t phase, const wfi_work *work);
/* What the stream of instruction i runs from now on comes after the event. */
wf_status wfi_issue_wait(wfi_executor *e, int32_t i, wfi_event event);
/* What the stream of i runs from now on comes after the dependencies of `of`. */
wf_status wfi_issue_depends(wfi_executor *e, int32_t i, int32_t of);
/* What the ranks of the group at that place of the order are given from now on comes after
 * all tasks of its instructions but the last `n_left` of each. */
wf_status wfi_issue_barrier(wfi_executor *e, int32_t at, int32_t n_left);

/* transfer.c: issues a send with its receive, or a collective, by what each of its instructions
 * has for tasks. */
wf_status wfi_issue_transfer(wfi_executor *e, int32_t at);
int32_t wfi_issue_n_tasks(const wfi_executor *e, int32_t i);
/* reduce.c: phase `number` of the collective at that place. */
wf_status wfi_issue_phase(wfi_executor *e, int32_t at, int32_t number);

/* Around a step: when all streams are idle, and until they are again. */
void wfi_issue_begin(wfi_executor *e);
wf_status wfi_issue_all(wfi_executor *e);
wf_status wfi_issue_end(wfi_executor *e);

#endif
