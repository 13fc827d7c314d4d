/* Lanes: independent sums of gradients, added over one fixed balanced tree. Private.
 *
 * The tree over n leaves splits into the first ceil(n / 2) and the rest. A rank
 * that owns a whole subtree can sum it alone, so the result has the same bits for
 * any number of ranks that divides the tree.
 */
#ifndef WFI_LANES_H
#define WFI_LANES_H

#include <stdbool.h>
#include <stdint.h>

static inline int64_t wfi_lane_split(int64_t n) {
    return (n + 1) / 2;
}

/* Whether `dp` ranks of n_lanes / dp lanes each own whole subtrees. */
bool wfi_lanes_allow(int64_t n_lanes, int64_t dp);

/* How many additions follow lane `lane` when the tree is summed with a stack: each
 * adds the top accumulator to the one below it. *depth_out: the accumulator that the
 * lane itself is summed in. */
int wfi_lane_folds(int64_t n_lanes, int64_t lane, int *depth_out);

#endif
