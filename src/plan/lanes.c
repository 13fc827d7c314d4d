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

/* Folds what is complete of the subtree of n lanes from `begin` on, of which `lane` is one. */
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
    *out = (wfi_lane_sums){wfi_pool_alloc(pool, n, sizeof(int32_t)),
                           wfi_pool_alloc(pool, n + 1, sizeof(int32_t)),
                           wfi_pool_alloc(pool, n, sizeof(wfi_lane_fold)), 0};
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
    return WF_OK;
}
