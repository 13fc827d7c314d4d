/* Labels and tokens that the model does not have are refused where they are fed, by name, before
 * anything has changed; those that are ignored are not.
 *
 * label: serial
 */
#include "small_models.h"

#include <limits.h>

static void expect_sha(wf_context *ctx, wf_trainer *t, const char *want) {
    char sha[65];
    TEST_OK(ctx, wf_trainer_weights_sha256(t, sha));
    assert_string_equal(sha, want);
}

/* Step, evaluation and output; the label of sample 3. */
static void expect_label(wf_context *ctx, wf_trainer *t, int32_t label, wf_status status,
                         const char *sentence) {
    static float logits[SMALL_BATCH * 10];
    small_batch b;
    wf_step_result result;
    small_batch_fill(&b, 1);
    b.y[3] = label;
    const wf_feed feeds[] = {{"x", b.x, sizeof b.x}, {"y", b.y, sizeof b.y}};
    const wf_status all[] = {
        wf_trainer_step(t, feeds, 2, SMALL_BATCH, &result),
        wf_trainer_eval(t, feeds, 2, SMALL_BATCH, &result),
        wf_trainer_forward(t, feeds, 2, SMALL_BATCH, "logits", logits, sizeof logits)};
    for (size_t k = 0; k < sizeof all / sizeof *all; k++)
        if (all[k] != status || (status && !strstr(wf_context_error(ctx), sentence)))
            fail_msg("label %d, call %zu: %s, '%s', not %s, '%s'", label, k, wf_status_name(all[k]),
                     wf_context_error(ctx), wf_status_name(status), sentence);
}

TEST(labels_have_classes) {
    static const char *const plans[] = {"", "pp=2", "dp=2,zero=3"};
    const char *words = "y[3] is 10; the model has 10 classes, 0 to 9, and ignores negative labels";
    for (size_t k = 0; k < sizeof plans / sizeof *plans; k++) {
        wf_recipe recipe =
            SMALL_RECIPE(.n_lanes = 2, .n_threads = 1, .kernels = WF_KERNELS_REFERENCE);
        char sha[65];
        scoped_trainer t = planned_trainer(ctx, small_net, &recipe, plans[k], NULL, 0);
        TEST_OK(ctx, wf_trainer_weights_sha256(t, sha));
        expect_label(ctx, t, 10, WF_INVALID_ARG, words);
        expect_label(ctx, t, INT32_MAX, WF_INVALID_ARG, "y[3] is 2147483647; ");
        /* The bits of 1.0f. */
        expect_label(ctx, t, 0x3F800000, WF_INVALID_ARG,
                     "; 1065353216 has the bits of the float 1");
        assert_int_equal(wf_trainer_n_steps(t), 0);
        expect_sha(ctx, t, sha);
        expect_label(ctx, t, 9, WF_OK, "");
        expect_label(ctx, t, -1, WF_OK, "");
        expect_label(ctx, t, INT32_MIN, WF_OK, "");
        assert_int_equal(wf_trainer_n_steps(t), 3);
    }
}

enum { N_TEXTS = 2, N_TOKENS = 4, N_WORDS = 21 };

static wf_status step_tokens(wf_trainer *t, const char *name, int32_t value) {
    int32_t x[N_TEXTS * N_TOKENS] = {1, 2, 3, 4, 5, 6, 7, 20}, y[N_TEXTS * N_TOKENS] = {0};
    wf_step_result result;
    (*name == 'x' ? x : y)[N_TOKENS + 2] = value;
    const wf_feed feeds[] = {{"x", x, sizeof x}, {"y", y, sizeof y}};
    return wf_trainer_step(t, feeds, 2, N_TEXTS, &result);
}

/* Also where the vocabulary is cut, and no slice has all of the classes. */
TEST(tokens_have_rows) {
    static const char *const models[] = {"gpt2-tiny", "lstm"};
    static const char *const plans[] = {"", "tp=2"};
    const char *rows = "x[1], element 2, is 21; the model has 21 rows for it, 0 to 20";
    for (size_t k = 0; k < 4; k++) {
        wf_model_config config = TEST_MODEL(.n_classes = N_WORDS, .n_tokens = N_TOKENS);
        wf_recipe recipe = TEST_RECIPE(.batch = N_TEXTS, .n_threads = 1);
        if (k % 2) config.hidden = 8;
        recipe.n_slices = k / 2 ? 2 : 1;
        wf_model *model = test_find_model(ctx, models[k % 2], &config);
        scoped_trainer t = test_trainer(ctx, model, &recipe, plans[k / 2], NULL);
        TEST_REFUSED(ctx, step_tokens(t, "x", N_WORDS), WF_INVALID_ARG, rows);
        TEST_REFUSED(ctx, step_tokens(t, "x", -1), WF_INVALID_ARG, "x[1], element 2, is -1;");
        TEST_REFUSED(ctx, step_tokens(t, "y", N_WORDS), WF_INVALID_ARG,
                     "y[1], element 2, is 21; the model has 21 classes, 0 to 20, and ignores");
        assert_int_equal(wf_trainer_n_steps(t), 0);
        TEST_OK(ctx, step_tokens(t, "x", N_WORDS - 1));
        TEST_OK(ctx, step_tokens(t, "y", -100));
    }
}

/* By its number in the array, not in the piece that is computed at once. */
/* One input, two tables: the smaller one bounds it, whichever reads it first. */
static void two_tables(wf_graph *g, const void *config) {
    const int64_t *n_rows = config;
    wf_tensor x = wf_input(g, "x", WF_I32, WF_SHAPE(N_TOKENS)),
              y = wf_input(g, "y", WF_I32, WF_SHAPE(N_TOKENS));
    wf_tensor sum =
        wf_add(wf_embedding(x, "a", n_rows[0], 8, 1), wf_embedding(x, "b", n_rows[1], 8, 1));
    wf_loss(wf_cross_entropy(wf_linear(sum, "head", N_WORDS), y));
}

TEST(smaller_table_counts) {
    for (int k = 0; k < 2; k++) {
        const int64_t n_rows[2] = {k ? 30 : N_WORDS, k ? N_WORDS : 30};
        scoped_trainer t;
        wf_recipe recipe = TEST_RECIPE(.batch = N_TEXTS);
        scoped_plan plan = test_plan(ctx, "");
        scoped_model model = test_model(ctx, "two tables", two_tables, n_rows, sizeof n_rows);
        TEST_OK(ctx, wf_trainer_create(ctx, model, &recipe, plan, NULL, &t));
        TEST_REFUSED(ctx, step_tokens(t, "x", 25), WF_INVALID_ARG, "0 to 20");
        TEST_OK(ctx, step_tokens(t, "x", 19));
    }
}

TEST(modules_have_rows) {
    scoped_module module;
    wf_array *input, *output;
    int32_t tokens[3 * N_TOKENS] = {0};
    tokens[2 * N_TOKENS + 1] = N_WORDS;
    scoped_model model =
        test_find_model(ctx, "gpt2-tiny", &TEST_MODEL(.n_classes = N_WORDS, .n_tokens = N_TOKENS));
    TEST_OK(ctx, wf_module_create(ctx, model, NULL, &module));
    TEST_OK(ctx, wf_array_create(ctx, WF_I32, &WF_SHAPE(3, N_TOKENS), "cpu", tokens, &input));
    TEST_REFUSED(ctx, wf_module_apply(module, input, &output), WF_INVALID_ARG,
                 "x[2], element 1, is 21; the model has 21 rows");
    wf_array_destroy(input);
}

static void gathering_net(wf_graph *g, const void *config) {
    wf_tensor x = wf_linear(wf_input(g, "x", WF_F32, WF_SHAPE(5)), "fc", 3);
    wf_loss(wf_gather(x, wf_input(g, "index", WF_I32, WF_SCALAR)));
}

/* An element that there is not is 0, as graph.h says. */
TEST(elements_may_be_missing) {
    wf_recipe recipe = TEST_RECIPE(.batch = 2);
    wf_step_result result;
    scoped_trainer t = planned_trainer(ctx, gathering_net, &recipe, "", NULL, 0);
    float x[2 * 5] = {1};
    int32_t index[2] = {-1, 3};
    const wf_feed feeds[] = {{"x", x, sizeof x}, {"index", index, sizeof index}};
    TEST_OK(ctx, wf_trainer_step(t, feeds, 2, 2, &result));
    assert_true(result.loss == 0);
}
