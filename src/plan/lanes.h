/* Lanes: independent sums of gradients, added over one fixed balanced tree. Private.
 *
 * The tree is that of base/tree.h: a rank that owns a whole subtree of lanes can sum it alone.
 */
#ifndef WFI_LANES_H
#define WFI_LANES_H

#include <stdbool.h>
#include <stdint.h>

/* Whether `dp` ranks of n_lanes / dp lanes each own whole subtrees. */
bool wfi_lanes_allow(int64_t n_lanes, int64_t dp);

/* How many additions follow lane `lane` when the tree is summed with a stack: each
 * adds the top accumulator to the one below it. *depth_out: the accumulator that the
 * lane itself is summed in. */
int wfi_lane_folds(int64_t n_lanes, int64_t lane, int *depth_out);

#endif
