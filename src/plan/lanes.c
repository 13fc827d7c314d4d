#include "plan/lanes.h"
#include "base/tree.h"

#include <string.h>

bool wfi_lanes_allow(int64_t n_lanes, int64_t dp) {
    if (dp < 1 || n_lanes % dp) return false;
    if (dp == 1) return true;
    int64_t left_lanes = wfi_tree_split(n_lanes), left_ranks = wfi_tree_split(dp);
    int64_t lanes_per_rank = n_lanes / dp;
    return left_lanes == left_ranks * lanes_per_rank && wfi_lanes_allow(left_lanes, left_ranks) &&
           wfi_lanes_allow(n_lanes - left_lanes, dp - left_ranks);
}

/* ---- shares ---- */

/* The homes of replicas `replica` to replica + n - 1, which have `n_lanes` lanes from `lane` on. */
static void find_homes(int64_t *home, int64_t lane, int64_t n_lanes, int32_t replica, int32_t n) {
    home[replica] = lane;
    home[replica + n] = lane + n_lanes;
    if (n == 1) return;
    int64_t left_lanes = wfi_tree_split(n_lanes);
    int32_t left = (int32_t)wfi_tree_split(n);
    find_homes(home, lane, left_lanes, replica, left);
    find_homes(home, lane + left_lanes, n_lanes - left_lanes, replica + left, n - left);
}

wf_status wfi_lanes_share(wfi_pool *pool, int64_t n_lanes, int32_t n_replicas, const int *given,
                          wfi_lane_shares *out) {
    size_t n = (size_t)n_replicas + 1;
    int64_t *home = wfi_pool_alloc(pool, n, sizeof *home);
    int64_t *first = given ? wfi_pool_alloc(pool, n, sizeof *first) : home;
    *out = (wfi_lane_shares){first, home, n_lanes, n_replicas};
    if (!home || !first) return WF_NO_MEMORY;
    find_homes(home, 0, n_lanes, 0, n_replicas);
    for (int32_t k = 0; k < n_replicas && given; k++) first[k + 1] = first[k] + given[k];
    return WF_OK;
}

/* ---- sums ---- */

/* One replica's work: subtrees of its lanes and of the partial sums that it receives. */
typedef struct share_sum {
    wfi_lane_sums *out;
    const wfi_lane_shares *shares;
    int32_t own;
    int64_t begin, end; /* its lanes */
    int64_t low, high;  /* subtrees between these are folded */
    bool *is_used;      /* [2 * n_lanes + 2] by accumulator */
    /* [n_lanes] how many lanes from this one on are summed, and in which accumulator */
    int64_t *n_done;
    int32_t *accumulator_of;
} share_sum;

/* Accumulator 0 is kept for the first lane of the home. */
static int32_t take_accumulator(share_sum *x, int64_t lane) {
    int32_t a = lane != x->shares->home[x->own];
    while (a && x->is_used[a]) a++;
    x->is_used[a] = true;
    if (a >= x->out->n_accumulators) x->out->n_accumulators = a + 1;
    x->accumulator_of[lane] = a;
    return a;
}

/* Folds the complete parts of the subtree of n lanes from `begin` on, after the one that begins
 * with `lane` is complete. */
static void fold_between(share_sum *x, int64_t begin, int64_t n, int64_t lane) {
    if (n == 1 || x->n_done[lane] >= n) return;
    int64_t left = wfi_tree_split(n), right = begin + left;
    fold_between(x, lane < right ? begin : right, lane < right ? left : n - left, lane);
    bool is_between = begin >= x->low && begin + n <= x->high;
    if (!is_between || x->n_done[begin] != left || x->n_done[right] != n - left) return;
    int32_t from = x->accumulator_of[right];
    x->out->folds[x->out->n_folds++] = (wfi_lane_fold){x->accumulator_of[begin], from};
    x->is_used[from] = false;
    x->n_done[begin] = n;
    x->n_done[right] = 0;
}

/* Folds those of the lane's home. */
static void end_lane(share_sum *x, int64_t lane) {
    const wfi_lane_shares *shares = x->shares;
    int32_t home = 0;
    while (lane >= shares->home[home + 1]) home++;
    x->low = wfi_max_i64(shares->home[home], x->begin);
    x->high = wfi_min_i64(shares->home[home + 1], x->end);
    x->n_done[lane] = 1;
    fold_between(x, 0, shares->n_lanes, lane);
}

/* In the order in which lanes are complete. */
static void sum_own_lanes(share_sum *x, int64_t n_groups, int32_t *first) {
    int64_t n_own = (x->end - x->begin) / n_groups;
    for (int64_t k = 0; k < n_own; k++) {
        for (int64_t lane = k; lane < x->end - x->begin; lane += n_own)
            x->out->accumulator[lane] = take_accumulator(x, x->begin + lane);
        for (int64_t lane = k; lane < x->end - x->begin; lane += n_own) {
            first[lane] = x->out->n_folds;
            end_lane(x, x->begin + lane);
            x->out->first_fold[lane + 1] = x->out->n_folds - first[lane];
        }
    }
}

/* From the order of completion, where lane k has those from first[k] on, to that of lanes. */
static void sort_folds(const share_sum *x, const int32_t *first, wfi_lane_fold *by_time) {
    memcpy(by_time, x->out->folds, (size_t)x->out->n_folds * sizeof *by_time);
    for (int64_t lane = 0; lane < x->end - x->begin; lane++) {
        int32_t *begin = &x->out->first_fold[lane], n = begin[1];
        memcpy(x->out->folds + *begin, by_time + first[lane], (size_t)n * sizeof *by_time);
        begin[1] = *begin + n;
    }
}

/* The largest subtrees between two lanes, from the subtree of n lanes from `begin` on. */
static int32_t list_subtrees(int64_t begin, int64_t n, int64_t low, int64_t high, int64_t *lanes,
                             int64_t *sizes, int32_t n_found) {
    if (begin >= high || begin + n <= low) return n_found;
    if (begin >= low && begin + n <= high) {
        lanes[n_found] = begin;
        sizes[n_found] = n;
        return n_found + 1;
    }
    int64_t left = wfi_tree_split(n);
    n_found = list_subtrees(begin, left, low, high, lanes, sizes, n_found);
    return list_subtrees(begin + left, n - left, low, high, lanes, sizes, n_found);
}

/* Partial sums that replica `from` computes for the home of replica `to`. */
static int32_t list_between(const wfi_lane_shares *s, int32_t from, int32_t to, int64_t *lanes,
                            int64_t *sizes) {
    int64_t low = wfi_max_i64(s->first[from], s->home[to]);
    int64_t high = wfi_min_i64(s->first[from + 1], s->home[to + 1]);
    return low < high ? list_subtrees(0, s->n_lanes, low, high, lanes, sizes, 0) : 0;
}

static void exchange(share_sum *x, int64_t *lanes, int64_t *sizes) {
    wfi_lane_sums *out = x->out;
    const wfi_lane_shares *shares = x->shares;
    for (int32_t other = 0; other < shares->n_replicas; other++) {
        int32_t n = other == x->own ? 0 : list_between(shares, x->own, other, lanes, sizes);
        for (int32_t k = 0; k < n; k++)
            out->sends[out->n_sends++] =
                (wfi_lane_move){lanes[k], x->accumulator_of[lanes[k]], other};
    }
    x->low = shares->home[x->own];
    x->high = shares->home[x->own + 1];
    for (int32_t other = 0; other < shares->n_replicas; other++) {
        int32_t n = other == x->own ? 0 : list_between(shares, other, x->own, lanes, sizes);
        for (int32_t k = 0; k < n; k++) {
            out->receives[out->n_receives++] =
                (wfi_lane_move){lanes[k], take_accumulator(x, lanes[k]), other};
            x->n_done[lanes[k]] = sizes[k];
        }
    }
    for (int64_t lane = x->low; lane < x->high; lane++)
        if (x->n_done[lane]) fold_between(x, 0, shares->n_lanes, lane);
}

wf_status wfi_lanes_sum(wfi_pool *pool, const wfi_lane_shares *shares, int32_t replica,
                        int64_t n_groups, wfi_lane_sums *out) {
    size_t n = (size_t)shares->n_lanes;
    share_sum x = {.out = out,
                   .shares = shares,
                   .own = replica,
                   .begin = shares->first[replica],
                   .end = shares->first[replica + 1]};
    *out = (wfi_lane_sums){.accumulator = wfi_pool_alloc(pool, n, sizeof(int32_t)),
                           .first_fold = wfi_pool_alloc(pool, n + 1, sizeof(int32_t)),
                           .folds = wfi_pool_alloc(pool, n, sizeof(wfi_lane_fold)),
                           .sends = wfi_pool_alloc(pool, n, sizeof(wfi_lane_move)),
                           .receives = wfi_pool_alloc(pool, n, sizeof(wfi_lane_move))};
    x.is_used = wfi_pool_alloc(pool, 2 * n + 2, sizeof *x.is_used);
    x.n_done = wfi_pool_alloc(pool, n, sizeof *x.n_done);
    x.accumulator_of = wfi_pool_alloc(pool, n, sizeof *x.accumulator_of);
    int32_t *first = wfi_pool_alloc(pool, n, sizeof *first);
    wfi_lane_fold *by_time = wfi_pool_alloc(pool, n, sizeof *by_time);
    int64_t *lanes = wfi_pool_alloc(pool, n, sizeof *lanes);
    int64_t *sizes = wfi_pool_alloc(pool, n, sizeof *sizes);
    if (!out->accumulator || !out->first_fold || !out->folds || !out->sends || !out->receives ||
        !x.is_used || !x.n_done || !x.accumulator_of || !first || !by_time || !lanes || !sizes)
        return WF_NO_MEMORY;
    sum_own_lanes(&x, n_groups, first);
    sort_folds(&x, first, by_time);
    exchange(&x, lanes, sizes);
    return WF_OK;
}
