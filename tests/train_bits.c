/* The same recipe gives the same bits: again, under random delays, at other addresses; and the loss
 * goes down.
 *
 * label: serial
 */
#include "small_models.h"

#include <unistd.h>

#define N_STEPS 8

static void run(const wf_recipe *recipe, wf_model_function function, char hex[65], double *losses) {
    scoped_context ctx = test_context();
    scoped_trainer trainer = small_trainer(ctx, function, recipe, 0);
    for (int s = 0; s < N_STEPS; s++) losses[s] = small_step(ctx, trainer, s % 2);
    TEST_OK(ctx, wf_trainer_weights_sha256(trainer, hex));
}

TEST_CASE(again) {
    wf_model_function functions[] = {small_net, plain_net};
    for (int f = 0; f < 2; f++)
        for (int lanes = 1; lanes <= 4; lanes *= 2)
            for (int kernels = 0; kernels < 2; kernels++) {
                wf_recipe recipe =
                    SMALL_RECIPE(.n_micro = 4, .n_lanes = lanes,
                                 .kernels = kernels ? WF_KERNELS_REFERENCE : WF_KERNELS_FAST);
                char first[65], second[65];
                double losses[N_STEPS], losses2[N_STEPS];
                run(&recipe, functions[f], first, losses);
                setenv("WEFT_DELAY_US", "300", 1);
                setenv("WEFT_ARENA_SHIFT", "4160", 1);
                run(&recipe, functions[f], second, losses2);
                unsetenv("WEFT_DELAY_US");
                unsetenv("WEFT_ARENA_SHIFT");
                assert_string_equal(first, second);
                assert_memory_equal(losses, losses2, sizeof losses);
                assert_true(losses[N_STEPS - 2] < losses[0]); /* the same batch, later */
            }
}

/* Fast kernels and plain C agree within rounding. */
TEST_CASE(fast_equals_reference) {
    char hex[65];
    double fast[N_STEPS], reference[N_STEPS];
    wf_recipe recipe = small_recipe();
    run(&recipe, small_net, hex, fast);
    recipe.kernels = WF_KERNELS_REFERENCE;
    run(&recipe, small_net, hex, reference);
    for (int s = 0; s < N_STEPS; s++) {
        double difference = fast[s] - reference[s];
        if (difference > 1e-3 * reference[s] || difference < -1e-3 * reference[s])
            fail_msg("step %d: loss %.9g with fast kernels, %.9g with plain C", s, fast[s],
                     reference[s]);
    }
}

/* The norm is that of the gradients, though their buffer has gaps (fc2's bias of 10). */
TEST(norm_is_of_gradients) {
    static const struct {
        const char *name;
        int n;
    } all[] = {{"conv1.weight", 16 * 27},
               {"fc1.weight", 20 * 256},
               {"fc1.bias", 20},
               {"fc2.weight", 200},
               {"fc2.bias", 10}};
    static float gradient[20 * 256];
    wf_recipe recipe = SMALL_RECIPE(.clip_norm = 1000);
    scoped_trainer trainer = small_trainer(ctx, plain_net, &recipe, 1);
    static small_batch batch;
    small_batch_fill(&batch, 0);
    wf_feed feeds[] = {{"x", batch.x, sizeof batch.x}, {"y", batch.y, sizeof batch.y}};
    wf_step_result result;
    TEST_OK(ctx, wf_trainer_step(trainer, feeds, 2, SMALL_BATCH, &result));
    double squares = 0;
    for (size_t k = 0; k < sizeof all / sizeof *all; k++) {
        TEST_OK(ctx, wf_trainer_read_gradient(trainer, all[k].name, gradient,
                                              (size_t)all[k].n * sizeof *gradient));
        for (int i = 0; i < all[k].n; i++) squares += (double)gradient[i] * gradient[i];
    }
    double ratio = result.gradient_norm * result.gradient_norm / squares;
    if (!(ratio > 0.999999 && ratio < 1.000001))
        fail_msg("norm %.9g, squared over the gradients' %.9g", result.gradient_norm, ratio);
    /* After a forward run the gradients are gone, and that is said. */
    TEST_OK(ctx, wf_trainer_eval(trainer, feeds, 2, SMALL_BATCH, &result));
    TEST_REFUSED(ctx, wf_trainer_read_gradient(trainer, "fc2.bias", gradient, 40), WF_INVALID_ARG,
                 "right after wf_trainer_gradients");
}

static void scaled_loss_net(wf_graph *g, const void *config) {
    const float *factor = config;
    wf_tensor x = wf_input(g, "x", WF_F32, WF_SHAPE(3, 8, 8));
    wf_tensor y = wf_input(g, "y", WF_I32, WF_SCALAR);
    wf_tensor logits = wf_linear(wf_reshape(x, WF_SHAPE(-1, 192)), "fc", 10);
    wf_output(logits, "logits");
    wf_tensor loss = wf_cross_entropy(logits, y);
    wf_loss(*factor == 1 ? loss : wf_scale(loss, *factor));
}

/* Ignored labels do not count, whatever is done to the rows; outputs need no labels. */
TEST_CASE(ignored_labels) {
    static small_batch batch;
    small_batch_fill(&batch, 0);
    for (int i = 0; i < 5; i++) batch.y[i] = -1;
    double loss[2];
    for (int k = 0; k < 2; k++) {
        scoped_context ctx = test_context();
        scoped_trainer trainer;
        wf_recipe recipe = small_recipe();
        wf_trainer_config config = WF_TRAINER_CONFIG_INIT;
        config.forward_only = 1;
        float factor = k ? 2 : 1, logits[SMALL_BATCH * 10];
        scoped_model model = test_model(ctx, "scaled", scaled_loss_net, &factor, sizeof factor);
        scoped_plan plan = test_plan(ctx, "");
        TEST_OK(ctx, wf_trainer_create(ctx, model, &recipe, plan, &config, &trainer));
        wf_feed feeds[] = {{"x", batch.x, sizeof batch.x}, {"y", batch.y, sizeof batch.y}};
        wf_step_result result;
        TEST_OK(ctx, wf_trainer_eval(trainer, feeds, 2, SMALL_BATCH, &result));
        assert_int_equal(result.n_rows, SMALL_BATCH - 5);
        loss[k] = result.loss;
        TEST_OK(ctx, wf_trainer_forward(trainer, feeds, 1, SMALL_BATCH, "logits", logits,
                                        sizeof logits));
        TEST_REFUSED(ctx, wf_trainer_eval(trainer, feeds, 1, SMALL_BATCH, &result), WF_SHAPE,
                     "'y' was not given");
        TEST_REFUSED(ctx, wf_trainer_step(trainer, feeds, 2, SMALL_BATCH, &result), WF_INVALID_ARG,
                     "forward runs only");
    }
    assert_true(loss[1] > 1.999999 * loss[0] && loss[1] < 2.000001 * loss[0]);
}

/* A deadline that is over is an error, on one rank and on many; nothing crashes. */
TEST_CASE(deadlines) {
    static const char *const plans[][2] = {{"", "cpu:1"}, {"dp=2,pp=2", "cpu:4"}};
    setenv("WEFT_DELAY_US", "200000", 1);
    for (int k = 0; k < 2; k++) {
        scoped_context ctx = test_context();
        wf_trainer *trainer;
        wf_recipe recipe = SMALL_RECIPE(.n_micro = 2, .n_lanes = 2);
        wf_trainer_config config = WF_TRAINER_CONFIG_INIT;
        config.devices = plans[k][1];
        config.timeout_ms = 30;
        wf_status status =
            test_try_trainer(ctx, small_net, &recipe, plans[k][0], &config, &trainer);
        if (status == WF_OK) {
            status = small_try_step(trainer, 0, NULL);
            wf_trainer_destroy(trainer);
        }
        assert_int_equal(status, WF_TIMEOUT);
        assert_non_null(strstr(wf_context_error(ctx), "waited 30 ms for stream"));
    }
    unsetenv("WEFT_DELAY_US");
}
