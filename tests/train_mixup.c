/* A loss of samples that are mixed in pairs: share CE(y) + partner_share CE(y_partner), and so are
 * its gradients; under every plan one rank's bits, with planned bytes measured.
 *
 * label: serial
 */
#include "api/trainer.h"
#include "small_models.h"

#define SHARE 0.3f

static wf_trainer *trainer_of(wf_context *ctx, int mixup, double smoothing, const char *plan_text) {
    wf_model_config config = TEST_MODEL(.height = 8, .width = 8, .n_classes = 10);
    wf_trainer_config how = WF_TRAINER_CONFIG_INIT;
    wf_recipe recipe = SMALL_RECIPE(.n_micro = 8, .n_lanes = 4, .n_threads = 1);
    config.mixup = mixup;
    config.label_smoothing = smoothing;
    how.keep_gradients = !*plan_text;
    wf_model *model = test_find_model(ctx, "mlp", &config);
    return test_trainer(ctx, model, &recipe, plan_text, &how);
}

/* With the labels of `y`, or with both. */
static wf_step_result step(wf_context *ctx, wf_trainer *t, int number, bool is_mixed,
                           int32_t shift) {
    static small_batch batch;
    static int32_t y_partner[SMALL_BATCH];
    static float share[SMALL_BATCH], partner_share[SMALL_BATCH];
    wf_step_result result;
    small_batch_fill(&batch, number);
    for (int i = 0; i < SMALL_BATCH; i++) {
        y_partner[i] = (batch.y[i] + 3) % 10;
        batch.y[i] = (batch.y[i] + shift) % 10;
        share[i] = SHARE;
        partner_share[i] = 1 - SHARE;
    }
    const wf_feed feeds[] = {{"x", batch.x, sizeof batch.x},
                             {"y", batch.y, sizeof batch.y},
                             {"y_partner", y_partner, sizeof y_partner},
                             {"share", share, sizeof share},
                             {"partner_share", partner_share, sizeof partner_share}};
    TEST_OK(ctx, wf_trainer_step(t, feeds, is_mixed ? 5 : 2, SMALL_BATCH, &result));
    return result;
}

TEST(adds_up) {
    static const char *const names[] = {"net1.weight", "net3.weight", "net3.bias"};
    for (int k = 0; k < 2; k++) {
        double smoothing = k * 0.1;
        scoped_trainer mixed = trainer_of(ctx, 1, smoothing, "");
        scoped_trainer own = trainer_of(ctx, 0, smoothing, "");
        scoped_trainer partner = trainer_of(ctx, 0, smoothing, "");
        wf_step_result m = step(ctx, mixed, 0, true, 0), a = step(ctx, own, 0, false, 0),
                       b = step(ctx, partner, 0, false, 3);
        assert_float_equal(m.loss, SHARE * a.loss + (1 - SHARE) * b.loss, 1e-6);
        assert_true(m.n_rows == SMALL_BATCH && m.n_hits == a.n_hits);
        const wf_graph *g = wfi_trainer_graph(mixed);
        for (int32_t v = 0; v < g->n_values; v++)
            for (size_t n = 0; n < WFI_COUNT(names); n++) {
                const wfi_value *value = wfi_value_at(g, v);
                size_t bytes = wfi_value_bytes(g, v);
                if (value->kind != WFI_VALUE_PARAM || strcmp(value->name, names[n])) continue;
                float *of[3];
                wf_trainer *from[] = {mixed, own, partner};
                for (int i = 0; i < 3; i++) {
                    of[i] = test_calloc(1, bytes);
                    TEST_OK(ctx, wf_trainer_read_gradient(from[i], names[n], of[i], bytes));
                }
                for (size_t i = 0; i < bytes / sizeof(float); i++)
                    assert_float_equal(of[0][i], SHARE * of[1][i] + (1 - SHARE) * of[2][i], 1e-6);
                for (int i = 0; i < 3; i++) test_free(of[i]);
            }
        /* A test knows nothing of partners. */
        double loss;
        TEST_OK(ctx, small_eval(mixed, 0, 8, &loss));
    }
}

TEST_CASE(bits_of_one_rank) {
    static const char *const plans[] = {"",
                                        "dp=2",
                                        "pp=2",
                                        "dp=2,pp=2,schedule=zb1",
                                        "dataparallel=2",
                                        "dp=4,zero=3,recompute=all",
                                        "net3:dataparallel=2"};
    char want[65], sha[65];
    for (size_t k = 0; k < WFI_COUNT(plans); k++) {
        scoped_context ctx = test_context();
        scoped_trainer t = trainer_of(ctx, 1, 0.1, plans[k]);
        for (int s = 0; s < 3; s++) (void)step(ctx, t, s, true, 0);
        TEST_OK(ctx, wf_trainer_weights_sha256(t, k ? sha : want));
        if (k && strcmp(sha, want)) fail_msg("plan '%s': not one rank's bits", plans[k]);
        small_expect_planned(t, plans[k]);
    }
}

static void two_labels(wf_graph *g, const void *config) {
    const int *knows = config;
    wf_tensor x = wf_linear(wf_input(g, "x", WF_F32, WF_SHAPE(4)), "a", 3);
    wf_tensor y = wf_input(g, "y", WF_I32, WF_SCALAR), z = wf_input(g, "z", WF_I32, WF_SCALAR);
    wf_tensor loss = wf_add(wf_cross_entropy(x, y), wf_cross_entropy(x, z));
    if (*knows)
        wf_loss_by(loss, z);
    else
        wf_loss(loss);
}

/* Which rows count is said, or refused. */
TEST(says_which) {
    for (int knows = 0; knows < 2; knows++) {
        scoped_trainer t = NULL;
        const float x[8] = {1, 2, 3, 4, 5, 6, 7, 8};
        const int32_t y[2] = {1, 2}, z[2] = {0, -1};
        const wf_feed feeds[] = {{"x", x, sizeof x}, {"y", y, sizeof y}, {"z", z, sizeof z}};
        wf_step_result result;
        scoped_model model = test_model(ctx, "two", two_labels, &knows, sizeof knows);
        wf_status status = wf_trainer_open(ctx, two_labels, &knows, "batch=2", "", &t);
        if (!knows) {
            TEST_REFUSED(ctx, status, WF_UNSUPPORTED, "wf_loss_by names them");
            continue;
        }
        TEST_OK(ctx, status);
        TEST_OK(ctx, wf_trainer_step(t, feeds, 3, 2, &result));
        assert_int_equal(result.n_rows, 1);
    }
}

TEST(refuses) {
    wf_model_config config = WF_MODEL_CONFIG_INIT, tokens = WF_MODEL_CONFIG_INIT;
    wf_model *model;
    config.mixup = tokens.mixup = 1;
    config.loss = WF_LOSS_MSE;
    TEST_REFUSED(ctx, wf_model_find(ctx, "mlp", &config, &model), WF_INVALID_ARG,
                 "does not use mixup");
    TEST_REFUSED(ctx, wf_model_find(ctx, "gpt2-tiny", &tokens, &model), WF_INVALID_ARG,
                 "does not use mixup");
}

TEST_FIXTURE(test_check_events, NULL)
