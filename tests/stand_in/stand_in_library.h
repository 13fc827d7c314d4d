/* What the stand-ins of CUDA's libraries share, beside the driver's stand-in, on which they are. */
#pragma once

#include "stand_in.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

/* The driver's. */
wfi_cuda_enum cuCtxPopCurrent_v2(CUcontext *context_out);
wfi_cuda_enum cuCtxPushCurrent_v2(CUcontext context);

/* The calling thread's context, which handles belong to; NULL: it has none. */
static inline CUcontext current_context(void) {
    CUcontext context = NULL;
    if (cuCtxPopCurrent_v2(&context)) return NULL;
    cuCtxPushCurrent_v2(context);
    return context;
}

/* Something else each time, for algorithms that are not to be chosen. */
static inline float noise(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (float)(now.tv_nsec % 1024) * 1e-5f;
}

/* One algorithm takes much longer than others: the one whose number the variable STAND_IN_SLOW is.
 */
static inline void take_time(long long algorithm) {
    const struct timespec long_time = {0, 150000000};
    if (algorithm == stand_in_variable("STAND_IN_SLOW", -1)) nanosleep(&long_time, NULL);
}

/* Types of numbers, as CUDA's libraries count them each; what they are here. */
typedef enum number_type { NUMBER_F32, NUMBER_BF16 } number_type;

static inline size_t number_bytes(number_type type) {
    return type == NUMBER_BF16 ? 2 : 4;
}

/* To the nearest of those with the upper 32 - n_bits bits, the even one of two. */
static inline float rounded(float x, int n_bits) {
    uint32_t bits, half = (uint32_t)1 << (n_bits - 1);
    memcpy(&bits, &x, sizeof bits);
    if (x == x) bits += half - 1 + (bits >> n_bits & 1);
    bits &= ~(2 * half - 1);
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline float number_at(const void *data, number_type type, size_t at) {
    uint32_t wide;
    float x;
    if (type == NUMBER_F32) return ((const float *)data)[at];
    wide = (uint32_t)((const uint16_t *)data)[at] << 16;
    memcpy(&x, &wide, sizeof x);
    return x;
}

static inline void put_number(void *data, number_type type, size_t at, float x) {
    if (type == NUMBER_F32) {
        ((float *)data)[at] = x;
        return;
    }
    uint32_t bits;
    x = rounded(x, 16);
    memcpy(&bits, &x, sizeof bits);
    ((uint16_t *)data)[at] = (uint16_t)(bits >> 16);
}

/* Whether `n` such numbers lie at such an address of the GPU. */
static inline bool are_there(const void *address, number_type type, size_t n, size_t align) {
    return address && (uintptr_t)address % align == 0 &&
           stand_in_reaches((CUdeviceptr)(uintptr_t)address, n * number_bytes(type));
}
