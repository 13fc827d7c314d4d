/* Units spread from rank 0 over others: one rank's bits also where the batch is smaller than the
 * devices, where the last one is shorter, and for gradients that are read. train_plans trains
 * such plans, too.
 *
 * label: serial
 */
#include "small_models.h"

static wf_recipe spread_recipe(int64_t batch, int64_t n_micro, int64_t n_lanes) {
    wf_recipe recipe = SMALL_RECIPE(.batch = batch, .n_micro = n_micro, .n_lanes = n_lanes,
                                    .clip_norm = 0.5, .n_threads = 1);
    return recipe;
}

static wf_step_result step_of(wf_context *ctx, wf_trainer *t, int step, int64_t n) {
    static small_batch batch;
    small_batch_fill(&batch, step);
    wf_feed feeds[] = {{"x", batch.x, (size_t)n * SMALL_IMAGE * sizeof *batch.x},
                       {"y", batch.y, (size_t)n * sizeof *batch.y}};
    wf_step_result result;
    TEST_OK(ctx, wf_trainer_step(t, feeds, 2, n, &result));
    return result;
}

/* 3 samples for 4 devices, and a batch that is one microbatch: who gets none rests. */
TEST_CASE(fewer_samples_than_devices) {
    const struct {
        const char *plan, *devices;
    } plans[] = {{"", "cpu:1"},
                 {"dataparallel=1", "cpu:1"},
                 {"dataparallel=4", "cpu:4"},
                 {"dataparallel=4,output=3", "cpu:4"},
                 {"head:dp=4,block:dataparallel=4", "cpu:4"}};
    for (int64_t n_micro = 1; n_micro <= 3; n_micro += 2) {
        char one[65], hex[65];
        for (size_t k = 0; k < 5; k++) {
            scoped_context ctx = test_context();
            /* Microbatches that are not given: one a lane. */
            bool is_left_open = k > 1 && n_micro == 3;
            wf_recipe recipe = spread_recipe(3, is_left_open ? 0 : n_micro, n_micro);
            scoped_trainer t =
                planned_trainer(ctx, small_net, &recipe, plans[k].plan, plans[k].devices, 0);
            for (int s = 0; s < 3; s++) (void)step_of(ctx, t, s, 3);
            TEST_OK(ctx, wf_trainer_weights_sha256(t, k ? hex : one));
            if (k && strcmp(one, hex)) fail_msg("plan '%s': other bits", plans[k].plan);
            small_expect_planned(t, plans[k].plan);
        }
    }
}

/* The root has the sum, and every replica of a unit that each keeps for itself. */
TEST(gradients_are_summed) {
    static const char *const plans[][2] = {{"", "cpu:1"},
                                           {"dataparallel=4", "cpu:4"},
                                           {"block:dp=4", "cpu:4"},
                                           {"block:dataparallel=2", "cpu:2"}};
    static float conv[4][16 * 16 * 9], fc[4][160];
    double norm = 0;
    for (int k = 0; k < 4; k++) {
        wf_recipe recipe = spread_recipe(16, 8, 4);
        scoped_trainer t = planned_trainer(ctx, small_net, &recipe, plans[k][0], plans[k][1], 1);
        wf_step_result result = step_of(ctx, t, 0, 16);
        TEST_OK(ctx, wf_trainer_read_gradient(t, "conv2.weight", conv[k], sizeof conv[k]));
        TEST_OK(ctx, wf_trainer_read_gradient(t, "fc.weight", fc[k], sizeof fc[k]));
        if (k == 0) norm = result.gradient_norm;
        assert_true(norm > 0 && result.gradient_norm == norm);
        assert_memory_equal(conv[0], conv[k], sizeof conv[0]);
        assert_memory_equal(fc[0], fc[k], sizeof fc[0]);
    }
}

/* Values that are read far behind where they are made; a cut right in front of the loss. */
static void skips(wf_graph *g, const void *config) {
    wf_tensor x = wf_input(g, "x", WF_F32, WF_SHAPE(3, 8, 8));
    wf_tensor y = wf_input(g, "y", WF_I32, WF_SCALAR);
    x = wf_reshape(wf_cut(x, "a"), WF_SHAPE(-1, 192));
    wf_tensor early = wf_relu(wf_batch_norm(wf_linear(x, "a1", 24), "bn1"));
    wf_tensor h = wf_cut(wf_relu(wf_linear(early, "a2", 24)), "b");
    h = wf_cut(wf_relu(wf_add(wf_linear(h, "b1", 24), wf_linear(x, "b2", 24))), "c");
    wf_tensor late = wf_relu(wf_batch_norm(wf_linear(wf_add(h, early), "c1", 24), "bn2"));
    h = wf_cut(wf_dropout(wf_linear(late, "c2", 24), "drop", 0.3f), "d");
    h = wf_linear(wf_add(wf_add(h, early), late), "d", 10);
    wf_loss(wf_cross_entropy(wf_cut(h, "criterion"), y));
}

TEST_CASE(any_spread) {
    static const char *const plans[] = {
        "",
        "a:dp=2",
        "b:dataparallel=4",
        "a:dp=4,d:dp=2",
        "b:dp=2,d:dataparallel=4",
        "a:dataparallel=4,b:dp=4,c:dataparallel=2,d:dp=2",
        "c:dataparallel=2,b:dp=4",
        "a:dp=2,c:dp=4,loss:dp=2",
        "criterion:dp=2,d:dp=2",
        "loss:dataparallel=4",
        "dataparallel=4,output=1",
    };
    char one[65], hex[65];
    for (size_t k = 0; k < sizeof plans / sizeof *plans; k++) {
        scoped_context ctx = test_context();
        wf_recipe recipe = spread_recipe(16, 4, 4);
        scoped_trainer t = planned_trainer(ctx, skips, &recipe, plans[k], NULL, 0);
        for (int s = 0; s < 3; s++) (void)step_of(ctx, t, s, s == 1 ? 13 : 16);
        TEST_OK(ctx, wf_trainer_weights_sha256(t, k ? hex : one));
        if (k && strcmp(one, hex)) fail_msg("plan '%s': other bits", plans[k]);
        small_expect_planned(t, plans[k]);
    }
}
