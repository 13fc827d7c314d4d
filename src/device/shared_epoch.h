/* The number of tasks that a stream has completed, in memory that other processes read. Private.
 *
 * The stream's own process increments it. Others wait for a value: they poll for a while, then
 * sleep in the kernel on the counter's lower half.
 */
#pragma once

#include <stdint.h>

typedef struct wfi_shared_epoch {
    uint64_t epoch;      /* atomic access */
    uint32_t n_sleeping; /* atomic access: processes that sleep */
    uint32_t padding;
    uint64_t message[6]; /* the owner's message with this epoch, in the same cache line */
} wfi_shared_epoch;

/* Wakes sleeping processes; called after a change of the epoch. */
void wfi_shared_epoch_wake(wfi_shared_epoch *e);
/* Returns when the epoch is no longer `seen`, or after `timeout_ms`, or spuriously. */
void wfi_shared_epoch_sleep(wfi_shared_epoch *e, uint64_t seen, int64_t timeout_ms);
