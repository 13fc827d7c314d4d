/* A map from ranges of addresses to objects. Any thread. Private to src/device. */
#pragma once

#include "base/base.h"

#include <pthread.h>

typedef struct wfi_range {
    const char *base;
    size_t bytes;
    void *owner, *object;
} wfi_range;

typedef struct wfi_ranges {
    pthread_mutex_t lock;
    wfi_range *all; /* ascending; of malloc */
    size_t n;
} wfi_ranges;

void wfi_ranges_init(wfi_ranges *ranges);
void wfi_ranges_release(wfi_ranges *ranges);
/* Adds a range, which overlaps no other. Errors: NO_MEMORY. */
wf_status wfi_ranges_add(wf_context *ctx, wfi_ranges *ranges, wfi_range range);
/* Finds the range that has the address; false: none. */
bool wfi_ranges_find(wfi_ranges *ranges, const void *address, wfi_range *range_out);
/* Removes the range that begins there, and returns it. */
wfi_range wfi_ranges_take(wfi_ranges *ranges, const void *base);
