/* Measures the peak of device memory without reading the plan: from the extents
 * that kernels, copies and updates are really given. Private. */
#ifndef WFI_OBSERVER_H
#define WFI_OBSERVER_H

#include "base/base.h"

typedef struct wfi_observer {
    const char *base;
    size_t peak_bytes; /* highest end of an extent, from base; atomic access */
} wfi_observer;

/* `writes` also tells the thread sanitizer, where it runs, about an access that an
 * uninstrumented library will make. */
void wfi_observe(wfi_observer *observer, const void *data, size_t bytes, bool writes,
                 bool is_instrumented);

#endif
