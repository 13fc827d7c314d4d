#include "plan/lanes.h"
#include "base/tree.h"

bool wfi_lanes_allow(int64_t n_lanes, int64_t dp) {
    if (dp < 1 || n_lanes % dp) return false;
    if (dp == 1) return true;
    int64_t left_lanes = wfi_tree_split(n_lanes), left_ranks = wfi_tree_split(dp);
    int64_t lanes_per_rank = n_lanes / dp;
    return left_lanes == left_ranks * lanes_per_rank && wfi_lanes_allow(left_lanes, left_ranks) &&
           wfi_lanes_allow(n_lanes - left_lanes, dp - left_ranks);
}

int wfi_lane_folds(int64_t n_lanes, int64_t lane, int *depth_out) {
    int depth = 0, folds = 0;
    while (n_lanes > 1) {
        int64_t left = wfi_tree_split(n_lanes);
        if (lane < left) {
            n_lanes = left;
            folds = 0;
        } else {
            lane -= left;
            n_lanes -= left;
            depth++; /* the left half's sum stays below on the stack */
            folds++; /* and is added to once this half is complete */
        }
    }
    *depth_out = depth;
    return folds;
}
