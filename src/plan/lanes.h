/* Lanes: independent sums of gradients, added over one fixed balanced tree. Private.
 *
 * The tree is that of base/tree.h: a rank that owns a whole subtree of lanes can sum it alone.
 */
#ifndef WFI_LANES_H
#define WFI_LANES_H

#include "base/base.h"

/* Whether `dp` ranks of n_lanes / dp lanes each own whole subtrees. */
bool wfi_lanes_allow(int64_t n_lanes, int64_t dp);

/* Accumulator `from` is added to accumulator `into`; then it is free. */
typedef struct wfi_lane_fold {
    int32_t into, from;
} wfi_lane_fold;

/* How the lanes are summed over their tree with as few accumulators as can be. */
typedef struct wfi_lane_sums {
    int32_t
        *accumulator; /* [n_lanes] in which each lane is summed; the first's is 0, the result's */
    int32_t
        *first_fold; /* [n_lanes + 1] lane k is followed by folds first_fold[k] to [k + 1] - 1 */
    wfi_lane_fold *folds; /* [n_lanes - 1] */
    int32_t n_accumulators;
} wfi_lane_sums;

/* The lanes are n_groups runs of equal size, of which all work at once: the first lanes of all
 * groups, then the second ones, ... With one group, one lane works after the other. The arrays
 * are the pool's. */
wf_status wfi_lanes_sum(wfi_pool *pool, int64_t n_lanes, int64_t n_groups, wfi_lane_sums *sums_out);

#endif
