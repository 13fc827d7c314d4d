/* Small models and batches for tests of training. */
#pragma once

#include "base/random.h"
#include "test_trainer.h"

#define SMALL_BATCH 16
#define SMALL_IMAGE (3 * 8 * 8)

/* Convolutions with batch norm, a residual, a tied weight: 3 x 8 x 8 images, 10 classes. The first
 * takes every other pixel: what the others compute is most of what these tests do. */
static inline void small_net(wf_graph *g, const void *config) {
    wf_tensor x = wf_input(g, "x", WF_F32, WF_SHAPE(3, 8, 8));
    wf_tensor y = wf_input(g, "y", WF_I32, WF_SCALAR);
    wf_conv2d_shape same = {.stride = 1, .pad = 1};
    wf_conv2d_shape half = {.stride = 2, .pad = 1};
    wf_tensor h = wf_relu(wf_batch_norm(wf_conv2d(x, "conv1", 16, 3, half), "bn1"));
    wf_cut(h, "block");
    wf_tensor r = wf_relu(wf_batch_norm(wf_conv2d(h, "conv2", 16, 3, same), "bn2"));
    r = wf_batch_norm(wf_conv2d(r, "conv3", 16, 3, same), "bn3");
    h = wf_relu(wf_add(r, h));
    wf_cut(h, "head");
    h = wf_global_avg_pool(h);
    wf_tensor tied = wf_parameter(g, "tied", WF_SHAPE(16, 16), (wf_init){WF_INIT_NORMAL, 0.2f});
    wf_tensor none = {g, -1};
    h = wf_gelu(wf_linear_with(h, tied, none));
    wf_cut(h, "last");
    h = wf_linear_with(h, tied, none);
    wf_tensor logits = wf_linear(h, "fc", 10);
    wf_output(logits, "logits");
    wf_loss(wf_cross_entropy(logits, y));
}

/* No batch norm: its gradients do not depend on how the batch is divided. */
static inline void plain_net(wf_graph *g, const void *config) {
    wf_tensor x = wf_input(g, "x", WF_F32, WF_SHAPE(3, 8, 8));
    wf_tensor y = wf_input(g, "y", WF_I32, WF_SCALAR);
    wf_tensor h = wf_relu(wf_conv2d(x, "conv1", 16, 3, (wf_conv2d_shape){.stride = 2, .pad = 1}));
    h = wf_cut(wf_dropout(wf_reshape(h, WF_SHAPE(-1, 256)), "drop", 0.2f), "head");
    wf_loss(wf_cross_entropy(wf_linear(wf_tanh(wf_linear(h, "fc1", 20)), "fc2", 10), y));
}

static inline wf_tensor token_mlp(wf_tensor x, const char *first, const char *second) {
    return wf_linear(wf_gelu(wf_linear(x, first, 48)), second, 24);
}

/* Between the pairs slices have rows: a pair reads the residual stream
 * itself (its gradient goes two ways unchanged), then the norm of it, then the sum of the pair
 * before, beside a dropout; all rows of the last sum are read at once. */
static inline void add_tokens(wf_graph *g, int64_t n_tokens) {
    wf_tensor x = wf_input(g, "x", WF_F32, WF_SHAPE(3, 8, 8));
    wf_tensor y = wf_input(g, "y", WF_I32, WF_SCALAR);
    x = wf_linear(wf_reshape(x, WF_SHAPE(-1, n_tokens, SMALL_IMAGE / n_tokens)), "in", 24);
    x = wf_layer_norm(wf_add(x, token_mlp(x, "a1", "a2")), "ln1");
    wf_cut(x, "block");
    x = wf_add(x, wf_dropout(token_mlp(wf_layer_norm(x, "ln2"), "b1", "b2"), "drop", 0.1f));
    wf_cut(x, "head");
    wf_tensor c = token_mlp(x, "c1", "c2");
    wf_cut(c, "last");
    x = wf_add(token_mlp(c, "d1", "d2"), wf_add(x, c));
    wf_tensor logits = wf_linear(wf_reshape(x, WF_SHAPE(-1, 24 * n_tokens)), "head", 10);
    wf_output(logits, "logits");
    wf_loss(wf_cross_entropy(logits, y));
}

static inline void token_net(wf_graph *g, const void *config) {
    add_tokens(g, 8);
}

/* A recurrent net of three steps, with hidden state. */
static inline void lstm_net(wf_graph *g, const void *config) {
    wf_tensor x = wf_input(g, "x", WF_F32, WF_SHAPE(3, 8));
    wf_tensor y = wf_input(g, "y", WF_F32, WF_SHAPE(3, 8));
    wf_loss(wf_mse(wf_lstm(x, "lstm", 0, 8), y));
}

typedef struct small_batch {
    float x[SMALL_BATCH * SMALL_IMAGE];
    int32_t y[SMALL_BATCH];
} small_batch;

/* The same for the same step. */
static inline void small_batch_fill(small_batch *b, int step) {
    wfi_random_key key = {11, 22};
    for (int i = 0; i < SMALL_BATCH; i++) {
        b->y[i] = (i * 7 + step) % 10;
        for (int k = 0; k < SMALL_IMAGE; k++)
            b->x[i * SMALL_IMAGE + k] =
                wfi_random_normal(key, (uint64_t)step, (uint64_t)(i * SMALL_IMAGE + k)) +
                0.3f * (float)(b->y[i] - 5) * (float)(k % 3);
    }
}

#define SMALL_RECIPE(...)                                                                          \
    TEST_RECIPE(.batch = SMALL_BATCH, .n_micro = 2, .n_lanes = 1, .seed = 5, .lr = 0.05,           \
                .momentum = 0.9, __VA_ARGS__)
static inline wf_recipe small_recipe(void) {
    return SMALL_RECIPE(.n_micro = 2);
}

static inline wf_trainer *planned_trainer(wf_context *ctx, wf_model_function function,
                                          const wf_recipe *recipe, const char *plan_text,
                                          const char *devices, int keep_gradients) {
    wf_trainer_config config = WF_TRAINER_CONFIG_INIT;
    config.keep_gradients = keep_gradients;
    config.devices = devices;
    wf_model *model = test_model(ctx, "small", function, NULL, 0);
    return test_trainer(ctx, model, recipe, plan_text, &config);
}

/* With a folder for what is kept on disk. */
static inline wf_trainer *folder_trainer(wf_context *ctx, const char *path,
                                         wf_model_function function, const wf_recipe *recipe,
                                         const char *plan_text, int keep_gradients) {
    wf_trainer_config config = WF_TRAINER_CONFIG_INIT;
    config.keep_gradients = keep_gradients;
    config.folder = path;
    wf_model *model = test_model(ctx, "small", function, NULL, 0);
    return test_trainer(ctx, model, recipe, plan_text, &config);
}

static inline wf_trainer *small_trainer(wf_context *ctx, wf_model_function function,
                                        const wf_recipe *recipe, int keep_gradients) {
    return planned_trainer(ctx, function, recipe, "", "cpu:1", keep_gradients);
}

/* For steps that may fail; *loss_out may be NULL. */
static inline wf_status small_try_step(wf_trainer *trainer, int step, double *loss_out) {
    static small_batch batch; /* a task of a failed step may still read it */
    small_batch_fill(&batch, step);
    wf_feed feeds[] = {{"x", batch.x, sizeof batch.x}, {"y", batch.y, sizeof batch.y}};
    wf_step_result result;
    wf_status status = wf_trainer_step(trainer, feeds, 2, SMALL_BATCH, &result);
    if (status == WF_OK && loss_out) *loss_out = result.loss;
    return status;
}

/* Forward only, some samples of a step's. */
static inline wf_status small_eval(wf_trainer *trainer, int step, int64_t n_samples,
                                   double *loss_out) {
    static small_batch batch;
    small_batch_fill(&batch, step);
    wf_feed feeds[] = {{"x", batch.x, sizeof batch.x / SMALL_BATCH * (size_t)n_samples},
                       {"y", batch.y, sizeof *batch.y * (size_t)n_samples}};
    wf_step_result result;
    wf_status status = wf_trainer_eval(trainer, feeds, 2, n_samples, &result);
    if (status == WF_OK) *loss_out = result.loss;
    return status;
}

static inline double small_step(wf_context *ctx, wf_trainer *trainer, int step) {
    double loss = 0;
    TEST_OK(ctx, small_try_step(trainer, step, &loss));
    return loss;
}

/* Steps `n` to 2n - 1: their last loss, and the hash of the weights. */
static inline void small_go_on(wf_context *ctx, wf_trainer *t, int n, char *said, size_t bytes) {
    char sha[65];
    double loss = 0;
    for (int s = 0; s < n; s++) loss = small_step(ctx, t, n + s);
    TEST_OK(ctx, wf_trainer_weights_sha256(t, sha));
    snprintf(said, bytes, "%.17g %s", loss, sha);
}

/* Of a rank and a space where another peak was measured than planned; NULL: nowhere. */
static inline const char *small_other_peak(const wf_trainer *t) {
    static __thread char text[200];
    for (int r = 0; r < wf_program_n_ranks(wf_trainer_program(t)); r++) {
        wf_trainer_memory m = wf_trainer_memory_of(t, r);
        if (m.planned_peak_bytes == m.measured_peak_bytes &&
            m.planned_host_peak_bytes == m.measured_host_peak_bytes &&
            m.planned_disk_peak_bytes == m.measured_disk_peak_bytes)
            continue;
        snprintf(text, sizeof text, "rank %d: %zu %zu %zu planned, %zu %zu %zu measured", r,
                 m.planned_peak_bytes, m.planned_host_peak_bytes, m.planned_disk_peak_bytes,
                 m.measured_peak_bytes, m.measured_host_peak_bytes, m.measured_disk_peak_bytes);
        return text;
    }
    return NULL;
}

static inline void small_expect_planned(const wf_trainer *t, const char *what) {
    const char *other = small_other_peak(t);
    if (other) fail_msg("%s, %s", what, other);
}
