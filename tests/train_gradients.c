/* Programs that compute gradients and update nothing: the gradients of a step, bit for bit, under
 * every plan, planned to the byte; weights stay as they were; an update of the caller's own.
 *
 * label: serial
 */
#include "api/trainer.h"
#include "program/program.h"
#include "small_models.h"
#include "wide_net.h"

#include <math.h>
#include <unistd.h>

#define MOST 60000

static const struct {
    const char *plan, *devices;
    wf_model_function model;
} cases[] = {
    {"", "cpu:1", plain_net},
    {"dp=2", "cpu:2", plain_net},
    {"dp=4,allreduce=tree,bucket=1KiB", "cpu:4", plain_net},
    {"dp=2,zero=1", "cpu:2", plain_net},
    {"dp=2,zero=2,offload=state:host", "cpu:2", plain_net},
    {"dp=2,zero=3,offload=params:host+state:host,prefetch=1", "cpu:2", plain_net},
    {"dp=4,zero=3,shard=2", "cpu:4", plain_net},
    {"dp=3,lanes=1+2+1", "cpu:3", plain_net},
    {"dataparallel=2", "cpu:2", plain_net},
    {"pp=2", "cpu:2", plain_net},
    {"pp=2,schedule=zb1,recompute=all", "cpu:2", plain_net},
    {"tp=2", "cpu:2", wide_net},
    {"tp=2,dp=2,zero=3", "cpu:4", wide_net},
    {"dp=2,pp=2,zero=1", "cpu:4", small_net},
};

static wf_recipe recipe_of(wf_model_function model) {
    wf_recipe recipe = SMALL_RECIPE(.n_micro = 4, .n_lanes = 4,
                                    .n_slices = model == wide_net ? 2 : 1, .n_threads = 1);
    recipe.clip_norm = 0.5; /* steps report a norm, and gradients alone do not */
    recipe.kernels = WF_KERNELS_REFERENCE;
    return recipe;
}

static wf_status try_gradients(wf_trainer *t, int step, int64_t n, wf_step_result *result) {
    static small_batch b;
    small_batch_fill(&b, step);
    wf_feed feeds[] = {{"x", b.x, (size_t)n * SMALL_IMAGE * sizeof *b.x},
                       {"y", b.y, (size_t)n * sizeof *b.y}};
    return wf_trainer_gradients(t, feeds, 2, n, result);
}

typedef wf_status (*reader)(wf_trainer *t, const char *name, void *dst, size_t dst_bytes);

/* All parameters' gradients, or all tensors, one after the other. Returns how many numbers. */
static size_t read_all(wf_context *ctx, wf_trainer *t, reader read, bool buffers, float *out) {
    wf_trainer_tensor tensor;
    size_t n = 0;
    for (int i = 0; wf_trainer_tensor_get(t, i, &tensor); i++) {
        size_t bytes = (size_t)wf_shape_n_elem(&tensor.shape) * sizeof *out;
        bool is_buffer = strstr(tensor.name, "running") || strstr(tensor.name, "batches");
        if (is_buffer != buffers || tensor.dtype != WF_F32) continue;
        TEST_OK(ctx, read(t, tensor.name, out + n, bytes));
        n += bytes / sizeof *out;
        assert_true(n < MOST);
    }
    return n;
}

/* The step after the gradients gives the weights of a step without them, but for running
 * statistics, which advance in both. */
TEST_CASE(gradients_of_a_step) {
    static float want[MOST], got[MOST], before[MOST], after[MOST];
    for (size_t k = 0; k < WFI_COUNT(cases); k++) {
        scoped_context ctx = test_context();
        wf_recipe recipe = recipe_of(cases[k].model);
        wf_step_result result;
        scoped_trainer one = small_trainer(ctx, cases[k].model, &recipe, 1);
        double loss = small_step(ctx, one, 3);
        size_t n = read_all(ctx, one, wf_trainer_read_gradient, false, want);
        scoped_trainer t =
            planned_trainer(ctx, cases[k].model, &recipe, cases[k].plan, cases[k].devices, 0);
        size_t n_weights = read_all(ctx, t, wf_trainer_read, false, before);
        TEST_OK(ctx, try_gradients(t, 3, SMALL_BATCH, &result));
        assert_true(result.loss == loss && result.gradient_norm == 0);
        assert_int_equal(read_all(ctx, t, wf_trainer_read_gradient, false, got), n);
        if (memcmp(got, want, n * sizeof *want))
            fail_msg("plan '%s': other gradients", cases[k].plan);
        assert_true(n > 1000);
        assert_int_equal(read_all(ctx, t, wf_trainer_read, false, after), n_weights);
        assert_memory_equal(after, before, n_weights * sizeof *before);
        assert_int_equal(wf_trainer_n_steps(t), 0);
        /* Running statistics advance as in the step. */
        n = read_all(ctx, one, wf_trainer_read, true, want);
        assert_int_equal(read_all(ctx, t, wf_trainer_read, true, got), n);
        assert_memory_equal(got, want, n * sizeof *want);
        assert_true(small_step(ctx, t, 3) == loss);
        n = read_all(ctx, one, wf_trainer_read, false, want);
        assert_int_equal(read_all(ctx, t, wf_trainer_read, false, got), n);
        assert_memory_equal(got, want, n * sizeof *want);
        small_expect_planned(t, cases[k].plan);
    }
}

/* SGD written by the caller equals weft's, with dropout masks that go on from step to step. */
TEST(an_update_of_the_callers_own) {
    static const char *const plans[] = {"", "dp=2,zero=3", "pp=2", "dataparallel=2"};
    static float w[MOST], g[MOST];
    char want[65], got[65];
    wf_recipe recipe = recipe_of(plain_net);
    recipe.momentum = recipe.clip_norm = 0;
    scoped_trainer one = small_trainer(ctx, plain_net, &recipe, 0);
    for (int step = 0; step < 3; step++) (void)small_step(ctx, one, step);
    TEST_OK(ctx, wf_trainer_weights_sha256(one, want));
    for (size_t k = 0; k < WFI_COUNT(plans); k++) {
        scoped_trainer t =
            planned_trainer(ctx, plain_net, &recipe, plans[k], k ? "cpu:2" : "cpu:1", 0);
        wf_trainer_tensor tensor;
        wf_step_result result;
        for (int step = 0; step < 3; step++) {
            TEST_OK(ctx, try_gradients(t, step, SMALL_BATCH, &result));
            for (int i = 0; wf_trainer_tensor_get(t, i, &tensor); i++) {
                size_t n = (size_t)wf_shape_n_elem(&tensor.shape), bytes = n * sizeof *w;
                TEST_OK(ctx, wf_trainer_read(t, tensor.name, w, bytes));
                TEST_OK(ctx, wf_trainer_read_gradient(t, tensor.name, g, bytes));
                for (size_t e = 0; e < n; e++) w[e] -= (float)result.lr * g[e];
                TEST_OK(ctx, wf_trainer_write(t, tensor.name, w, bytes));
            }
            TEST_OK(ctx, wf_trainer_count_step(t));
        }
        assert_int_equal(wf_trainer_n_steps(t), 3);
        TEST_OK(ctx, wf_trainer_weights_sha256(t, got));
        if (strcmp(got, want)) fail_msg("plan '%s': %s, not %s", plans[k], got, want);
    }
}

/* Fewer samples than the batch, and a program that is planned before it is used. */
TEST(a_part_of_a_batch) {
    wf_recipe recipe = recipe_of(plain_net);
    wf_step_result all, few;
    float got[20], want[20];
    scoped_trainer t = planned_trainer(ctx, plain_net, &recipe, "dp=2", "cpu:2", 0);
    int n_ready = t->n_ready;
    TEST_OK(ctx, wf_trainer_prepare_gradients(t, 6));
    assert_int_equal(t->n_ready, n_ready + 1);
    TEST_OK(ctx, try_gradients(t, 0, 6, &few));
    TEST_OK(ctx, wf_trainer_read_gradient(t, "fc1.bias", got, sizeof got));
    recipe.batch = 6; /* all of its batch */
    scoped_trainer one = planned_trainer(ctx, plain_net, &recipe, "", NULL, 0);
    TEST_OK(ctx, try_gradients(one, 0, 6, &all));
    TEST_OK(ctx, wf_trainer_read_gradient(one, "fc1.bias", want, sizeof want));
    assert_memory_equal(got, want, sizeof want);
    assert_int_equal(t->n_ready, n_ready + 1);
    TEST_OK(ctx, try_gradients(t, 0, SMALL_BATCH, &all));
    assert_true(few.n_rows == 6 && all.n_rows == SMALL_BATCH && few.loss != all.loss);
    TEST_REFUSED(ctx, wf_trainer_prepare_gradients(t, SMALL_BATCH + 1), WF_SHAPE, "batch is 16");
    TEST_REFUSED(ctx, wf_trainer_prepare_gradients(t, 0), WF_SHAPE, "0 samples");
}

/* The hidden state of a gradient run is that of the next one, and of the next step. */
TEST(hidden_state_goes_on) {
    static float x[2][3][8], y[2][3][8];
    wf_recipe recipe = recipe_of(plain_net);
    wf_step_result result;
    double first[3], again[3];
    recipe.batch = 2;
    recipe.n_micro = recipe.n_lanes = recipe.n_slices = 1;
    for (int i = 0; i < 48; i++) (&x[0][0][0])[i] = (float)(i % 7), (&y[0][0][0])[i] = 1;
    wf_feed feeds[] = {{"x", x, sizeof x}, {"y", y, sizeof y}};
    wf_model *model = test_model(ctx, "lstm", lstm_net, NULL, 0);
    scoped_trainer t = test_trainer(ctx, model, &recipe, "", NULL);
    for (int pass = 0; pass < 2; pass++) {
        double *loss = pass ? again : first;
        for (int i = 0; i < 2; i++) {
            TEST_OK(ctx, wf_trainer_gradients(t, feeds, 2, 2, &result));
            loss[i] = result.loss;
        }
        if (pass)
            TEST_OK(ctx, wf_trainer_step(t, feeds, 2, 2, &result));
        else
            TEST_OK(ctx, wf_trainer_gradients(t, feeds, 2, 2, &result));
        loss[2] = result.loss;
        wf_trainer_reset_hidden(t, WF_PROGRAM_TRAIN);
    }
    assert_true(first[0] != first[1] && first[1] != first[2]);
    assert_memory_equal(again, first, sizeof first);
    TEST_REFUSED(ctx, wf_trainer_prepare_gradients(t, 1), WF_SHAPE, "hidden state");
}

/* A loss that is not finite changes nothing that is saved, but for running statistics. */
TEST_CASE(a_bad_batch) {
    static small_batch b;
    static const wf_model_function models[] = {plain_net, small_net};
    char path[] = "/tmp/weft-test-XXXXXX";
    int file = mkstemp(path);
    assert_true(file >= 0);
    for (size_t k = 0; k < WFI_COUNT(models); k++) {
        scoped_context ctx = test_context();
        wf_recipe recipe = recipe_of(models[k]);
        wf_step_result result;
        scoped_trainer t = planned_trainer(ctx, models[k], &recipe, "dp=2", "cpu:2", 0);
        small_batch_fill(&b, 0);
        b.x[5] = NAN;
        wf_feed feeds[] = {{"x", b.x, sizeof b.x}, {"y", b.y, sizeof b.y}};
        TEST_REFUSED(ctx, wf_trainer_gradients(t, feeds, 2, SMALL_BATCH, &result), WF_NOT_FINITE,
                     "the gradients of step 1");
        if (k)
            TEST_REFUSED(ctx, wf_trainer_save(t, path), WF_NOT_FINITE, "not finite");
        else
            TEST_OK(ctx, wf_trainer_save(t, path));
    }
    close(file);
    unlink(path);
}

TEST(refusals) {
    static float w[3 * 16 * 9], kept[3 * 16 * 9];
    wf_recipe recipe = recipe_of(plain_net);
    wf_step_result result;
    double loss;
    wf_trainer *t = planned_trainer(ctx, plain_net, &recipe, "dp=2", "cpu:2", 0);
    TEST_REFUSED(ctx, wf_trainer_read_gradient(t, "conv1.weight", w, sizeof w), WF_INVALID_ARG,
                 "right after wf_trainer_gradients");
    TEST_OK(ctx, try_gradients(t, 0, SMALL_BATCH, &result));
    TEST_OK(ctx, wf_trainer_read_gradient(t, "conv1.weight", w, sizeof w));
    TEST_REFUSED(ctx, wf_trainer_read_gradient(t, "conv1.weight", w, 4), WF_SHAPE, "bytes");
    (void)small_step(ctx, t, 0);
    TEST_REFUSED(ctx, wf_trainer_read_gradient(t, "conv1.weight", w, sizeof w), WF_INVALID_ARG,
                 "right after wf_trainer_gradients");
    TEST_OK(ctx, try_gradients(t, 0, SMALL_BATCH, &result));
    TEST_OK(ctx, small_eval(t, 0, SMALL_BATCH, &loss));
    TEST_REFUSED(ctx, wf_trainer_read_gradient(t, "conv1.weight", w, sizeof w), WF_INVALID_ARG,
                 "right after wf_trainer_gradients");
    TEST_REFUSED(ctx, wf_trainer_write(t, "conv2.weight", w, sizeof w), WF_INVALID_ARG, "conv2");
    TEST_REFUSED(ctx, wf_trainer_write(t, "conv1.weight", w, 8), WF_SHAPE, "bytes");
    TEST_OK(ctx, wf_trainer_read(t, "conv1.weight", kept, sizeof kept));
    memcpy(w, kept, sizeof w);
    w[7] = (float)INFINITY;
    TEST_REFUSED(ctx, wf_trainer_write(t, "conv1.weight", w, sizeof w), WF_NOT_FINITE, "element 7");
    TEST_OK(ctx, wf_trainer_read(t, "conv1.weight", w, sizeof w));
    assert_memory_equal(w, kept, sizeof w);
    wf_trainer_destroy(t);

    recipe.ema = 0.9;
    t = planned_trainer(ctx, plain_net, &recipe, "", "cpu:1", 0);
    (void)small_step(ctx, t, 0);
    TEST_REFUSED(ctx, wf_trainer_count_step(t), WF_INVALID_ARG, "leave ema out");
    TEST_OK(ctx, wf_trainer_use_average(t, 1));
    TEST_REFUSED(ctx, wf_trainer_write(t, "conv1.weight", kept, sizeof kept), WF_INVALID_ARG,
                 "average");
    TEST_REFUSED(ctx, try_gradients(t, 0, SMALL_BATCH, &result), WF_INVALID_ARG, "average");
    wf_trainer_destroy(t);
    recipe.ema = 0;

    wf_trainer_config config = WF_TRAINER_CONFIG_INIT;
    config.forward_only = 1;
    wf_model *model = test_model(ctx, "small", plain_net, NULL, 0);
    t = test_trainer(ctx, model, &recipe, "", &config);
    TEST_REFUSED(ctx, try_gradients(t, 0, SMALL_BATCH, &result), WF_INVALID_ARG,
                 "forward runs only");
    TEST_REFUSED(ctx, wf_trainer_prepare_gradients(t, 4), WF_INVALID_ARG, "forward runs only");
    TEST_REFUSED(ctx, wf_trainer_count_step(t), WF_INVALID_ARG, "forward runs only");
    wf_trainer_destroy(t);
}
