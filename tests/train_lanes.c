/* Uneven shares: replicas with different numbers of the recipe's lanes end with one rank's bits, in
 * the memory that was planned; and plans that are refused for a reason.
 *
 * label: serial
 */
#include "program/program.h"
#include "small_models.h"
#include "wide_net.h"

/* Four units, for two stages a rank. */
static void deep_net(wf_graph *g, const void *config) {
    wf_tensor x = wf_input(g, "x", WF_F32, WF_SHAPE(3, 8, 8));
    wf_tensor y = wf_input(g, "y", WF_I32, WF_SCALAR);
    wf_tensor h = wf_cut(wf_relu(wf_linear(wf_reshape(x, WF_SHAPE(-1, 192)), "a", 12)), "two");
    h = wf_cut(wf_relu(wf_linear(h, "b", 12)), "three");
    h = wf_cut(wf_relu(wf_linear(h, "c", 12)), "four");
    wf_loss(wf_cross_entropy(wf_linear(h, "d", 10), y));
}

static const struct {
    const char *plan, *devices;
    wf_model_function model;
} cases[] = {
    {"dp=2,lanes=5+3", "cpu:2", small_net},
    {"dp=2,lanes=1+7,zero=1", "cpu:2", small_net},
    {"dp=3,lanes=3+3+2,allreduce=tree", "cpu:3", plain_net},
    {"dp=3,lanes=1+5+2,zero=2,bucket=1KiB", "cpu:3", small_net},
    {"dp=4,lanes=3+3+1+1,zero=3,shard=2", "cpu:4", plain_net},
    {"dp=2,lanes=3+5,zero=3,schedule=breadth", "cpu:2", small_net},
    {"dp=2,pp=2,lanes=6+2", "cpu:4", small_net},
    {"dp=2,pp=2,lanes=2+6,schedule=zb1,recompute=all", "cpu:4", small_net},
    {"dp=2,lanes=5+3,tp=2", "cpu:4", wide_net},
    {"dp=2,lanes=5+3,offload=state+activations:host", "cpu:2", plain_net},
    {"dp=2,lanes=4+4", "cpu:2", small_net},
    {"dp=2,pp=2,schedule=auto,chunks=2,lanes=7+1", "cpu:4", deep_net},
};

static wf_recipe recipe_of(wf_model_function model) {
    wf_recipe recipe =
        SMALL_RECIPE(.n_micro = 8 * (1 + (model == plain_net)), .n_lanes = 8,
                     .n_slices = model == wide_net ? 2 : 1, .n_threads = 1, .clip_norm = 0.5,
                     .optimizer = WF_ADAMW, .kernels = WF_KERNELS_REFERENCE);
    return recipe;
}

TEST_CASE(same_bits) {
    for (size_t k = 0; k < WFI_COUNT(cases); k++) {
        scoped_context ctx = test_context();
        wf_recipe recipe = recipe_of(cases[k].model);
        char want[65], got[65];
        scoped_trainer one = small_trainer(ctx, cases[k].model, &recipe, 0);
        scoped_trainer t =
            planned_trainer(ctx, cases[k].model, &recipe, cases[k].plan, cases[k].devices, 0);
        for (int step = 0; step < 2; step++)
            assert_true(small_step(ctx, one, step) == small_step(ctx, t, step));
        double one_loss, loss;
        TEST_OK(ctx, small_eval(one, 5, SMALL_BATCH, &one_loss));
        TEST_OK(ctx, small_eval(t, 5, SMALL_BATCH, &loss));
        assert_true(loss == one_loss);
        TEST_OK(ctx, wf_trainer_weights_sha256(one, want));
        TEST_OK(ctx, wf_trainer_weights_sha256(t, got));
        if (strcmp(got, want)) fail_msg("plan '%s': other weights", cases[k].plan);
        small_expect_planned(t, cases[k].plan);
    }
}

/* Each replica keeps the hidden state of its own microbatches. */
TEST(hidden_state) {
    static const char *const plans[] = {"", "dp=2,lanes=5+3", "dp=3,lanes=1+2+5"};
    static float x[16][3][8], y[16][3][8];
    double loss[3][3];
    wf_recipe recipe = recipe_of(small_net);
    for (int i = 0; i < 384; i++) (&x[0][0][0])[i] = (float)(i % 11), (&y[0][0][0])[i] = 1;
    wf_feed feeds[] = {{"x", x, sizeof x}, {"y", y, sizeof y}};
    for (size_t k = 0; k < WFI_COUNT(plans); k++) {
        wf_model *model = test_model(ctx, "lstm", lstm_net, NULL, 0);
        scoped_trainer t = test_trainer(ctx, model, &recipe, plans[k], NULL);
        for (int step = 0; step < 3; step++) {
            wf_step_result result;
            TEST_OK(ctx, wf_trainer_step(t, feeds, 2, SMALL_BATCH, &result));
            loss[k][step] = result.loss;
        }
        assert_memory_equal(loss[k], loss[0], sizeof *loss);
    }
}

/* The rank with more lanes computes more; the other sends one partial sum a unit. */
TEST(work_is_divided) {
    wf_recipe recipe = recipe_of(plain_net);
    scoped_program p;
    int n_forward[2] = {0}, n_sends[2] = {0};
    scoped_model model = test_model(ctx, "plain", plain_net, NULL, 0);
    scoped_plan plan = test_plan(ctx, "dp=2,lanes=3+5");
    assert_string_equal(wf_plan_text(plan), "dp=2,pp=1,schedule=1f1b,lanes=3+5");
    assert_int_equal(wf_plan_has_equal_parts(plan), 0);
    TEST_OK(ctx, wf_program_create(ctx, model, &recipe, plan, WF_PROGRAM_TRAIN, &p));
    for (int32_t i = 0; i < p->n_instructions; i++) {
        n_forward[p->instructions[i].rank] += p->instructions[i].kind == WFI_FORWARD;
        n_sends[p->instructions[i].rank] += p->instructions[i].kind == WFI_SEND;
    }
    assert_int_equal(n_forward[0] * 5, n_forward[1] * 3);
    assert_int_equal(n_sends[0], 0);
    assert_int_equal(n_sends[1], 2); /* two units have parameters */
}

/* Shares follow the times of a lane; those that are measured add up, and keep the bits. */
TEST(measured_shares) {
    static const struct {
        double times[3];
        const char *text;
    } cases_of_times[] = {{{1, 1, 1}, "lanes=3+3+2"},
                          {{1, 1, 3}, "lanes=4+3+1"},
                          {{100, 1, 100}, "lanes=1+6+1"},
                          {{2, 1, 1}, "lanes=2+3+3"}};
    wf_recipe recipe = recipe_of(plain_net), other = recipe;
    wf_program *p;
    char want[65], got[65];
    wf_plan *plan = test_plan(ctx, "dp=3,lanes=measured");
    assert_non_null(strstr(wf_plan_text(plan), "lanes=measured"));
    scoped_model model = test_model(ctx, "plain", plain_net, NULL, 0);
    TEST_REFUSED(ctx, wf_program_create(ctx, model, &recipe, plan, WF_PROGRAM_TRAIN, &p),
                 WF_INVALID_ARG, "still to be measured");
    other.n_lanes = other.n_micro = 2;
    TEST_REFUSED(ctx, wf_recipe_resolve(ctx, &other, NULL, plan, &other), WF_INVALID_ARG,
                 "needs 3 lanes");
    for (size_t k = 0; k < WFI_COUNT(cases_of_times); k++) {
        TEST_OK(ctx, wfi_plan_share_lanes(plan, 8, cases_of_times[k].times));
        if (!strstr(wf_plan_text(plan), cases_of_times[k].text))
            fail_msg("%s, not %s", wf_plan_text(plan), cases_of_times[k].text);
    }
    TEST_REFUSED(ctx, wfi_plan_share_lanes(plan, 2, cases_of_times[0].times), WF_INVALID_ARG,
                 "more replicas");
    wf_plan_destroy(plan);

    plan = test_plan(ctx, "dp=3,lanes=measured");
    TEST_OK(ctx, wf_plan_measure_lanes(ctx, model, &recipe, plan, NULL));
    assert_null(strstr(wf_plan_text(plan), "measured"));
    assert_int_equal(wfi_plan_n_lanes(plan), 8);
    scoped_trainer one = small_trainer(ctx, plain_net, &recipe, 0);
    scoped_trainer t = planned_trainer(ctx, plain_net, &recipe, wf_plan_text(plan), "cpu:3", 0);
    assert_true(small_step(ctx, one, 0) == small_step(ctx, t, 0));
    TEST_OK(ctx, wf_trainer_weights_sha256(one, want));
    TEST_OK(ctx, wf_trainer_weights_sha256(t, got));
    assert_string_equal(got, want);
    wf_plan_destroy(plan);
}

TEST(refusals) {
    static const struct {
        const char *plan, *words;
    } bad[] = {
        {"dp=2,lanes=5", "1 share, and dp=2 has 2 replicas"},
        {"dp=2,lanes=1+1+1", "3 shares, and dp=2 has 2 replicas"},
        {"lanes=", "one number of lanes a replica"},
        {"dp=2,lanes=5+0", "each from 1 to 65536"},
        {"dp=2,lanes=5+", "one number of lanes a replica"},
        {"dp=2,lanes=+5", "one number of lanes a replica"},
        {"dp=2,lanes=5-3", "one number of lanes a replica"},
        {"dp=2,lanes=5+99999999999999999999", "each from 1 to 65536"},
        {"dp=2,lanes=5+3,zero=3", "zero=2"},
        {"dp=2,pp=2,lanes=5+3,zero=3,schedule=breadth", "without pp"},
        {"dp=2,lanes=5+3,zero=1,offload=params", "equal lanes"},
        {"dp=4,lanes=3+1+2+2,zero=3,shard=2", "equal lanes"},
        {"dataparallel=2,lanes=5+3", "dataparallel="},
        {"dp=2,lanes=5+3,lanes=3+5", "given twice"},
        {"dp=2,lanes=measured,zero=3", "equal lanes"},
        {"dataparallel=2,lanes=measured", "dataparallel="},
    };
    wf_plan *plan;
    for (size_t k = 0; k < WFI_COUNT(bad); k++)
        TEST_REFUSED(ctx, wf_plan_parse(ctx, bad[k].plan, &plan), WF_INVALID_ARG, bad[k].words);
    wf_recipe recipe = recipe_of(plain_net), ignored;
    plan = test_plan(ctx, "dp=2,lanes=5+4");
    TEST_REFUSED(ctx, wf_recipe_resolve(ctx, &recipe, NULL, plan, &ignored), WF_INVALID_ARG,
                 "lanes=5+4 needs 9 lanes, and this recipe has 8");
    wf_plan_destroy(plan);
    plan = test_plan(ctx, "dp=3");
    TEST_REFUSED(ctx, wf_recipe_resolve(ctx, &recipe, NULL, plan, &ignored), WF_INVALID_ARG,
                 "lanes=3+3+2 in the plan keeps its numbers");
    wf_plan_destroy(plan);
}
