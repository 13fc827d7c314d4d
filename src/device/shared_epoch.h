/* How many tasks a stream has done, in memory that other processes see. Private.
 *
 * The stream's own process adds to it; others wait for a value: they look for a while, then
 * sleep in the kernel on the counter's lower half.
 */
#ifndef WFI_SHARED_EPOCH_H
#define WFI_SHARED_EPOCH_H

#include <stdint.h>

typedef struct wfi_shared_epoch {
    uint64_t epoch;      /* atomic access */
    uint32_t n_sleeping; /* atomic access: processes that want to be woken */
    uint32_t padding;
    uint64_t says[6]; /* what its owner tells with it, in the same cache line */
} wfi_shared_epoch;

/* Wakes those who sleep; after the epoch has changed. */
void wfi_shared_epoch_wake(wfi_shared_epoch *e);
/* Returns when the epoch is no longer `seen`, or after `timeout_ms`, or for no reason. */
void wfi_shared_epoch_sleep(wfi_shared_epoch *e, uint64_t seen, int64_t timeout_ms);

#endif
