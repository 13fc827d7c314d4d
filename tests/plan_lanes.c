/* Uneven shares of lanes: whichever replica computes a lane, the partial sums that replicas send
 * each other and fold end in the sum over the recipe's tree, in accumulator 0 of every home.
 *
 * label: serial
 */
#include "base/tree.h"
#include "plan/lanes.h"
#include "test.h"

#define MOST_LANES 9

/* A sum is named by a hash of the tree that made it; a lane by its number. */
static uint64_t name_sum(uint64_t left, uint64_t right) {
    return (left * 0x9E3779B97F4A7C15u + right) * 0xBF58476D1CE4E5B9u ^ left >> 17;
}

static uint64_t tree_of(int64_t begin, int64_t n) {
    if (n == 1) return (uint64_t)begin + 1;
    int64_t left = wfi_tree_split(n);
    return name_sum(tree_of(begin, left), tree_of(begin + left, n - left));
}

static void fold(uint64_t *accumulators, const wfi_lane_sums *sums, int32_t begin, int32_t end) {
    for (int32_t k = begin; k < end; k++) {
        uint64_t *into = &accumulators[sums->folds[k].into],
                 *from = &accumulators[sums->folds[k].from];
        assert_true(*into && *from);
        *into = name_sum(*into, *from);
        *from = 0;
    }
}

static void check_shares(wf_context *ctx, int64_t n_lanes, int32_t n, const int *given,
                         bool at_once) {
    uint64_t accumulators[MOST_LANES][2 * MOST_LANES + 2] = {{0}},
                                                       sent[MOST_LANES][MOST_LANES] = {{0}};
    wfi_lane_sums sums[MOST_LANES];
    wfi_lane_shares shares;
    wfi_pool pool;
    int n_sent = 0, n_received = 0;
    wfi_pool_init(&pool, ctx);
    TEST_OK(ctx, wfi_lanes_share(&pool, n_lanes, n, given, &shares));
    for (int32_t r = 0; r < n; r++) {
        int64_t n_own = shares.first[r + 1] - shares.first[r];
        TEST_OK(ctx, wfi_lanes_sum(&pool, &shares, r, at_once ? n_own : 1, &sums[r]));
        for (int64_t k = 0; k < n_own; k++) {
            uint64_t *lane = &accumulators[r][sums[r].accumulator[k]];
            assert_true(*lane == 0 && sums[r].accumulator[k] < sums[r].n_accumulators);
            *lane = (uint64_t)(shares.first[r] + k) + 1;
            fold(accumulators[r], &sums[r], sums[r].first_fold[k], sums[r].first_fold[k + 1]);
        }
        for (int32_t k = 0; k < sums[r].n_sends; k++, n_sent++) {
            const wfi_lane_move *move = &sums[r].sends[k];
            assert_true(move->replica != r && accumulators[r][move->accumulator]);
            sent[move->replica][move->lane] = accumulators[r][move->accumulator];
        }
    }
    for (int32_t r = 0; r < n; r++) {
        int64_t n_own = shares.first[r + 1] - shares.first[r];
        for (int32_t k = 0; k < sums[r].n_sends; k++)
            accumulators[r][sums[r].sends[k].accumulator] = 0;
        for (int32_t k = 0; k < sums[r].n_receives; k++, n_received++) {
            const wfi_lane_move *move = &sums[r].receives[k];
            assert_true(sent[r][move->lane] && !accumulators[r][move->accumulator]);
            accumulators[r][move->accumulator] = sent[r][move->lane];
        }
        fold(accumulators[r], &sums[r], sums[r].first_fold[n_own], sums[r].n_folds);
        if (accumulators[r][0] != tree_of(shares.home[r], shares.home[r + 1] - shares.home[r]))
            fail_msg("%d lanes, %d replicas, the first with %d: replica %d ends with another sum",
                     (int)n_lanes, (int)n, given[0], (int)r);
        for (size_t k = 1; k < 2 * MOST_LANES + 2; k++) assert_true(accumulators[r][k] == 0);
    }
    assert_int_equal(n_sent, n_received);
    wfi_pool_release(&pool);
}

/* All ways to give n_lanes lanes to n replicas. */
static int64_t each_share(wf_context *ctx, int64_t n_lanes, int32_t n, int *given, int32_t at,
                          int64_t left) {
    int64_t count = 0;
    if (at + 1 == n) {
        given[at] = (int)left;
        check_shares(ctx, n_lanes, n, given, false);
        check_shares(ctx, n_lanes, n, given, true);
        return 1;
    }
    for (given[at] = 1; given[at] <= left - (n - at - 1); given[at]++)
        count += each_share(ctx, n_lanes, n, given, at + 1, left - given[at]);
    return count;
}

TEST(all_shares) {
    int given[MOST_LANES];
    int64_t count = 0;
    for (int64_t n_lanes = 2; n_lanes <= MOST_LANES; n_lanes++)
        for (int32_t n = 2; n <= n_lanes; n++)
            count += each_share(ctx, n_lanes, n, given, 0, n_lanes);
    assert_int_equal(count, 502); /* 2^(lanes - 1) - 1 for each number of lanes */
}

/* Equal shares send nothing; a lane more than the home costs one partial sum. */
TEST(few_moves) {
    static const struct {
        int32_t n;
        int given[4], n_sends;
    } cases[] = {
        {2, {4, 4}, 0}, {2, {5, 3}, 1}, {2, {7, 1}, 2}, {3, {2, 2, 4}, 0}, {4, {3, 2, 2, 1}, 3}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        wfi_lane_shares shares;
        wfi_lane_sums sums;
        wfi_pool pool;
        int n = 0;
        wfi_pool_init(&pool, ctx);
        TEST_OK(ctx, wfi_lanes_share(&pool, 8, cases[k].n, cases[k].given, &shares));
        for (int32_t r = 0; r < cases[k].n; r++) {
            TEST_OK(ctx, wfi_lanes_sum(&pool, &shares, r, 1, &sums));
            n += sums.n_sends;
        }
        assert_int_equal(n, cases[k].n_sends);
        wfi_pool_release(&pool);
    }
}
