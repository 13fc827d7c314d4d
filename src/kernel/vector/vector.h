/* Sixteen numbers side by side, for loops that are compiled for several instruction sets
 * (base/variants.h). Private.
 *
 * GCC's and clang's vectors: each operation is on all sixteen, and becomes as many instructions as
 * it takes. Vectors are passed by address, as the way in which a function is given one depends on
 * the instruction set.
 */
#pragma once

#include "base/variants.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define WFI_LANES 16

typedef float wfi_vector __attribute__((vector_size(WFI_LANES * sizeof(float))));
/* Of a comparison: all bits, or none. */
typedef int32_t wfi_mask __attribute__((vector_size(WFI_LANES * sizeof(int32_t))));
typedef uint32_t wfi_words __attribute__((vector_size(WFI_LANES * sizeof(uint32_t))));
typedef uint16_t wfi_halves __attribute__((vector_size(WFI_LANES * sizeof(uint16_t))));

/* The bits of x where `mask` is set, otherwise those of y. */
#define WFI_SELECT(mask, x, y) ((wfi_vector)(((mask) & (wfi_mask)(x)) | (~(mask) & (wfi_mask)(y))))

/* Elements from `at` on of an array of F32 or BF16. */
WFI_LOOP void wfi_vector_load(const void *data, int64_t at, bool is_narrow, wfi_vector *out) {
    if (!is_narrow) {
        memcpy(out, (const float *)data + at, sizeof *out);
        return;
    }
    wfi_halves narrow;
    memcpy(&narrow, (const uint16_t *)data + at, sizeof narrow);
    *out = (wfi_vector)(__builtin_convertvector(narrow, wfi_words) << 16);
}

/* BF16 is rounded as comm/runtime/typed.c does. */
WFI_LOOP void wfi_vector_store(void *data, int64_t at, bool is_narrow, const wfi_vector *in) {
    if (!is_narrow) {
        memcpy((float *)data + at, in, sizeof *in);
        return;
    }
    wfi_words wide = (wfi_words)*in, is_nan = (wfi_words)(*in != *in);
    wfi_words rounded = wide + 0x7fff + (wide >> 16 & 1);
    rounded = (is_nan & (wide | 0x400000)) | (~is_nan & rounded);
    wfi_halves narrow = __builtin_convertvector(rounded >> 16, wfi_halves);
    memcpy((uint16_t *)data + at, &narrow, sizeof narrow);
}
