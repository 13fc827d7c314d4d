/* ResNet-50 and GPT-2 against PyTorch's float64, judged by what PyTorch's own float32
 * loses (golden/README.md says how): loss, every gradient, ten steps of SGD, logits
 * with running statistics.
 *
 * label: once long
 */
#include "api/trainer.h"
#include "golden/formula.h"
#include "state/pieces.h"
#include "test.h"

#include <math.h>

#ifndef GOLDEN_FOLDER
#define GOLDEN_FOLDER "tests/golden"
#endif

/* After ten steps a value may have changed its side of ReLU's corner on the way. The
 * logits of the first step are judged by the gradient of fc.bias, which is the softmax of
 * them less the labels. */
#define AFTER_TEN_STEPS 10

typedef struct golden {
    wf_context *ctx;
    wf_safetensors *file, *peer; /* exact numbers; PyTorch's errors, if they are elsewhere */
    const char *prefix;          /* of names there */
    wf_trainer *trainer;
    double factor; /* of PyTorch's error; 2, or 10 for Winograd */
    int n_compared, n_beyond;
    double worst; /* error / limit */
    char worst_name[128];
} golden;

/* Reads an F64 tensor into memory of the caller's; returns its length, 0 if absent. */
static size_t read_from(wf_context *ctx, wf_safetensors *file, const char *key, double *out,
                        size_t most) {
    int i = wf_safetensors_find(file, key);
    if (i < 0) return 0;
    const wf_safetensors_entry *entry = wf_safetensors_get(file, i);
    size_t n = (size_t)entry->n_bytes / sizeof(double);
    assert_true(entry->dtype == WF_F64 && n <= most);
    TEST_OK(ctx, wf_safetensors_read(file, i, out, n * sizeof *out));
    return n;
}

static size_t read_golden(const golden *g, const char *key, double *out, size_t most) {
    return read_from(g->ctx, g->file, key, out, most);
}

/* The larger of PyTorch's errors for this key. */
static double peer_error(const golden *g, const char *key) {
    char name[256];
    double errors[32], most = 0;
    if (g->peer)
        snprintf(name, sizeof name, "%s.%s.err16", g->prefix, key);
    else
        snprintf(name, sizeof name, "%s.err32", key);
    size_t n = read_from(g->ctx, g->peer ? g->peer : g->file, name, errors, 32);
    assert_true(n > 0);
    for (size_t i = 0; i < n; i++) most = errors[i] > most ? errors[i] : most;
    return most;
}

static void judge(golden *g, const char *what, double error, double limit) {
    g->n_compared++;
    if (!(error <= limit)) {
        g->n_beyond++;
        print_error("%s: relative error %.3g, the limit is %.3g\n", what, error, limit);
    }
    if (!(error / limit <= g->worst)) {
        g->worst = error / limit;
        snprintf(g->worst_name, sizeof g->worst_name, "%s", what);
    }
}

static double relative_error(const float *got, const double *want, const size_t *index, size_t n) {
    double difference = 0, size = 0;
    for (size_t i = 0; i < n; i++) {
        double d = got[index ? index[i] : i] - want[i];
        difference += d * d;
        size += want[i] * want[i];
    }
    return sqrt(difference / size);
}

/* Compares a whole tensor by its norm and by its samples. */
static void compare(golden *g, const char *prefix, const char *name, const float *got, size_t n,
                    double factor) {
    char key[256];
    double want[GOLDEN_N_SAMPLES], norm, square = 0;
    size_t index[GOLDEN_N_SAMPLES];
    snprintf(key, sizeof key, "%s.%s.samples", prefix, name);
    size_t n_samples = read_golden(g, key, want, GOLDEN_N_SAMPLES);
    assert_int_equal(n_samples, golden_n_samples(n));
    for (size_t i = 0; i < n_samples; i++) index[i] = golden_sample_index(name, n, i);
    judge(g, key, relative_error(got, want, index, n_samples), factor * peer_error(g, key) + 1e-7);
    snprintf(key, sizeof key, "%s.%s.norm", prefix, name);
    assert_int_equal(read_golden(g, key, &norm, 1), 1);
    for (size_t i = 0; i < n; i++) square += (double)got[i] * got[i];
    snprintf(key, sizeof key, "%s.%s", prefix, name);
    judge(g, key, fabs(sqrt(square) - norm) / norm, factor * peer_error(g, key) + 1e-7);
}

/* Writes a parameter or buffer into the trainer, or reads it: run by run, each from one piece. */
static void move_tensor(const golden *g, const char *name, float *whole, bool writes) {
    wfi_state_list list;
    TEST_OK(g->ctx,
            wfi_state_list_create(wf_trainer_program(g->trainer), WFI_STATE_WEIGHTS, &list));
    const wfi_state_tensor *tensor = wfi_state_find(&list, name);
    int64_t n = wf_shape_n_elem(&list.graph->values[tensor->value].shape);
    const int64_t *begin = tensor->run_begin;
    assert_int_equal(tensor->n_pieces, tensor->n_parts);
    for (int64_t k = 0; k * begin[tensor->n_parts] < n * tensor->n_parts; k++) {
        int64_t part = k % tensor->n_parts, period = k / tensor->n_parts;
        int64_t run = begin[part + 1] - begin[part];
        const wfi_state_piece *piece = &tensor->pieces[part];
        char *at = g->trainer->workers[0].arenas->base + piece->at;
        float *own = (float *)at + period * run;
        float *there = whole + period * begin[tensor->n_parts] + begin[part];
        assert_int_equal(piece->part, part);
        memcpy(writes ? own : there, writes ? there : own, (size_t)run * sizeof(float));
    }
    wfi_state_list_release(&list);
}

static void fill_weights(const golden *g) {
    const wf_graph *graph = wfi_trainer_graph(g->trainer);
    for (int32_t v = 0; v < graph->n_values; v++) {
        const wfi_value *value = wfi_value_at(graph, v);
        if (!wfi_value_is_state(value) || value->kind == WFI_VALUE_BUFFER) continue;
        float *whole = test_malloc(wfi_value_bytes(graph, v));
        golden_fill_parameter(value->name, value->shape.dim, value->shape.n_dims, whole);
        move_tensor(g, value->name, whole, true);
        test_free(whole);
    }
}

static void compare_gradients(golden *g) {
    const wf_graph *graph = wfi_trainer_graph(g->trainer);
    for (int32_t v = 0; v < graph->n_values; v++) {
        const wfi_value *value = wfi_value_at(graph, v);
        if (!wfi_value_is_state(value) || value->kind == WFI_VALUE_BUFFER) continue;
        size_t bytes = wfi_value_bytes(graph, v);
        float *gradient = test_malloc(bytes);
        TEST_OK(g->ctx, wf_trainer_read_gradient(g->trainer, value->name, gradient, bytes));
        compare(g, "grad", value->name, gradient, bytes / sizeof *gradient, g->factor);
        test_free(gradient);
    }
}

static void compare_state(golden *g) {
    const wf_graph *graph = wfi_trainer_graph(g->trainer);
    for (int32_t v = 0; v < graph->n_values; v++) {
        const wfi_value *value = wfi_value_at(graph, v);
        size_t bytes = wfi_value_bytes(graph, v);
        if (!wfi_value_is_state(value) || value->dtype != WF_F32) continue;
        float *whole = test_malloc(bytes);
        move_tensor(g, value->name, whole, false);
        compare(g, "after", value->name, whole, bytes / sizeof *whole, AFTER_TEN_STEPS);
        test_free(whole);
    }
}

static void compare_losses(golden *g, const double *got) {
    double want[10], most = peer_error(g, "losses");
    double factor = g->peer ? 2 * g->factor : g->factor; /* steps of BF16 part ways */
    assert_int_equal(read_golden(g, "losses", want, 10), 10);
    for (int s = 0; s < 10; s++) {
        char what[32];
        snprintf(what, sizeof what, "losses[%d]", s);
        judge(g, what, fabs(got[s] - want[s]) / want[s], factor * most + 1e-7);
    }
}

static void compare_logits(golden *g, const wf_feed *feeds, int64_t n_samples) {
    static double want[2 * 32 * 256];
    static float got[2 * 32 * 256];
    size_t n = read_golden(g, "eval_logits", want, sizeof want / sizeof *want);
    assert_true(n > 0);
    TEST_OK(g->ctx,
            wf_trainer_forward(g->trainer, feeds, 2, n_samples, "logits", got, n * sizeof *got));
    judge(g, "eval_logits", relative_error(got, want, NULL, n),
          AFTER_TEN_STEPS * peer_error(g, "eval_logits") + 1e-7);
}

static golden begin(const char *file, const char *model_name, const wf_model_config *model_config,
                    wf_recipe recipe, double factor) {
    golden g = {.ctx = test_context(), .factor = factor};
    wf_trainer_config config = WF_TRAINER_CONFIG_INIT;
    config.keep_gradients = 1;
    TEST_OK(g.ctx, wf_safetensors_open(g.ctx, file, &g.file));
    if (recipe.dtype == WF_BF16) {
        TEST_OK(g.ctx, wf_safetensors_open(g.ctx, GOLDEN_FOLDER "/bf16.safetensors", &g.peer));
        g.prefix = model_name;
    }
    wf_model *model = test_find_model(g.ctx, model_name, model_config);
    wf_plan *plan = test_plan(g.ctx, "");
    TEST_OK(g.ctx, wf_trainer_create(g.ctx, model, &recipe, plan, &config, &g.trainer));
    wf_model_destroy(model);
    wf_plan_destroy(plan);
    fill_weights(&g);
    return g;
}

static void run(golden *g, const wf_feed *feeds, int64_t n_samples, int n_least) {
    double losses[10];
    for (int s = 0; s < 10; s++) {
        wf_step_result result;
        TEST_OK(g->ctx, wf_trainer_step(g->trainer, feeds, 2, n_samples, &result));
        losses[s] = result.loss;
        if (s == 0) compare_gradients(g);
    }
    compare_losses(g, losses);
    compare_state(g);
    compare_logits(g, feeds, n_samples);
    print_message("%d compared, worst %s at %.2f of its limit\n", g->n_compared, g->worst_name,
                  g->worst);
    assert_true(g->n_compared >= n_least);
    assert_int_equal(g->n_beyond, 0);
    wf_trainer_destroy(g->trainer);
    wf_safetensors_close(g->file);
    wf_safetensors_close(g->peer);
    test_context_end(g->ctx);
}

static void resnet50(wf_conv conv, double factor) {
    static float x[4 * 3 * 36 * 36];
    int32_t y[4];
    golden_fill("input.176", 2, 0, x, sizeof x / sizeof *x);
    golden_fill_integers("label", 1000, y, 4);
    wf_model_config model_config = TEST_MODEL(.height = 36, .width = 36);
    wf_recipe recipe = TEST_RECIPE(.batch = 4, .lr = 1e-4, .momentum = 0.9, .conv = conv);
    wf_feed feeds[] = {{"x", x, sizeof x}, {"y", y, sizeof y}};
    golden g =
        begin(GOLDEN_FOLDER "/resnet50.safetensors", "resnet50", &model_config, recipe, factor);
    run(&g, feeds, 4, 2 * (161 + 161 + 106) + 11);
}

TEST_CASE(resnet50_direct) {
    resnet50(WF_CONV_DIRECT, 2);
}

TEST_CASE(resnet50_winograd) {
    resnet50(WF_CONV_WINOGRAD, 10);
}

static void train_gpt2_tiny(wf_dtype dtype, int n_ways) {
    int32_t x[64], y[64];
    golden_fill_integers("input", 256, x, 64);
    golden_fill_integers("label", 256, y, 64);
    wf_feed feeds[] = {{"x", x, sizeof x}, {"y", y, sizeof y}};
    for (int k = 0; k < n_ways; k++) {
        wf_model_config model_config = TEST_MODEL(.n_classes = 256, .n_tokens = 32);
        wf_recipe recipe = TEST_RECIPE(.batch = 2, .lr = 0.1, .momentum = 0.9,
                                       .kernels = k % 2 ? WF_KERNELS_REFERENCE : WF_KERNELS_FAST,
                                       .n_slices = 1 << k / 2, .dtype = dtype);
        golden g =
            begin(GOLDEN_FOLDER "/gpt2-tiny.safetensors", "gpt2-tiny", &model_config, recipe, 2);
        run(&g, feeds, 2, 2 * 2 * 28 + 11);
    }
}

TEST_CASE(gpt2_tiny) {
    train_gpt2_tiny(WF_F32, 6);
}

/* PyTorch's autocast has weights and activations as narrow; it rounds their gradients, too. */
TEST_CASE(gpt2_tiny_bf16) {
    train_gpt2_tiny(WF_BF16, 4);
}
