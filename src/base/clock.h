/* The clock for deadlines and durations: it never goes back. Private. */
#ifndef WFI_CLOCK_H
#define WFI_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline int64_t wfi_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static inline int64_t wfi_now_ms(void) {
    return wfi_now_ns() / 1000000;
}

#endif
