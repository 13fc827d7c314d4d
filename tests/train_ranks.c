/* Many ranks as threads: every plan gives the bits of one rank, also under random
 * delays; the planned peak of every rank is the measured one; state moves between plans.
 */
#include "small_models.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#define N_STEPS 4

static const struct {
    const char *plan, *devices;
} plans[] = {
    {"pp=2", "cpu:2"},
    {"pp=2,schedule=gpipe", "cpu:0,cpu:1"},
    {"pp=3,cut=block+last", "cpu:3"},
    {"pp=4,schedule=gpipe", "cpu:4"},
    {"dp=2", "cpu:2"},
    {"dp=4", "cpu:4"},
    {"dp=2,pp=2", "cpu:4"},
    {"dp=2,pp=3,schedule=gpipe", "cpu:6"},
    {"dataparallel=2", "cpu:2"},
    {"dataparallel=4,output=3,bucket=1,overlap=off", "cpu:4"},
    {"head:dp=2", "cpu:2"}, /* owns the tied weight; of plain_net the last unit */
    {"head:dataparallel=2", "cpu:2"},
    {"first:dp=4,head:dataparallel=2", "cpu:4"},
};
#define N_PLANS (sizeof plans / sizeof *plans)

/* Neither batch norm nor dropout: samples do not see each other. */
static void even_net(wf_graph *g, const void *config) {
    wf_tensor x = wf_input(g, "x", WF_F32, WF_SHAPE(3, 8, 8));
    wf_tensor y = wf_input(g, "y", WF_I32, WF_SCALAR);
    wf_tensor h = wf_relu(wf_conv2d(x, "conv1", 16, 3, (wf_conv2d_shape){.stride = 2, .pad = 1}));
    wf_loss(wf_cross_entropy(wf_linear(wf_reshape(h, WF_SHAPE(-1, 256)), "fc", 10), y));
}

static wf_recipe ranks_recipe(int optimizer) {
    wf_recipe recipe = small_recipe();
    recipe.n_micro = 8;
    recipe.n_lanes = 4;
    recipe.clip_norm = 0.5;
    recipe.n_threads = 1;
    recipe.optimizer = optimizer ? WF_ADAMW : WF_SGD;
    return recipe;
}

static void run(const char *plan, const char *devices, wf_model_function function, int optimizer,
                char hex[65], double *losses) {
    wf_context *ctx = test_context();
    wf_recipe recipe = ranks_recipe(optimizer);
    wf_trainer *trainer = planned_trainer(ctx, function, &recipe, plan, devices, 0);
    for (int s = 0; s < N_STEPS; s++) losses[s] = small_step(ctx, trainer, s);
    TEST_OK(ctx, wf_trainer_weights_sha256(trainer, hex));
    for (int r = 0; r < wf_program_n_ranks(wf_trainer_program(trainer)); r++) {
        wf_trainer_memory memory = wf_trainer_memory_of(trainer, r);
        if (memory.planned_peak_bytes != memory.measured_peak_bytes)
            fail_msg("plan '%s', rank %d: %zu bytes planned, %zu measured", plan, r,
                     memory.planned_peak_bytes, memory.measured_peak_bytes);
    }
    wf_trainer_destroy(trainer);
    test_context_end(ctx);
}

TEST_CASE(bits_of_one_rank) {
    wf_model_function functions[] = {small_net, plain_net};
    for (int f = 0; f < 2; f++)
        for (int optimizer = 0; optimizer < 2; optimizer++) {
            char one[65], hex[65];
            double losses[N_STEPS], got[N_STEPS];
            run("", "cpu:1", functions[f], optimizer, one, losses);
            for (size_t k = 0; k < N_PLANS; k++) {
                if (f == 1 && strstr(plans[k].plan, "pp=3")) continue; /* it has two units */
                if (f == 1 && strstr(plans[k].plan, "pp=4")) continue;
                run(plans[k].plan, plans[k].devices, functions[f], optimizer, hex, got);
                if (strcmp(one, hex) || memcmp(losses, got, sizeof losses))
                    fail_msg("net %d, plan '%s': loss %.17g, one rank has %.17g", f, plans[k].plan,
                             got[N_STEPS - 1], losses[N_STEPS - 1]);
            }
        }
}

TEST_CASE(bits_under_delays) {
    char one[65], hex[65];
    double losses[N_STEPS], got[N_STEPS];
    run("", "cpu:1", small_net, 0, one, losses);
    setenv("WEFT_DELAY_US", "400", 1);
    for (size_t k = 0; k < N_PLANS; k++) {
        run(plans[k].plan, plans[k].devices, small_net, 0, hex, got);
        assert_string_equal(one, hex);
    }
    unsetenv("WEFT_DELAY_US");
}

/* 16 samples in 6 microbatches: 3, 3, 3, 3, 2, 2. Every plan gives one rank's bits, and where
 * the division does not matter (no batch norm, no dropout), the loss of other divisions. */
TEST(uneven_microbatches) {
    const char *uneven[][2] = {{"pp=2,schedule=zb2", "cpu:2"},
                               {"pp=3,schedule=gpipe", "cpu:3"},
                               {"dp=2", "cpu:2"},
                               {"dp=2,pp=2,schedule=zb1", "cpu:4"},
                               {"dataparallel=2", "cpu:2"},
                               {"block:dp=2,last:dataparallel=2", "cpu:2"}};
    char one[65], hex[65];
    wf_recipe recipe = ranks_recipe(1);
    recipe.n_micro = 6;
    recipe.n_lanes = 2;
    for (int k = -1; k < 6; k++) {
        wf_trainer *t = planned_trainer(ctx, small_net, &recipe, k < 0 ? "" : uneven[k][0],
                                        k < 0 ? "cpu:1" : uneven[k][1], 0);
        for (int s = 0; s < 3; s++) (void)small_step(ctx, t, s);
        TEST_OK(ctx, wf_trainer_weights_sha256(t, hex));
        if (k < 0) memcpy(one, hex, sizeof one);
        assert_string_equal(one, hex);
        for (int r = 0; r < wf_program_n_ranks(wf_trainer_program(t)); r++) {
            wf_trainer_memory memory = wf_trainer_memory_of(t, r);
            assert_int_equal(memory.planned_peak_bytes, memory.measured_peak_bytes);
        }
        wf_trainer_destroy(t);
    }
    recipe = small_recipe();
    double losses[2];
    for (int k = 0; k < 2; k++) {
        recipe.n_micro = k ? 5 : 1;
        wf_trainer *t = planned_trainer(ctx, even_net, &recipe, "", "cpu:1", 0);
        for (int s = 0; s < 3; s++) losses[k] = small_step(ctx, t, s);
        wf_trainer_destroy(t);
    }
    assert_true(fabs(losses[0] - losses[1]) < 1e-6 * fabs(losses[0]));
}

/* Saved by two stages, loaded by one rank and by two replicas. */
TEST_CASE(state_moves_between_plans) {
    char folder[] = "/tmp/weft-test-XXXXXX", path[64], want[65], hex[65];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/state.safetensors", folder);
    wf_context *ctx = test_context();
    wf_recipe recipe = ranks_recipe(1);
    wf_trainer *first = planned_trainer(ctx, small_net, &recipe, "pp=2", "cpu:2", 0);
    for (int s = 0; s < 2; s++) (void)small_step(ctx, first, s);
    TEST_OK(ctx, wf_trainer_save_state(first, path, NULL, 0));
    for (int s = 2; s < 4; s++) (void)small_step(ctx, first, s);
    TEST_OK(ctx, wf_trainer_weights_sha256(first, want));
    wf_trainer_destroy(first);
    const char *other[][2] = {{"", "cpu:1"},
                              {"dp=2", "cpu:2"},
                              {"dp=2,pp=2", "cpu:4"},
                              {"dataparallel=2", "cpu:2"},
                              {"last:dp=2", "cpu:2"}};
    for (int k = 0; k < 5; k++) {
        wf_trainer *second = planned_trainer(ctx, small_net, &recipe, other[k][0], other[k][1], 0);
        TEST_OK(ctx, wf_trainer_load_state(second, path));
        for (int s = 2; s < 4; s++) (void)small_step(ctx, second, s);
        TEST_OK(ctx, wf_trainer_weights_sha256(second, hex));
        assert_string_equal(hex, want);
        wf_trainer_destroy(second);
    }
    test_context_end(ctx);
    unlink(path);
    rmdir(folder);
}

TEST(eval_on_stages) {
    static small_batch batch;
    small_batch_fill(&batch, 3);
    wf_feed feeds[] = {{"x", batch.x, sizeof batch.x}, {"y", batch.y, sizeof batch.y}};
    const char *eval[][2] = {{"", "cpu:1"},
                             {"dp=2,pp=2", "cpu:4"},
                             {"dataparallel=2", "cpu:2"},
                             {"block:dp=2", "cpu:2"}};
    float logits[4][SMALL_BATCH * 10];
    wf_recipe recipe = ranks_recipe(0);
    for (int k = 0; k < 4; k++) {
        wf_trainer *t = planned_trainer(ctx, small_net, &recipe, eval[k][0], eval[k][1], 0);
        (void)small_step(ctx, t, 0);
        TEST_OK(ctx, wf_trainer_forward(t, feeds, 2, SMALL_BATCH, "logits", logits[k],
                                        sizeof logits[k]));
        wf_trainer_destroy(t);
        assert_memory_equal(logits[0], logits[k], sizeof logits[0]);
    }
}

TEST_MAIN(NULL, NULL)
