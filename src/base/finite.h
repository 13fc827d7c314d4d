/* Whether numbers are finite. Private. */
#ifndef WFI_FINITE_H
#define WFI_FINITE_H

#include <stddef.h>

/* The first of `values` [n] that is infinite or no number; n: all are finite. */
size_t wfi_find_not_finite(const float *values, size_t n);

#endif
