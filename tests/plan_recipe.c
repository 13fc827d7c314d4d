/* Recipes: the lane tree, what resolves to what, learning rates. */
#include "base/tree.h"
#include "plan/lanes.h"
#include "test.h"

#include <weft/recipe.h>

/* Sums by the accumulators of wfi_lanes_sum and by recursion; formulas as text. */
static void by_recursion(int64_t begin, int64_t n, char *out) {
    if (n == 1) {
        sprintf(out + strlen(out), "%d", (int)begin);
        return;
    }
    strcat(out, "(");
    by_recursion(begin, wfi_tree_split(n), out);
    strcat(out, "+");
    by_recursion(begin + wfi_tree_split(n), n - wfi_tree_split(n), out);
    strcat(out, ")");
}

/* One lane after the other, or those of some groups at once. */
static void check_sums(wf_context *ctx, int64_t n, int64_t n_groups) {
    char sum[33][2100], want[2100] = "";
    int64_t n_own = n / n_groups;
    wfi_lane_sums sums;
    wfi_pool pool;
    wfi_pool_init(&pool, ctx);
    TEST_OK(ctx, wfi_lanes_sum(&pool, n, n_groups, &sums));
    for (int64_t k = 0; k < n_own; k++) {
        for (int64_t g = 0; g < n_groups; g++) {
            int64_t lane = g * n_own + k;
            sprintf(sum[sums.accumulator[lane]], "%d", (int)lane);
        }
        for (int64_t lane = k; lane < n; lane += n_own)
            for (int32_t f = sums.first_fold[lane]; f < sums.first_fold[lane + 1]; f++) {
                const wfi_lane_fold *fold = &sums.folds[f];
                char both[4300];
                snprintf(both, sizeof both, "(%s+%s)", sum[fold->into], sum[fold->from]);
                memcpy(sum[fold->into], both, strlen(both) + 1);
                strcpy(sum[fold->from], "free");
            }
    }
    by_recursion(0, n, want);
    assert_string_equal(sum[0], want);
    /* ceil(log2) + 1 accumulators are enough for each group. */
    int log = 0;
    for (int64_t power = 1; power < n_own; power *= 2) log++;
    assert_true(sums.n_accumulators <= n_groups * (log + 1));
    wfi_pool_release(&pool);
}

static void sums_follow_the_tree(void **state) {
    (void)state;
    wf_context *ctx = test_context();
    for (int64_t n = 1; n <= 33; n++)
        for (int64_t n_groups = 1; n_groups <= n; n_groups++)
            if (n % n_groups == 0) check_sums(ctx, n, n_groups);
    test_context_end(ctx);
}

static void whole_subtrees(void **state) {
    (void)state;
    assert_true(wfi_lanes_allow(4, 1));
    assert_true(wfi_lanes_allow(4, 2));
    assert_true(wfi_lanes_allow(4, 4));
    assert_true(wfi_lanes_allow(3, 3));
    assert_true(wfi_lanes_allow(6, 2));
    assert_false(wfi_lanes_allow(6, 3));
    assert_false(wfi_lanes_allow(4, 3));
}

static void resolves(void **state) {
    (void)state;
    wf_context *ctx = test_context();
    wf_plan *plan;
    wf_recipe recipe = WF_RECIPE_INIT, got;
    TEST_OK(ctx, wf_plan_parse(ctx, "dp=4", &plan));
    recipe.batch = 8;
    TEST_OK(ctx, wf_recipe_resolve(ctx, &recipe, plan, &got));
    assert_int_equal(got.n_lanes, 4);
    assert_int_equal(got.n_micro, 4);
    recipe.n_micro = 9;
    TEST_REFUSED(ctx, wf_recipe_resolve(ctx, &recipe, plan, &got), WF_INVALID_ARG, "8 at most");
    recipe.n_micro = 5;
    TEST_REFUSED(ctx, wf_recipe_resolve(ctx, &recipe, plan, &got), WF_INVALID_ARG,
                 "lanes do not divide");
    recipe.n_micro = 8;
    recipe.n_lanes = 3;
    TEST_REFUSED(ctx, wf_recipe_resolve(ctx, &recipe, plan, &got), WF_INVALID_ARG,
                 "lanes do not divide");
    recipe.n_lanes = 2;
    TEST_REFUSED(ctx, wf_recipe_resolve(ctx, &recipe, plan, &got), WF_INVALID_ARG,
                 "whole subtrees");
    recipe.n_lanes = 4;
    recipe.lr = -1;
    TEST_REFUSED(ctx, wf_recipe_resolve(ctx, &recipe, plan, &got), WF_INVALID_ARG, "lr is -1");
    wf_plan_destroy(plan);
    test_context_end(ctx);
}

static void learning_rates(void **state) {
    (void)state;
    wf_recipe r = WF_RECIPE_INIT;
    r.lr = 1;
    assert_true(wf_recipe_lr(&r, 1000) == 1);
    r.warmup_steps = 4;
    assert_true(wf_recipe_lr(&r, 0) == 0.25 && wf_recipe_lr(&r, 3) == 1);
    r.lr_schedule = WF_LR_COSINE;
    r.schedule_steps = 14;
    assert_true(wf_recipe_lr(&r, 4) == 1 && wf_recipe_lr(&r, 14) == 0);
    assert_true(wf_recipe_lr(&r, 9) > 0.4999 && wf_recipe_lr(&r, 9) < 0.5001);
    r.lr_schedule = WF_LR_STEP;
    r.warmup_steps = 0;
    r.schedule_steps = 10;
    r.lr_gamma = 0.5;
    assert_true(wf_recipe_lr(&r, 9) == 1 && wf_recipe_lr(&r, 10) == 0.5 &&
                wf_recipe_lr(&r, 25) == 0.25);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_follow_the_tree),
        cmocka_unit_test(whole_subtrees),
        cmocka_unit_test(resolves),
        cmocka_unit_test(learning_rates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
