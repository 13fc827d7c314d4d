/* Copies that bypass the caches. A cached store would first fetch the line that it overwrites,
 * which costs as much memory bandwidth as the copy itself. */
#include "comm/runtime/typed.h"

#include <string.h>

#if defined(__SSE2__)

#include <emmintrin.h>

#define LINE_BYTES 64

static void copy_line(char *to, const char *from) {
    const __m128i *f = (const __m128i *)(const void *)from;
    __m128i *t = (__m128i *)(void *)to;
    __m128i a = _mm_loadu_si128(f), b = _mm_loadu_si128(f + 1), c = _mm_loadu_si128(f + 2),
            d = _mm_loadu_si128(f + 3);
    _mm_stream_si128(t, a);
    _mm_stream_si128(t + 1, b);
    _mm_stream_si128(t + 2, c);
    _mm_stream_si128(t + 3, d);
}

/* Streams whole lines and copies the ends. */
void wfi_stream_copy(void *to, const void *from, size_t bytes) {
    size_t head = (LINE_BYTES - (uintptr_t)to % LINE_BYTES) % LINE_BYTES, at;
    if (head > bytes) head = bytes;
    memcpy(to, from, head);
    for (at = head; at + LINE_BYTES <= bytes; at += LINE_BYTES)
        copy_line((char *)to + at, (const char *)from + at);
    memcpy((char *)to + at, (const char *)from + at, bytes - at);
}

void wfi_stream_fence(void) {
    _mm_sfence();
}

#else

void wfi_stream_copy(void *to, const void *from, size_t bytes) {
    memcpy(to, from, bytes);
}

void wfi_stream_fence(void) {}

#endif
