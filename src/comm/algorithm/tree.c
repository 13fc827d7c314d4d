/* tree: recursive halving and doubling along the tree of base/tree.h.
 *
 * The ranks are the leaves. In a subtree each rank has one slice of the subtree's sum, a leaf all
 * of its own gradient. Where two subtrees merge, every rank adds one slice of the left sum to that
 * of the right sum. So the partial sums are the tree's own. Then redoubling goes the same way back:
 * from a slice of the larger subtree's sum to one of the smaller.
 *
 * The slices of both sides alternate (left, right, left, ...). So one rank of each pair keeps the
 * first half of both slices, the other the second. The algorithm works for any number of ranks. If
 * it is not a power of two, slices also overlap a neighbour's.
 */
#include "base/tree.h"
#include "comm/algorithm/allreduce.h"

/* Ranks `first` to first + n - 1. */
typedef struct subtree {
    int32_t first, n;
} subtree;

static subtree left_of(subtree t) {
    return (subtree){t.first, (int32_t)wfi_tree_split(t.n)};
}

static subtree right_of(subtree t) {
    int32_t n_left = (int32_t)wfi_tree_split(t.n);
    return (subtree){t.first + n_left, t.n - n_left};
}

static bool has(subtree t, int32_t rank) {
    return rank >= t.first && rank < t.first + t.n;
}

/* The subtree at that depth that has the rank; a leaf if its depth is smaller. */
static subtree subtree_at(int32_t n, int32_t rank, int32_t depth) {
    subtree t = {0, n};
    for (; depth > 0 && t.n > 1; depth--) t = has(left_of(t), rank) ? left_of(t) : right_of(t);
    return t;
}

static int32_t depth_of(int32_t n) {
    int32_t depth = 0;
    for (; n > 1; n = (int32_t)wfi_tree_split(n)) depth++;
    return depth;
}

/* The slice (of t.n) of a rank, and the rank of slice k. */
static int32_t slice_of(subtree t, int32_t rank) {
    if (t.n == 1) return 0;
    bool is_left = has(left_of(t), rank);
    return 2 * slice_of(is_left ? left_of(t) : right_of(t), rank) + !is_left;
}

static int32_t owner_of(subtree t, int32_t k) {
    if (t.n == 1) return t.first;
    return owner_of(k % 2 ? right_of(t) : left_of(t), k / 2);
}

/* Slices are cut at cache lines also where a reduce-scatter's other algorithms cut by rank. */
static void slice(const wfi_reduce_part *part, int32_t count, int32_t k, int64_t *begin_out,
                  int64_t *end_out) {
    wfi_reduce_part lines = {.n = part->n, .n_elem = part->n_elem, .n_line = part->n_line};
    wfi_reduce_slice(&lines, count, k, begin_out, end_out);
}

static void range_of(const wfi_reduce_part *part, subtree t, int32_t rank, int64_t *begin_out,
                     int64_t *end_out) {
    slice(part, t.n, slice_of(t, rank), begin_out, end_out);
}

/* The rank that has element `at`. Lowers *end_out to the end of that rank's range. */
static int32_t owner_at(const wfi_reduce_part *part, subtree t, int64_t at, int64_t *end_out) {
    int64_t begin, end = 0;
    int32_t k = -1;
    while (end <= at) slice(part, t.n, ++k, &begin, &end);
    *end_out = wfi_min_i64(*end_out, end);
    return owner_of(t, k);
}

static wfi_window window_of(subtree t) {
    return t.n == 1 ? WFI_WINDOW_IN : WFI_WINDOW_WORK;
}

static int32_t halve(const wfi_reduce_part *part, int32_t depth, wfi_reduce_step *steps) {
    subtree t = subtree_at(part->n, part->own, depth);
    int64_t at, end;
    int32_t n = 0;
    if (t.n == 1) return 0;
    for (range_of(part, t, part->own, &at, &end); at < end; at = steps[n - 1].end) {
        wfi_reduce_step add = {.kind = WFI_REDUCE_ADD,
                               .begin = at,
                               .end = end,
                               .left_in = window_of(left_of(t)),
                               .right_in = window_of(right_of(t)),
                               .to = WFI_WINDOW_WORK,
                               .at = at};
        add.left = owner_at(part, left_of(t), at, &add.end);
        add.right = owner_at(part, right_of(t), at, &add.end);
        if (depth == 0) wfi_reduce_complete(&wfi_allreduce_tree, part, &add);
        n = wfi_reduce_push(steps, n, add);
    }
    return n;
}

static int32_t redouble(const wfi_reduce_part *part, int32_t depth, wfi_reduce_step *steps) {
    subtree from = subtree_at(part->n, part->own, depth);
    subtree to = subtree_at(part->n, part->own, depth + 1);
    int64_t at, end;
    int32_t n = 0;
    if (from.n == 1) return 0;
    range_of(part, to, part->own, &at, &end);
    while (at < end) {
        wfi_reduce_step copy = {.kind = WFI_REDUCE_COPY,
                                .begin = at,
                                .end = end,
                                .left_in = WFI_WINDOW_OUT,
                                .to = WFI_WINDOW_OUT,
                                .at = at};
        copy.left = owner_at(part, from, at, &copy.end);
        if (copy.left != part->own) n = wfi_reduce_push(steps, n, copy);
        at = copy.end;
    }
    return n;
}

static int32_t n_phases(int32_t n) {
    return 2 * depth_of(n);
}

static int32_t list_steps(const wfi_reduce_part *part, wfi_reduce_step *steps) {
    int32_t depth = depth_of(part->n);
    return part->phase < depth ? halve(part, depth - 1 - part->phase, steps)
                               : redouble(part, part->phase - depth, steps);
}

static void owns(const wfi_reduce_part *part, int32_t k, int64_t *begin_out, int64_t *end_out) {
    range_of(part, (subtree){0, part->n}, k, begin_out, end_out);
}

const wfi_allreduce wfi_allreduce_tree = {
    .name = "tree",
    .n_phases = n_phases,
    .n_sums = depth_of,
    .steps = list_steps,
    .owns = owns,
    .is_partial = true,
};
