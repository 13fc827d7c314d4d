#include "base/race.h"

#include <stdint.h>

#if defined(__SANITIZE_THREAD__)
void __tsan_read_range(void *data, unsigned long bytes);
void __tsan_write_range(void *data, unsigned long bytes);
void __tsan_read1(void *data);
void __tsan_write1(void *data);

#define LINE_BYTES  64
#define LARGE_BYTES 65536

static void touch_all(void *data, size_t bytes, bool writes) {
    if (writes)
        __tsan_write_range(data, bytes);
    else
        __tsan_read_range(data, bytes);
}

/* Blocks of memory begin and end at cache lines, so overlapping blocks share a line. One byte of
 * each line therefore represents the middle of a large block. */
void wfi_touches(const void *data, size_t bytes, bool writes) {
    char *at = (char *)(uintptr_t)data;
    if (!data || !bytes) return;
    if (bytes < LARGE_BYTES) {
        touch_all(at, bytes, writes);
        return;
    }
    char *end = at + bytes - LINE_BYTES;
    touch_all(at, LINE_BYTES, writes);
    touch_all(end, LINE_BYTES, writes);
    at += LINE_BYTES - (uintptr_t)at % LINE_BYTES;
    void (*touch)(void *) = writes ? __tsan_write1 : __tsan_read1;
    for (; at < end; at += LINE_BYTES) touch(at);
}
#else
void wfi_touches(const void *data, size_t bytes, bool writes) {
    (void)data, (void)bytes, (void)writes;
}
#endif
