/* The summation tree of all sums with a fixed order. Private.
 *
 * Over n leaves it splits into the first ceil(n / 2) and the rest. The owner of a whole subtree can
 * sum it alone, so the result has the same bits for any number of owners that divides the tree.
 */
#pragma once

#include <stdint.h>

/* How many of n leaves are the left subtree's. */
static inline int64_t wfi_tree_split(int64_t n) {
    return (n + 1) / 2;
}
