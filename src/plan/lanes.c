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

/* ---- accumulators ---- */

typedef struct summation {
    wfi_lane_sums *out;
    bool *is_used;   /* [n_lanes] by accumulator */
    int64_t *n_done; /* [n_lanes] how many lanes from this one on are summed in its accumulator */
    int64_t n_lanes;
    int32_t n_folds;
} summation;

static void begin_lane(summation *s, int64_t lane) {
    int32_t a = 0;
    while (s->is_used[a]) a++;
    s->is_used[a] = true;
    s->out->accumulator[lane] = a;
    if (a >= s->out->n_accumulators) s->out->n_accumulators = a + 1;
}

/* Folds the complete parts of the subtree of n lanes from `begin` on, which contains `lane`. */
static void fold_subtree(summation *s, int64_t begin, int64_t n, int64_t lane) {
    if (n == 1) {
        s->n_done[lane] = 1;
        return;
    }
    int64_t left = wfi_tree_split(n), right = begin + left;
    if (lane < right)
        fold_subtree(s, begin, left, lane);
    else
        fold_subtree(s, right, n - left, lane);
    if (s->n_done[begin] != left || s->n_done[right] != n - left) return;
    int32_t from = s->out->accumulator[right];
    s->out->folds[s->n_folds++] = (wfi_lane_fold){s->out->accumulator[begin], from};
    s->is_used[from] = false;
    s->n_done[begin] = n;
}

/* In the order in which lanes are complete; folds are kept by lane. */
static void sum_groups(summation *s, int64_t n_groups, int32_t *count) {
    int64_t n_own = s->n_lanes / n_groups;
    for (int64_t k = 0; k < n_own; k++) {
        for (int64_t g = 0; g < n_groups; g++) begin_lane(s, g * n_own + k);
        for (int64_t g = 0; g < n_groups; g++) {
            int32_t before = s->n_folds;
            fold_subtree(s, 0, s->n_lanes, g * n_own + k);
            count[g * n_own + k] = s->n_folds - before;
        }
    }
}

/* From the order of completion to that of lanes. */
static void sort_folds(summation *s, int64_t n_groups, const int32_t *count,
                       const wfi_lane_fold *by_time) {
    int64_t n_own = s->n_lanes / n_groups;
    int32_t *first = s->out->first_fold;
    first[0] = 0;
    for (int64_t lane = 0; lane < s->n_lanes; lane++) first[lane + 1] = first[lane] + count[lane];
    for (int64_t k = 0; k < n_own; k++)
        for (int64_t g = 0; g < n_groups; g++)
            for (int32_t f = 0; f < count[g * n_own + k]; f++)
                s->out->folds[first[g * n_own + k] + f] = *by_time++;
}

wf_status wfi_lanes_sum(wfi_pool *pool, int64_t n_lanes, int64_t n_groups, wfi_lane_sums *out) {
    size_t n = (size_t)n_lanes;
    *out = (wfi_lane_sums){.accumulator = wfi_pool_alloc(pool, n, sizeof(int32_t)),
                           .first_fold = wfi_pool_alloc(pool, n + 1, sizeof(int32_t)),
                           .folds = wfi_pool_alloc(pool, n, sizeof(wfi_lane_fold))};
    summation s = {.out = out, .n_lanes = n_lanes};
    s.is_used = wfi_pool_alloc(pool, n, sizeof *s.is_used);
    s.n_done = wfi_pool_alloc(pool, n, sizeof *s.n_done);
    int32_t *count = wfi_pool_alloc(pool, n, sizeof *count);
    wfi_lane_fold *by_time = wfi_pool_alloc(pool, n, sizeof *by_time);
    if (!out->accumulator || !out->first_fold || !out->folds || !s.is_used || !s.n_done || !count ||
        !by_time)
        return WF_NO_MEMORY;
    sum_groups(&s, n_groups, count);
    memcpy(by_time, out->folds, n * sizeof *by_time);
    sort_folds(&s, n_groups, count, by_time);
    out->n_folds = out->first_fold[n_lanes];
    return WF_OK;
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

/* One replica's work: subtrees of its lanes and of the partial sums that it receives. */
typedef struct share_sum {
    summation s;
    const wfi_lane_shares *shares;
    int64_t begin, end;      /* its lanes */
    int64_t low, high;       /* subtrees between these are folded */
    int32_t *accumulator_of; /* [n_lanes] of the subtree that begins there */
    bool at_once;
    int32_t own;
} share_sum;

/* Accumulator 0 is kept for the first lane of the home. */
static int32_t take_accumulator(share_sum *x, int64_t lane) {
    int32_t a = lane != x->shares->home[x->own];
    while (a && x->s.is_used[a]) a++;
    x->s.is_used[a] = true;
    if (a >= x->s.out->n_accumulators) x->s.out->n_accumulators = a + 1;
    x->accumulator_of[lane] = a;
    return a;
}

/* Folds the complete parts of the subtree of n lanes from `begin` on, after the one that begins
 * with `lane` is complete. */
static void fold_between(share_sum *x, int64_t begin, int64_t n, int64_t lane) {
    if (n == 1 || x->s.n_done[lane] >= n) return;
    int64_t left = wfi_tree_split(n), right = begin + left;
    fold_between(x, lane < right ? begin : right, lane < right ? left : n - left, lane);
    bool is_between = begin >= x->low && begin + n <= x->high;
    if (!is_between || x->s.n_done[begin] != left || x->s.n_done[right] != n - left) return;
    int32_t from = x->accumulator_of[right];
    x->s.out->folds[x->s.n_folds++] = (wfi_lane_fold){x->accumulator_of[begin], from};
    x->s.is_used[from] = x->at_once;
    x->s.n_done[begin] = n;
    x->s.n_done[right] = 0;
}

static void sum_own_lanes(share_sum *x) {
    const wfi_lane_shares *shares = x->shares;
    for (int64_t lane = x->begin; lane < x->end; lane++) {
        int32_t home = 0;
        while (lane >= shares->home[home + 1]) home++;
        x->low = wfi_max_i64(shares->home[home], x->begin);
        x->high = wfi_min_i64(shares->home[home + 1], x->end);
        x->s.out->accumulator[lane - x->begin] = take_accumulator(x, lane);
        x->s.out->first_fold[lane - x->begin] = x->s.n_folds;
        x->s.n_done[lane] = 1;
        fold_between(x, 0, shares->n_lanes, lane);
    }
    x->s.out->first_fold[x->end - x->begin] = x->s.n_folds;
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
    wfi_lane_sums *out = x->s.out;
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
            x->s.n_done[lanes[k]] = sizes[k];
        }
    }
    for (int64_t lane = x->low; lane < x->high; lane++)
        if (x->s.n_done[lane]) fold_between(x, 0, shares->n_lanes, lane);
    out->n_folds = x->s.n_folds;
}

wf_status wfi_lanes_sum_share(wfi_pool *pool, const wfi_lane_shares *shares, int32_t replica,
                              bool at_once, wfi_lane_sums *out) {
    size_t n = (size_t)shares->n_lanes, n_all = 2 * n + 2;
    share_sum x = {.shares = shares,
                   .own = replica,
                   .begin = shares->first[replica],
                   .end = shares->first[replica + 1],
                   .at_once = at_once};
    *out = (wfi_lane_sums){.accumulator = wfi_pool_alloc(pool, n, sizeof(int32_t)),
                           .first_fold = wfi_pool_alloc(pool, n + 1, sizeof(int32_t)),
                           .folds = wfi_pool_alloc(pool, n, sizeof(wfi_lane_fold)),
                           .sends = wfi_pool_alloc(pool, n, sizeof(wfi_lane_move)),
                           .receives = wfi_pool_alloc(pool, n, sizeof(wfi_lane_move))};
    x.s = (summation){.out = out, .n_lanes = shares->n_lanes};
    x.s.is_used = wfi_pool_alloc(pool, n_all, sizeof *x.s.is_used);
    x.s.n_done = wfi_pool_alloc(pool, n, sizeof *x.s.n_done);
    x.accumulator_of = wfi_pool_alloc(pool, n, sizeof *x.accumulator_of);
    int64_t *lanes = wfi_pool_alloc(pool, n, sizeof *lanes);
    int64_t *sizes = wfi_pool_alloc(pool, n, sizeof *sizes);
    if (!out->accumulator || !out->first_fold || !out->folds || !out->sends || !out->receives ||
        !x.s.is_used || !x.s.n_done || !x.accumulator_of || !lanes || !sizes)
        return WF_NO_MEMORY;
    sum_own_lanes(&x);
    exchange(&x, lanes, sizes);
    return WF_OK;
}
