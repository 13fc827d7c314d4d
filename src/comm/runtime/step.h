/* Runs a step of a collective on any memory of ranks. Private. */
#pragma once

#include "comm/algorithm/allreduce.h"
#include "comm/runtime/typed.h"

/* The memory that steps work on. */
typedef struct wfi_step_memory {
    const wfi_arithmetic *arithmetic;
    /* The address of element `at` of that rank's window in this process. */
    char *(*address)(const void *self, int32_t rank, wfi_window window, int64_t at);
    const void *self;
    size_t stream_bytes; /* results of at least this size bypass the caches; 0: none */
} wfi_step_memory;

/* Returns whether the result bypassed the caches; wfi_stream_fence makes it visible. */
bool wfi_reduce_run(const wfi_step_memory *m, const wfi_reduce_part *part,
                    const wfi_reduce_step *step);
