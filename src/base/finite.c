#include "base/finite.h"

#include "base/race.h"
#include "base/variants.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#define BLOCK_ELEMENTS 1024

typedef struct counting {
    const float *values;
    size_t n;
    uint32_t *n_bad;
} counting;

/* By the bits of the exponent, in whole numbers: so the loop becomes vectors, and no rounding mode
 * or flag of floating point has a part in it. */
WFI_LOOP void count_loop(const counting *c) {
    uint32_t n_bad = 0;
    for (size_t i = 0; i < c->n; i++) {
        uint32_t bits;
        memcpy(&bits, &c->values[i], sizeof bits);
        n_bad += (bits & UINT32_C(0x7F800000)) == UINT32_C(0x7F800000);
    }
    *c->n_bad = n_bad;
}

WFI_VARIANTS(count, counting, count_loop)

uint32_t wfi_count_not_finite(wfi_variant variant, const float *values, size_t n) {
    uint32_t n_bad;
    count(variant, &(counting){values, n, &n_bad});
    return n_bad;
}

size_t wfi_find_not_finite(const float *values, size_t n) {
    wfi_variant variant = wfi_best_variant();
    wfi_touches(values, n * sizeof *values, false);
    for (size_t begin = 0; begin < n; begin += BLOCK_ELEMENTS) {
        size_t n_block = n - begin < BLOCK_ELEMENTS ? n - begin : BLOCK_ELEMENTS;
        if (!wfi_count_not_finite(variant, values + begin, n_block)) continue;
        while (isfinite(values[begin])) begin++;
        return begin;
    }
    return n;
}

#define N_UNITS (INT64_C(1) << 32)

void wfi_not_finite_record(int64_t *cell, wfi_not_finite what, int32_t unit) {
    int64_t code = (int64_t)what * N_UNITS + unit;
    if (code > __atomic_load_n(cell, __ATOMIC_RELAXED))
        __atomic_store_n(cell, code, __ATOMIC_RELEASE);
}

wfi_not_finite wfi_not_finite_what(int64_t cell) {
    return (wfi_not_finite)(cell / N_UNITS);
}

int32_t wfi_not_finite_unit(int64_t cell) {
    return (int32_t)(cell % N_UNITS);
}
