/* Counter-based random numbers: Philox4x32-10 (Salmon, Moraes, Dror, Shaw,
 * "Parallel random numbers: as easy as 1, 2, 3", SC 2011). A number is a pure
 * function of its key and its index, so it is the same on any rank. */
#pragma once

#include "base/variants.h"

#include <stdint.h>

/* Identifies a stream of numbers: the user's seed and the name of their purpose. */
typedef struct wfi_random_key {
    uint64_t seed, name;
} wfi_random_key;

#pragma GCC visibility push(default) /* for libweft-data, too (CMakeLists.txt) */

/* FNV-1a of a name, the `name` of a key. */
uint64_t wfi_random_name(const char *name);

/* Four independent 32-bit words for counter (`high`, `low`). */
void wfi_random_words(wfi_random_key key, uint64_t high, uint64_t low, uint32_t words_out[4]);

/* Element `index` of the stream: uniform in [0, 1) with 24 bits, and standard
 * normal (Box-Muller). */
float wfi_random_uniform(wfi_random_key key, uint64_t high, uint64_t index);
float wfi_random_normal(wfi_random_key key, uint64_t high, uint64_t index);

/* Many elements at once, from `first` on: the same numbers, four times as fast. The normal ones are
 * multiplied by `scale`. */
void wfi_random_fill_uniform(wfi_random_key key, uint64_t high, uint64_t first, int64_t n,
                             float *out);
/* The same by that variant of the loop. */
void wfi_random_draw_uniform(wfi_variant variant, wfi_random_key key, uint64_t high, uint64_t first,
                             int64_t n, float *out);
void wfi_random_fill_normal(wfi_random_key key, uint64_t high, uint64_t first, float scale,
                            int64_t n, float *out);

/* The share x of x : 1 - x that is distributed as Beta(alpha, alpha), alpha above 0. */
double wfi_random_beta(wfi_random_key key, uint64_t high, double alpha);

/* A permutation of [0, n): order_out[i] is the element at place i. */
void wfi_random_shuffle(wfi_random_key key, uint64_t high, int64_t n, int64_t *order_out);

#pragma GCC visibility pop
