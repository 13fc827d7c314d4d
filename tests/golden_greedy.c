/* GPT-2 token by token, with keys and values kept in a cache: PyTorch's own greedy continuation
 * (golden/make_greedy.py), the logits of whole samples, under every plan.
 *
 * label: once
 */
#include "api/trainer.h"
#include "golden/formula.h"
#include "state/pieces.h"
#include "test_trainer.h"

#include <math.h>
#include <unistd.h>

enum { N_PROMPT = 14, N_ALL = 64, N_WORDS = 256 };

static wf_trainer *make(wf_context *ctx, int cached, const char *plan_text) {
    wf_model_config config = TEST_MODEL(.n_classes = N_WORDS);
    wf_recipe recipe = TEST_RECIPE(.batch = 2);
    wf_trainer_config how = WF_TRAINER_CONFIG_INIT;
    config.cached = cached;
    if (!*plan_text) recipe.n_slices = 1; /* parameters as a whole, as the file has them */
    how.forward_only = 1;
    wf_model *model = test_find_model(ctx, "gpt2-tiny", &config);
    return test_trainer(ctx, model, &recipe, plan_text, &how);
}

/* The formula's weights, as a file. */
static void write_weights(wf_context *ctx, const char *path) {
    scoped_trainer t = make(ctx, 0, "");
    const wf_graph *g = t->ready[0]->program->graph;
    wf_tensor_data tensors[64];
    int n = 0;
    for (int32_t v = 0; v < g->n_values; v++) {
        const wfi_value *value = wfi_value_at(g, v);
        if (value->kind != WFI_VALUE_PARAM) continue;
        float *data = malloc(wfi_value_bytes(g, v));
        assert_true(data && n < 64);
        golden_fill_parameter(value->name, value->shape.dim, value->shape.n_dims, data);
        tensors[n++] = (wf_tensor_data){value->name, WF_F32, value->shape, data};
    }
    TEST_OK(ctx, wf_safetensors_write(ctx, path, tensors, n, NULL, 0));
    while (n > 0) free((void *)tensors[--n].data);
}

/* Logits [n, words] of n tokens from position `first` on. */
static void forward(wf_context *ctx, wf_trainer *t, const int32_t *tokens, int32_t first, int n,
                    float *logits) {
    int32_t positions[N_ALL];
    for (int i = 0; i < n; i++) positions[i] = first + i;
    wf_feed feeds[] = {{"x", tokens + first, (size_t)n * 4},
                       {"position", positions, (size_t)n * 4}};
    TEST_OK(ctx, wf_trainer_forward(t, feeds, 2, n, "logits", logits,
                                    (size_t)n * N_WORDS * sizeof *logits));
}

static int32_t likeliest(const float *logits) {
    int32_t best = 0;
    for (int32_t k = 1; k < N_WORDS; k++)
        if (logits[k] > logits[best]) best = k;
    return best;
}

static void read_golden(int32_t wanted[N_ALL]) {
    FILE *file = fopen("tests/golden/gpt2-greedy.txt", "r");
    assert_non_null(file);
    for (int i = 0; i < N_ALL; i++) assert_int_equal(fscanf(file, "%d", &wanted[i]), 1);
    fclose(file);
}

static float logits[N_ALL * N_WORDS], whole[N_ALL * N_WORDS];

/* The prompt in blocks of that size, then 50 tokens one by one. */
static void continue_text(wf_context *ctx, wf_trainer *t, int block, const int32_t *wanted) {
    int32_t tokens[N_ALL];
    int n = 0, last = 0;
    for (int i = 0; i < N_PROMPT; i++) tokens[i] = wanted[i];
    for (; n < N_PROMPT; n += last) {
        last = N_PROMPT - n < block ? N_PROMPT - n : block;
        forward(ctx, t, tokens, n, last, logits);
        for (int i = 0; i < last * N_WORDS; i++)
            assert_true(fabsf(logits[i] - whole[n * N_WORDS + i]) < 1e-4f);
    }
    tokens[n] = likeliest(logits + (last - 1) * N_WORDS);
    for (n++; n < N_ALL; n++) {
        assert_int_equal(tokens[n - 1], wanted[n - 1]);
        forward(ctx, t, tokens, n - 1, 1, logits);
        tokens[n] = likeliest(logits);
    }
    assert_int_equal(tokens[N_ALL - 1], wanted[N_ALL - 1]);
}

TEST(continues_as_pytorch) {
    static const char *const plans[] = {"", "pp=2", "pp=2,cut=h.1", "dp=2"};
    const char *base = getenv("TMPDIR");
    char path[200], hex[2][65];
    int32_t wanted[N_ALL];
    snprintf(path, sizeof path, "%s/weft-greedy-%d.safetensors", base ? base : "/tmp",
             (int)getpid());
    read_golden(wanted);
    write_weights(ctx, path);
    wf_trainer *plain = make(ctx, 0, "");
    TEST_OK(ctx, wf_trainer_load_weights(plain, path));
    TEST_OK(ctx, wf_trainer_weights_sha256(plain, hex[0]));
    wf_feed feed = {"x", wanted, sizeof wanted};
    TEST_OK(ctx, wf_trainer_forward(plain, &feed, 1, 1, "logits", whole, sizeof whole));
    wf_trainer_destroy(plain);
    for (size_t k = 0; k < sizeof plans / sizeof *plans; k++) {
        scoped_trainer t = make(ctx, 1, plans[k]);
        TEST_OK(ctx, wf_trainer_load_weights(t, path));
        continue_text(ctx, t, N_PROMPT, wanted);
        continue_text(ctx, t, 4, wanted); /* a new text: the cache is written again */
        for (int r = 0; r < wf_program_n_ranks(wf_trainer_program(t)); r++) {
            wf_trainer_memory m = wf_trainer_memory_of(t, r);
            assert_true(m.measured_peak_bytes <= m.planned_peak_bytes);
        }
        /* What is kept from run to run is no state. */
        TEST_OK(ctx, wf_trainer_weights_sha256(t, hex[1]));
        assert_string_equal(hex[0], hex[1]);
    }
    unlink(path);
}

TEST(is_not_trained) {
    wf_model_config config = TEST_MODEL(.cached = 1, .n_classes = N_WORDS);
    wf_recipe recipe = WF_RECIPE_INIT;
    wf_trainer *t;
    wf_model *model = test_find_model(ctx, "gpt2-tiny", &config);
    scoped_plan plan = test_plan(ctx, "");
    assert_int_equal(wf_trainer_create(ctx, model, &recipe, plan, NULL, &t), WF_UNSUPPORTED);
    assert_non_null(strstr(wf_context_error(ctx), "a model with a cache cannot be trained"));
    wf_model_destroy(model);
    config.n_tokens = 8;
    assert_int_equal(wf_model_find(ctx, "gpt2-tiny", &config, &model), WF_INVALID_ARG);
}
