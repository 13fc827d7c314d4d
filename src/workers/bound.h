/* The bound of staleness, which selects the gradients that may be applied next. Private. */
#pragma once

#include <stdint.h>

/* Finds the gradients that may be applied next under a bound, in updates (-1: none). readers [n]
 * are the workers that have read parameters and are not applied yet, by version. Their gradients
 * keep the bound best if they are applied in this order. Applying one of them first delays all
 * before it by one update. Returns the place of the last one for which all before it still keep the
 * bound. */
int32_t wfi_bound_last(const int32_t *readers, int32_t n, const int64_t *versions, int64_t version,
                       int64_t bound);
