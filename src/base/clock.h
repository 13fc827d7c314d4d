/* The clock for deadlines and durations: it never goes back. Private. */
#pragma once

#include <stdint.h>
#include <time.h>

static inline int64_t wfi_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* CPU time of the calling thread: other programs on its core do not count. */
static inline int64_t wfi_thread_cpu_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static inline int64_t wfi_now_ms(void) {
    return wfi_now_ns() / 1000000;
}

/* A clock for waits: it stands still while the process itself does not run (SIGSTOP, a batch
 * system's suspend), so that a job which was suspended as a whole does not miss its deadlines. A
 * waiting thread reads the clock at least every WFI_WAIT_NAP_MS; a longer time between two readings
 * counts as WFI_WAIT_GAP_MS. */
#define WFI_WAIT_NAP_MS 100
#define WFI_WAIT_GAP_MS 250

typedef struct wfi_wait_clock {
    int64_t read_ms, waited_ms;
} wfi_wait_clock;

static inline wfi_wait_clock wfi_wait_begin(void) {
    return (wfi_wait_clock){wfi_now_ms(), 0};
}

/* So long the wait has taken. */
static inline int64_t wfi_wait_ms(wfi_wait_clock *c) {
    int64_t now_ms = wfi_now_ms(), gap_ms = now_ms - c->read_ms;
    c->read_ms = now_ms;
    return c->waited_ms += gap_ms < WFI_WAIT_GAP_MS ? gap_ms : WFI_WAIT_GAP_MS;
}
