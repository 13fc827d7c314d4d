/* How a step's work reaches the streams. Private.
 *
 * All tasks and waits of a program are issued by these functions. So the happens-before checker
 * (happens.h) does not miss one; it reports a task that was issued elsewhere. Calls for an
 * instruction of a rank in another process reach only the checker. If messages or a wire order the
 * ranks (gate.h), no stream waits for another rank's stream.
 */
#pragma once

#include "execute/executor.h"

/* One task of an instruction, and the memory that it touches. */
typedef struct wfi_work {
    wfi_task run; /* with the executor, and instruction and phase as one argument */
    /* Tells, by wfi_issue_touch, of all device memory that `run` reads or writes. NULL: none. */
    wf_status (*touch)(const wfi_executor *e, int32_t i, int32_t phase);
} wfi_work;

static inline void *wfi_argument(int32_t i, int32_t phase) {
    return (void *)((intptr_t)phase << 31 | i);
}
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
/* Later tasks of the stream of instruction i wait for the event. */
wf_status wfi_issue_wait(wfi_executor *e, int32_t i, wfi_event event);
/* Later tasks of the stream of i wait for the dependencies of `of`. */
wf_status wfi_issue_depends(wfi_executor *e, int32_t i, int32_t of);
/* Later tasks of each rank in the group at index `at` of the order wait for all tasks of its
 * instructions, except the last `n_left` of each. */
wf_status wfi_issue_barrier(wfi_executor *e, int32_t at, int32_t n_left);

/* transfer.c: issues a send with its receive, or a collective. Its instruction i has
 * wfi_issue_n_tasks tasks. */
wf_status wfi_issue_transfer(wfi_executor *e, int32_t at);
int32_t wfi_issue_n_tasks(const wfi_executor *e, int32_t i);
/* Calls `fn` for all copies between ranks in phase `number` of the instructions at that place, in
 * one order on every rank. */
typedef wf_status wfi_far_copy_fn(void *self, const wfi_far_copy *copy);
wf_status wfi_issue_copies(const wfi_executor *e, int32_t at, int32_t number, wfi_far_copy_fn *fn,
                           void *self);
/* reduce.c: the same for a collective. */
wf_status wfi_reduce_copies(const wfi_executor *e, int32_t at, int32_t number, wfi_far_copy_fn *fn,
                            void *self);
/* reduce.c: phase `number` of the collective at that place. */
wf_status wfi_issue_phase(wfi_executor *e, int32_t at, int32_t number);

/* Around a step: when all streams are idle, and until they are again. */
void wfi_issue_begin(wfi_executor *e);
wf_status wfi_issue_all(wfi_executor *e);
wf_status wfi_issue_end(wfi_executor *e);
