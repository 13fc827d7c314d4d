/* Sums of several arrays, elementwise, over the tree of base/tree.h. Private.
 *
 * The order of additions is a function of the number of arrays alone, so every algorithm and
 * every wire that sums with these gives the same bits.
 */
#ifndef WFI_SUM_H
#define WFI_SUM_H

#include <stdint.h>

/* out = left + right. `out` may be one of both; which comes first makes no difference. */
void wfi_sum_pair(const float *left, const float *right, int64_t n_elem, float *out);
/* out = the sum of in[0] to in[count - 1]; `out` may be one of them. */
void wfi_sum_all(const float *const *in, int32_t count, int64_t n_elem, float *out);

#endif
