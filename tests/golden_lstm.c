/* Hidden state from batch to batch: PyTorch's losses and weights of a truncated backpropagation
 * (golden/make_lstm.py), under plans and with both sorts of kernels; and what two forward runs give
 * that go on with each other.
 *
 * label: once
 */
#include "api/trainer.h"
#include "golden/formula.h"
#include "test_trainer.h"

#include <unistd.h>

enum { N_WORDS = 20, N_STREAMS = 4, N_TOKENS = 5, N_STEPS = 6, N_ALL = N_STEPS * N_TOKENS + 1 };

static char path[200];

static wf_trainer *make(wf_context *ctx, int64_t n_tokens, const char *recipe_text,
                        const char *plan_text, bool is_forward) {
    wf_model_config config = TEST_MODEL(.n_classes = N_WORDS);
    wf_trainer_config how = WF_TRAINER_CONFIG_INIT;
    wf_recipe recipe;
    config.n_tokens = n_tokens;
    config.hidden = 16;
    config.embedding = 12;
    how.forward_only = is_forward;
    TEST_OK(ctx, wf_recipe_parse(ctx, recipe_text, &recipe));
    wf_model *model = test_find_model(ctx, "lstm", &config);
    return test_trainer(ctx, model, &recipe, plan_text, &how);
}

/* The formula's weights, as a file. */
static void write_weights(wf_context *ctx) {
    scoped_trainer t = make(ctx, N_TOKENS, "batch=4", "", true);
    const wf_graph *g = t->ready[0]->program->graph;
    wf_tensor_data tensors[16];
    int n = 0;
    for (int32_t v = 0; v < g->n_values; v++) {
        const wfi_value *value = wfi_value_at(g, v);
        if (value->kind != WFI_VALUE_PARAM) continue;
        float *data = malloc(wfi_value_bytes(g, v));
        assert_true(data && n < 16);
        golden_fill_parameter(value->name, value->shape.dim, value->shape.n_dims, data);
        tensors[n++] = (wf_tensor_data){value->name, WF_F32, value->shape, data};
    }
    TEST_OK(ctx, wf_safetensors_write(ctx, path, tensors, n, NULL, 0));
    while (n > 0) free((void *)tensors[--n].data);
}

static void read_words(int first, int n, int32_t *out) {
    int32_t words[N_STREAMS * N_ALL];
    golden_fill_integers("words", N_WORDS, words, N_STREAMS * N_ALL);
    for (int s = 0; s < N_STREAMS; s++)
        for (int i = 0; i < n; i++) out[s * n + i] = words[s * N_ALL + first + i];
}

static void compare_norms(wf_context *ctx, wf_trainer *t, FILE *golden) {
    char name[64];
    double wanted;
    int n_params = 0;
    for (; fscanf(golden, "%63s %lf", name, &wanted) == 2; n_params++) {
        float data[2048];
        const wf_graph *g = wfi_trainer_graph(t);
        double sum = 0;
        size_t bytes = 0;
        for (int32_t v = 0; v < g->n_values; v++)
            if (g->values[v].name && !strcmp(g->values[v].name, name))
                bytes = wfi_value_bytes(g, v);
        assert_true(bytes && bytes <= sizeof data);
        TEST_OK(ctx, wf_trainer_read(t, name, data, bytes));
        for (size_t i = 0; i < bytes / sizeof *data; i++) sum += (double)data[i] * data[i];
        if (fabs(sqrt(sum) - wanted) > 2e-6 * wanted)
            fail_msg("the norm of %s is %.9g, PyTorch's %.9g", name, sqrt(sum), wanted);
    }
    assert_int_equal(n_params, 11);
}

static void train(wf_context *ctx, const char *recipe, const char *plan, char hex[65]) {
    scoped_trainer t = make(ctx, N_TOKENS, recipe, plan, false);
    FILE *golden = fopen("tests/golden/lstm.txt", "r");
    assert_non_null(golden);
    TEST_OK(ctx, wf_trainer_load_weights(t, path));
    for (int step = 0; step < N_STEPS; step++) {
        int32_t x[N_STREAMS * N_TOKENS], y[N_STREAMS * N_TOKENS];
        double wanted;
        wf_step_result result;
        read_words(step * N_TOKENS, N_TOKENS, x);
        read_words(step * N_TOKENS + 1, N_TOKENS, y);
        const wf_feed feeds[] = {{"x", x, sizeof x}, {"y", y, sizeof y}};
        if (step == 3) wf_trainer_reset_hidden(t, WF_PROGRAM_TRAIN);
        /* An evaluation in between has hidden state of its own. */
        TEST_OK(ctx, wf_trainer_eval(t, feeds, 2, N_STREAMS, &result));
        TEST_OK(ctx, wf_trainer_step(t, feeds, 2, N_STREAMS, &result));
        assert_int_equal(fscanf(golden, "%lf", &wanted), 1);
        if (fabs(result.loss - wanted) > 2e-6)
            fail_msg("%s, %s: step %d has the loss %.9f, PyTorch's %.9f", recipe, plan, step + 1,
                     result.loss, wanted);
    }
    compare_norms(ctx, t, golden);
    fclose(golden);
    TEST_OK(ctx, wf_trainer_weights_sha256(t, hex));
}

TEST(trains_as_pytorch) {
    static const char recipe[] = "batch=4,micro=2,lanes=2,lr=2,clip_norm=0.25";
    static const char *const plans[] = {"dp=2", "pp=2", "recompute=all", "dp=2,pp=2,zero=1"};
    char one[65], hex[65];
    write_weights(ctx);
    train(ctx, "batch=4,lr=2,clip_norm=0.25,kernels=reference", "", hex);
    train(ctx, recipe, "", one);
    for (size_t k = 0; k < sizeof plans / sizeof *plans; k++) {
        train(ctx, recipe, plans[k], hex);
        assert_string_equal(hex, one);
    }
    unlink(path);
}

static void forward(wf_context *ctx, wf_trainer *t, int first, int n, float *logits) {
    int32_t x[N_STREAMS * N_ALL];
    read_words(first, n, x);
    const wf_feed feed = {"x", x, (size_t)(N_STREAMS * n) * sizeof *x};
    TEST_OK(ctx, wf_trainer_forward(t, &feed, 1, N_STREAMS, "logits", logits,
                                    (size_t)(N_STREAMS * n * N_WORDS) * sizeof *logits));
}

TEST(goes_on_forward) {
    static float whole[N_STREAMS * 2 * N_TOKENS * N_WORDS], half[N_STREAMS * N_TOKENS * N_WORDS];
    wf_trainer *long_t, *t;
    write_weights(ctx);
    long_t = make(ctx, 2 * N_TOKENS, "batch=4", "", true);
    t = make(ctx, N_TOKENS, "batch=4", "pp=2", true);
    TEST_OK(ctx, wf_trainer_load_weights(long_t, path));
    TEST_OK(ctx, wf_trainer_load_weights(t, path));
    forward(ctx, long_t, 0, 2 * N_TOKENS, whole);
    for (int pass = 0; pass < 2; pass++) { /* the second time from the begin again */
        if (pass) wf_trainer_reset_hidden(t, WF_PROGRAM_FORWARD);
        for (int k = 0; k < 2; k++) {
            forward(ctx, t, k * N_TOKENS, N_TOKENS, half);
            for (int s = 0; s < N_STREAMS; s++)
                for (int i = 0; i < N_TOKENS * N_WORDS; i++)
                    assert_true(fabsf(half[s * N_TOKENS * N_WORDS + i] -
                                      whole[(2 * s + k) * N_TOKENS * N_WORDS + i]) < 1e-6f);
        }
    }
    wf_trainer_destroy(t);
    wf_trainer_destroy(long_t);
    unlink(path);
}

static double eval(wf_context *ctx, wf_trainer *t, int first, int64_t n_samples) {
    int32_t x[2 * N_STREAMS * N_TOKENS], y[2 * N_STREAMS * N_TOKENS];
    wf_step_result result;
    for (int half = 0; half < 2; half++) {
        read_words(first, N_TOKENS, x + half * N_STREAMS * N_TOKENS);
        read_words(first + 1, N_TOKENS, y + half * N_STREAMS * N_TOKENS);
    }
    size_t bytes = (size_t)(n_samples * N_TOKENS) * sizeof *x;
    const wf_feed feeds[] = {{"x", x, bytes}, {"y", y, bytes}};
    TEST_OK(ctx, wf_trainer_eval(t, feeds, 2, n_samples, &result));
    return result.loss;
}

static void step(wf_context *ctx, wf_trainer *t, int number) {
    int32_t x[N_STREAMS * N_TOKENS], y[N_STREAMS * N_TOKENS];
    wf_step_result result;
    read_words(number * N_TOKENS, N_TOKENS, x);
    read_words(number * N_TOKENS + 1, N_TOKENS, y);
    const wf_feed feeds[] = {{"x", x, sizeof x}, {"y", y, sizeof y}};
    TEST_OK(ctx, wf_trainer_step(t, feeds, 2, N_STREAMS, &result));
}

enum { N_EVALS = 10 };

/* Steps (of the rate 0, unless there are none), and programs of other sizes that are only made,
 * leave the hidden state of evaluations as it is; an evaluation of another size begins with zeros.
 */
static void eval_between(wf_context *ctx, const char *plan, bool steps, double losses[N_EVALS]) {
    scoped_trainer t = make(ctx, N_TOKENS, "batch=4,micro=2,lanes=2,lr=0,threads=1", plan, !steps);
    double *loss = losses;
    TEST_OK(ctx, wf_trainer_load_weights(t, path));
    if (steps) step(ctx, t, 0);
    *loss++ = eval(ctx, t, 0, 4);
    if (steps) step(ctx, t, 1);
    *loss++ = eval(ctx, t, N_TOKENS, 4);
    TEST_OK(ctx, wf_trainer_prepare_eval(t, 8));
    *loss++ = eval(ctx, t, N_TOKENS, 4);
    *loss++ = eval(ctx, t, 0, 1);
    *loss++ = eval(ctx, t, 0, 4); /* from zeros */
    *loss++ = eval(ctx, t, N_TOKENS, 4);
    wf_trainer_reset_hidden(t, WF_PROGRAM_FORWARD);
    *loss++ = eval(ctx, t, 0, 4); /* again */
    *loss++ = eval(ctx, t, N_TOKENS, 4);
    *loss++ = eval(ctx, t, 0, 8);
    *loss++ = eval(ctx, t, N_TOKENS, 8);
    assert_int_equal(loss - losses, N_EVALS);
    assert_memory_equal(losses + 4, losses + 6, 2 * sizeof *losses);
    for (int r = 0; r < wf_program_n_ranks(wf_trainer_program(t)); r++) {
        wf_trainer_memory m = wf_trainer_memory_of(t, r);
        if (m.planned_peak_bytes != m.measured_peak_bytes)
            fail_msg("%s, rank %d: %zu bytes planned, %zu measured", plan, r, m.planned_peak_bytes,
                     m.measured_peak_bytes);
    }
}

TEST(evaluates_the_same) {
    static const char *const plans[] = {"",
                                        "dp=2",
                                        "pp=2",
                                        "pp=2,schedule=zbv",
                                        "recompute=all",
                                        "offload=activations",
                                        "dp=2,zero=3",
                                        "dp=2,pp=2,offload=state"};
    double one[N_EVALS], losses[N_EVALS];
    write_weights(ctx);
    eval_between(ctx, "", false, one);
    for (size_t k = 0; k < sizeof plans / sizeof *plans; k++) {
        eval_between(ctx, plans[k], true, losses);
        for (int i = 0; i < N_EVALS; i++)
            if (losses[i] != one[i])
                fail_msg("%s: evaluation %d has the loss %.9f, without steps %.9f", plans[k], i + 1,
                         losses[i], one[i]);
    }
    unlink(path);
}

TEST(takes_whole_batches) {
    int32_t words[N_STREAMS * N_TOKENS];
    wf_step_result result;
    scoped_trainer t = make(ctx, N_TOKENS, "batch=4", "", false);
    read_words(0, N_TOKENS, words);
    const wf_feed feeds[] = {{"x", words, sizeof words / 2}, {"y", words, sizeof words / 2}};
    assert_int_equal(wf_trainer_step(t, feeds, 2, N_STREAMS / 2, &result), WF_SHAPE);
    assert_non_null(strstr(wf_context_error(ctx), "goes on with its own hidden state"));
}

static int set_path(void **state) {
    const char *base = getenv("TMPDIR");
    snprintf(path, sizeof path, "%s/weft-lstm-%d.safetensors", base ? base : "/tmp", (int)getpid());
    return 0;
}

TEST_FIXTURE(set_path, NULL)
