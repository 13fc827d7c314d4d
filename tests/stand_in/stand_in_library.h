/* What the stand-ins of CUDA's libraries share, beside the driver's stand-in, on which they are. */
#ifndef STAND_IN_LIBRARY_H
#define STAND_IN_LIBRARY_H

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

/* Whether `n` numbers of F32 lie at such an address of the GPU. */
static inline bool are_there(const void *address, size_t n, size_t align) {
    return address && (uintptr_t)address % align == 0 &&
           stand_in_reaches((CUdeviceptr)(uintptr_t)address, n * sizeof(float));
}

#endif
