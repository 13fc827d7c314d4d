/* Whether numbers are finite, and a record of those that are not. Private. */
#pragma once

#include "base/variants.h"

#include <stddef.h>
#include <stdint.h>

/* The first of `values` [n] that is infinite or no number; n: all are finite. */
size_t wfi_find_not_finite(const float *values, size_t n);
/* How many are; fewer than 2^32 values. */
uint32_t wfi_count_not_finite(wfi_variant variant, const float *values, size_t n);

/* Which tensors of a unit are non-finite: later values are nearer to the cause. */
typedef enum wfi_not_finite {
    WFI_FINITE_ALL,
    WFI_FINITE_NO_STATISTICS,
    WFI_FINITE_NO_STATE,
    WFI_FINITE_NO_WEIGHTS,
    WFI_FINITE_NO_GRADIENT
} wfi_not_finite;

/* Keeps it if the cell has nothing nearer to the cause, and of equals the last unit. One thread
 * writes a cell in a run. */
void wfi_not_finite_record(int64_t *cell, wfi_not_finite what, int32_t unit);
/* Decode a cell that is not 0. */
wfi_not_finite wfi_not_finite_what(int64_t cell);
int32_t wfi_not_finite_unit(int64_t cell);
