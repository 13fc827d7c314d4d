/* Measures the peak of device memory: the highest byte that kernels, copies and updates reach. How
 * far a kernel reaches the library's own descriptors say (wfi_kernel.extent), not the bytes that
 * memory was planned from; that nothing reaches further is tested (gaps.h). Private. */
#pragma once

#include "base/base.h"

typedef struct wfi_observer {
    const char *base;
    size_t peak_bytes; /* highest end of an extent, from base; atomic access */
} wfi_observer;

void wfi_observe(wfi_observer *observer, const void *data, size_t bytes);
