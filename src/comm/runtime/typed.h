/* Arithmetic on elements of any type. Private.
 *
 * Reductions of several arrays follow the tree of base/tree.h, element by element. The order
 * depends only on the number of arrays, so every algorithm and every wire gives the same bits. Sums
 * have the sum type: F32 for BF16, otherwise the elements' own. Integers wrap. MIN and MAX are NaN
 * if any element is NaN. The minimum or maximum of -0 and +0 may be either, but all algorithms of
 * the fixed order return the same one.
 */
#pragma once

#include "base/base.h"
#include "base/variants.h"

#include <weft/group.h>

typedef struct wfi_arithmetic {
    wf_dtype dtype;
    wf_reduction op;
    int32_t n_mean; /* MEAN: the divisor of a complete sum */
} wfi_arithmetic;

/* One loop over n elements with the given variant: combines two arrays of the sum type `a->dtype`.
 * With `right` NULL it widens BF16 to F32, or rounds F32 to BF16 (`a->dtype` is the type of
 * `left`). */
void wfi_combine(wfi_variant variant, const wfi_arithmetic *a, const void *left, const void *right,
                 int64_t n, void *out);

/* The type of sums: F32 for BF16, otherwise the elements' own. */
wf_dtype wfi_sum_dtype(wf_dtype dtype);

/* An array of elements, or of partial sums. */
typedef struct wfi_summand {
    const void *data;
    bool is_sum;
} wfi_summand;

/* The result: complete (divided, rounded) elements, or partial sums. */
typedef struct wfi_result {
    void *const *data; /* [n] copies of the result; each is an operand or disjoint */
    int32_t n;
    bool is_sum;
    bool streams; /* bypasses the caches; wfi_stream_fence makes it visible */
} wfi_result;

/* Reduces all elements of in[0] to in[count - 1]. */
void wfi_reduce_all(const wfi_arithmetic *a, const void *const *in, int32_t count, int64_t n_elem,
                    const wfi_result *out);
/* Reduces two arrays in this order. */
void wfi_reduce_pair(const wfi_arithmetic *a, wfi_summand left, wfi_summand right, int64_t n_elem,
                     const wfi_result *out);
/* Copies; partial sums become a complete result if out->is_sum is false. */
void wfi_reduce_copy(const wfi_arithmetic *a, wfi_summand in, int64_t n_elem,
                     const wfi_result *out);

/* memcpy with stores that bypass the caches, for data that is not read soon. */
void wfi_stream_copy(void *to, const void *from, size_t bytes);
/* Called after the last streaming copy: makes the copies visible before later stores. */
void wfi_stream_fence(void);
