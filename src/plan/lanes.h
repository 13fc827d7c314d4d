/* Lanes: independent sums of gradients, added over one fixed balanced tree. Private.
 *
 * The tree is that of base/tree.h: a rank that owns a whole subtree of lanes can sum it alone. So
 * each replica has a home in the tree: the subtree at the place that the replica has in the tree of
 * all replicas. A replica usually computes the lanes of its home. Where shares are uneven it
 * computes lanes of others' homes as well: it folds the largest subtrees of each, and sends these
 * partial sums to the replicas that own these homes.
 */
#pragma once

#include "base/base.h"

/* Whether `dp` ranks of n_lanes / dp lanes each own whole subtrees. */
bool wfi_lanes_allow(int64_t n_lanes, int64_t dp);

/* Which lanes each replica computes, and its home. Replica k has lanes first[k] to first[k + 1]
 * - 1. */
typedef struct wfi_lane_shares {
    int64_t *first, *home; /* [n_replicas + 1] */
    int64_t n_lanes;
    int32_t n_replicas;
} wfi_lane_shares;

/* `given` [n_replicas] lanes of each replica, which add up to n_lanes; NULL: equal shares, which
 * are whole subtrees. At least a lane a replica. The arrays are the pool's. */
wf_status wfi_lanes_share(wfi_pool *pool, int64_t n_lanes, int32_t n_replicas, const int *given,
                          wfi_lane_shares *shares_out);

/* Accumulator `from` is added to accumulator `into`; then it is free. */
typedef struct wfi_lane_fold {
    int32_t into, from;
} wfi_lane_fold;

/* A partial sum that goes to or comes from another replica; it begins with lane `lane`. */
typedef struct wfi_lane_move {
    int64_t lane;
    int32_t accumulator, replica;
} wfi_lane_move;

/* How a replica sums its lanes over the tree with as few accumulators as can be. Lanes are counted
 * from the replica's first. */
typedef struct wfi_lane_sums {
    int32_t *accumulator; /* [n] in which each lane is summed; the result is in accumulator 0 */
    int32_t *first_fold;  /* [n + 1] lane k is followed by folds first_fold[k] to [k + 1] - 1 */
    wfi_lane_fold *folds;
    int32_t n_accumulators;
    /* After the last lane: partial sums that are sent and received, ascending, and the folds
     * first_fold[n] to n_folds - 1. */
    wfi_lane_move *sends, *receives;
    int32_t n_sends, n_receives, n_folds;
} wfi_lane_sums;

/* The sums of one replica. Its lanes are n_groups runs of equal size, of which all work at once:
 * the first lanes of all groups, then the second ones, ... With one group, one lane works after the
 * other. With as many groups as lanes, each lane has an accumulator of its own. The arrays are the
 * pool's. */
wf_status wfi_lanes_sum(wfi_pool *pool, const wfi_lane_shares *shares, int32_t replica,
                        int64_t n_groups, wfi_lane_sums *sums_out);
