/* Arithmetic on elements of any type. Private.
 *
 * Reductions of several arrays are made over the tree of base/tree.h, elementwise: the order is a
 * function of their number alone, so every algorithm and every wire gives the same bits. They are
 * made in the sum type: F32 for BF16, otherwise the elements' own. Integers wrap. MIN and MAX are
 * NaN where any element is; of -0 and +0 either may be taken, but by all algorithms of the fixed
 * order the same.
 */
#ifndef WFI_TYPED_H
#define WFI_TYPED_H

#include "base/base.h"
#include "base/variants.h"

#include <weft/group.h>

typedef struct wfi_arithmetic {
    wf_dtype dtype;
    wf_reduction op;
    int32_t n_mean; /* MEAN: what a complete sum is divided by */
} wfi_arithmetic;

/* One loop of the above, by that variant: n elements of the sum type `a->dtype`, combined; or, with
 * `right` NULL, BF16 widened to F32, or F32 rounded to BF16 (by `a->dtype`, of `left`). */
void wfi_combine(wfi_variant variant, const wfi_arithmetic *a, const void *left, const void *right,
                 int64_t n, void *out);

/* The type of sums: F32 for BF16, otherwise the elements' own. */
wf_dtype wfi_sum_dtype(wf_dtype dtype);

/* An array of elements, or of partial sums. */
typedef struct wfi_summand {
    const void *data;
    bool is_sum;
} wfi_summand;

/* Where a result goes: complete (divided, rounded) elements, or partial sums. */
typedef struct wfi_result {
    void *const *data; /* [n] all get the same; each may be one of the operands, or apart */
    int32_t n;
    bool is_sum;
    bool streams; /* past the caches; wfi_stream_fence makes it visible */
} wfi_result;

/* The reduction of in[0] to in[count - 1], all elements. */
void wfi_reduce_all(const wfi_arithmetic *a, const void *const *in, int32_t count, int64_t n_elem,
                    const wfi_result *out);
/* Of two, in this order. */
void wfi_reduce_pair(const wfi_arithmetic *a, wfi_summand left, wfi_summand right, int64_t n_elem,
                     const wfi_result *out);
/* A copy; of partial sums into a complete result if out->is_sum is false. */
void wfi_reduce_copy(const wfi_arithmetic *a, wfi_summand in, int64_t n_elem,
                     const wfi_result *out);

/* memcpy with stores that leave the caches alone, for what is not read again soon. */
void wfi_stream_copy(void *to, const void *from, size_t bytes);
/* After the last of them: whoever is told then sees them. */
void wfi_stream_fence(void);

#endif
