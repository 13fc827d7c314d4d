/* A slow rank, for tests and measurements. Private.
 *
 * After the instructions on its compute stream, a slow rank sleeps factor - 1 times as long as they
 * took, WFI_SLOW_MOST_NS for each at most. The system sleeps longer than requested. So the rank
 * adds up short sleeps, and excess time shortens the next sleep. The factor is a field of the
 * rank's worker.
 */
#pragma once

#include "base/base.h"

#define WFI_SLOW_MAX      1000 /* the largest factor */
#define WFI_SLOW_MOST_NS  5000000000LL
#define WFI_SLOW_LEAST_NS 200000LL /* the shortest sleep */

typedef struct wfi_slow {
    int32_t rank;  /* -1: none */
    double factor; /* from 1; 1 does not slow */
} wfi_slow;

/* Reads WEFT_SLOW_RANK. Errors: INVALID_ARG; the sentence names the variable and its value. */
wf_status wfi_slow_read(wf_context *ctx, wfi_slow *slow_out);

/* Returns the sleep of a rank after an instruction that took `took_ns`. */
int64_t wfi_slow_ns(double factor, int64_t took_ns);

/* The executor calls these around an instruction. The first returns the begin; the second sleeps.
 */
struct wfi_executor;
struct wfi_instruction;
int64_t wfi_slow_begin(const struct wfi_executor *e, const struct wfi_instruction *now);
void wfi_slow_end(const struct wfi_executor *e, const struct wfi_instruction *now,
                  int64_t begin_ns);
