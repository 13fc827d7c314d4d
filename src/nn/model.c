/* The model handle, and the list of ready-made models. */
#include "nn/model.h"
#include "graph/graph.h"
#include "nn/models/registry.h"

#include <stdio.h>
#include <string.h>

typedef struct registered_model {
    wf_model_info info;
    wf_model_function function;
    int64_t n_classes, n_positions; /* where the configuration says 0 */
} registered_model;

static const registered_model registry[] = {
    {{"mlp", 0, 0, 0, 28, 0, 1000, 0, 0, 0, "net3", 0, 0}, wfi_model_mlp, 10, 0},
    {{"resnet18", 0, 1, 0, 128, 0, 1000, 0, 0, 0, "fc", 0, 0}, wfi_model_resnet18, 1000, 0},
    {{"resnet34", 0, 1, 0, 128, 0, 1000, 0, 0, 0, "fc", 0, 0}, wfi_model_resnet34, 1000, 0},
    {{"resnet50", 0, 1, 0, 128, 0, 1000, 0, 0, 0, "fc", 0, 0}, wfi_model_resnet50, 1000, 0},
    {{"gpt2", 1, 0, 0, 0, 256, 50257, 12, 768, 12, NULL, 0, 0}, wfi_model_gpt2, 50257, 1024},
    {{"gpt2-tiny", 1, 0, 0, 0, 32, 256, 2, 64, 4, NULL, 0, 0}, wfi_model_gpt2, 256, 64},
    {{"gpt2-medium", 1, 0, 0, 0, 256, 50257, 24, 1024, 16, NULL, 0, 0},
     wfi_model_gpt2,
     50257,
     1024},
    {{"gpt2-large", 1, 0, 0, 0, 256, 50257, 36, 1280, 20, NULL, 0, 0}, wfi_model_gpt2, 50257, 1024},
    {{"gpt2-xl", 1, 0, 0, 0, 256, 50257, 48, 1600, 25, NULL, 0, 0}, wfi_model_gpt2, 50257, 1024},
    {{"gpt", 1, 0, 1, 0, 256, 50257, 12, 768, 12, NULL, 0, 0}, wfi_model_gpt2, 50257, 1024},
    {{"llama", 1, 0, 1, 0, 256, 32000, 12, 768, 12, NULL, 1, 0}, wfi_model_llama, 32000, 2048},
    {{"lstm", 1, 0, 1, 0, 35, 10000, 2, 200, 0, NULL, 0, 1}, wfi_model_lstm, 10000, 0},
};

const wf_model_info *wf_model_registry(int i) {
    return i >= 0 && (size_t)i < WFI_COUNT(registry) ? &registry[i].info : NULL;
}

/* The info is a model's first member. */
const wf_model_info *wf_model_registry_find(const char *name) {
    for (size_t i = 0; i < WFI_COUNT(registry); i++)
        if (!strcmp(registry[i].info.name, name)) return &registry[i].info;
    return NULL;
}

static wf_tensor loss_of(wf_tensor logits, wf_tensor y, const wf_model_config *c) {
    return wf_smoothed_cross_entropy(logits, y, c->label_smoothing);
}

/* Hits are those of each sample's own label. */
static void classify_mixed(wf_tensor logits, const wf_model_config *c) {
    wf_graph *g = logits.graph;
    wf_tensor y = wf_input(g, "y", WF_I32, WF_SCALAR),
              partner = wf_input(g, "y_partner", WF_I32, WF_SCALAR),
              share = wf_input(g, "share", WF_F32, WF_SCALAR),
              partner_share = wf_input(g, "partner_share", WF_F32, WF_SCALAR);
    wf_loss_by(wf_add(wf_mul(loss_of(logits, y, c), share),
                      wf_mul(loss_of(logits, partner, c), partner_share)),
               y);
}

void wfi_model_classify(wf_tensor logits, const wf_model_config *c) {
    wf_graph *g = logits.graph;
    wf_output(logits, "logits");
    if (c->loss == WF_LOSS_MSE)
        wf_loss(wf_mse(logits, wf_input(g, "y", WF_F32, WF_SHAPE(c->n_classes))));
    else if (c->mixup && g && g->training)
        classify_mixed(logits, c);
    else
        wf_loss(loss_of(logits, wf_input(g, "y", WF_I32, WF_SCALAR), c));
}

bool wfi_model_read_tokens(wf_graph *g, const wf_model_config *c, wf_tensor *ids_out,
                           wf_tensor *position_out) {
    wf_shape sample = c->cached ? WF_SCALAR : WF_SHAPE(c->n_tokens);
    if (c->n_tokens > c->n_positions) {
        char text[96];
        snprintf(text, sizeof text, "a sample of %lld tokens; this model reads at most %lld",
                 (long long)c->n_tokens, (long long)c->n_positions);
        wf_graph_fail(g, text);
        return false;
    }
    *ids_out = wf_input(g, "x", WF_I32, sample);
    *position_out = c->cached ? wf_input(g, "position", WF_I32, sample) : (wf_tensor){g, -1};
    return true;
}

void wfi_model_predict_tokens(wf_tensor logits, const wf_model_config *c) {
    wf_output(logits, "logits");
    if (!c->cached)
        wf_loss(loss_of(logits, wf_input(logits.graph, "y", WF_I32, WF_SHAPE(c->n_tokens)), c));
}

static const char *name_of(int i) {
    return wf_model_registry(i) ? wf_model_registry(i)->name : NULL;
}

/* A value that has no effect on the model is a mistake of the caller. */
static wf_status check_field(wf_context *ctx, const wf_model_info *m, const char *field,
                             double value, double usual, double least, double most, bool is_used,
                             const char *models) {
    if (value != usual && !is_used)
        return wfi_fail(ctx, WF_INVALID_ARG,
                        "%s does not use %s, which is for %s; leave it at its default", m->name,
                        field, models);
    if (value >= least && value <= most) return WF_OK; /* false for NaN */
    return wfi_fail(ctx, WF_INVALID_ARG, "%s: %s is %.15g; it must lie between %.15g and %.15g",
                    m->name, field, value, least, most);
}

static wf_status check_fields(wf_context *ctx, const wf_model_info *m, const wf_model_config *c) {
#define CHECK(type, field, value, least, most, has_effect, models, help)                           \
    WF_TRY(check_field(ctx, m, #field, (double)c->field, value, least, most, has_effect, models));
    WF_MODEL_FIELDS(CHECK)
#undef CHECK
    return WF_OK;
}

/* Graphs of more elements have no shapes. */
#define MOST_ELEMENTS (INT64_C(1) << 40)

/* As published: 11,008 for a width of 4,096. */
static void resolve_gated(wf_model_config *c) {
    int64_t width = c->hidden * 8 / 3, multiple = width < 1024 ? 32 : 256;
    if (!c->n_kv_heads) c->n_kv_heads = c->n_heads;
    if (!c->ffn) c->ffn = (width + multiple - 1) / multiple * multiple;
    if (c->rope_theta == 0) c->rope_theta = 500000;
    if (c->norm_eps == 0) c->norm_eps = 1e-5;
}

static wf_status resolve_sizes(wf_context *ctx, const registered_model *m, wf_model_config *c) {
    const char *name = m->info.name;
    bool is_open = !c->n_heads, is_recurrent = m->info.is_recurrent;
    if (!c->n_layers) c->n_layers = m->info.n_layers;
    if (!c->hidden) c->hidden = m->info.hidden;
    if (is_recurrent && !c->embedding) c->embedding = c->hidden;
    if (is_open) c->n_heads = m->info.n_heads;
    while (is_open && c->n_heads > 1 && c->hidden % c->n_heads) c->n_heads--;
    if (m->info.is_gated) resolve_gated(c);
    if (!c->n_positions && !is_recurrent)
        c->n_positions =
            m->info.has_sizes ? wfi_max_i64(m->n_positions, c->n_tokens) : m->n_positions;
    if (c->tied && is_recurrent && c->embedding != c->hidden)
        return wfi_fail(
            ctx, WF_INVALID_ARG,
            "%s: tied weights need an embedding as wide as the hidden state, %lld, not %lld", name,
            (long long)c->hidden, (long long)c->embedding);
    if (c->n_heads && c->hidden % c->n_heads)
        return wfi_fail(ctx, WF_INVALID_ARG,
                        "%s: a width of %lld does not divide into %lld heads of attention", name,
                        (long long)c->hidden, (long long)c->n_heads);
    if (m->info.is_gated && (c->n_heads % c->n_kv_heads || c->hidden / c->n_heads % 2))
        return wfi_fail(ctx, WF_INVALID_ARG,
                        "%s: %lld heads of %lld elements with %lld heads of keys: these divide the "
                        "heads, which have an even number of elements",
                        name, (long long)c->n_heads, (long long)(c->hidden / c->n_heads),
                        (long long)c->n_kv_heads);
    if (c->hidden && wfi_max_i64(c->n_classes, c->n_positions) > MOST_ELEMENTS / c->hidden)
        return wfi_fail(ctx, WF_INVALID_ARG,
                        "%s: a width of %lld is far too large with a vocabulary of %lld and %lld "
                        "positions",
                        name, (long long)c->hidden, (long long)c->n_classes,
                        (long long)c->n_positions);
    return WF_OK;
}

wf_status wf_model_find(wf_context *ctx, const char *name, const wf_model_config *config,
                        wf_model **model_out) {
    const wf_model_config init = WF_MODEL_CONFIG_INIT;
    wf_model_config c = config ? *config : init;
    WF_TRY(wfi_check_struct(ctx, &c, sizeof c, "wf_model_config"));
    const registered_model *m = (const registered_model *)wf_model_registry_find(name);
    if (!m)
        return wfi_fail_unknown(ctx, WF_INVALID_ARG, name_of, name, "there is no model '%.64s'",
                                name);
    WF_TRY(check_fields(ctx, &m->info, &c));
    if (c.n_classes == 0) c.n_classes = m->n_classes;
    WF_TRY(resolve_sizes(ctx, m, &c));
    if (c.n_tokens == 0) c.n_tokens = m->info.is_recurrent ? m->info.n_tokens : c.n_positions;
    return wf_model_create(ctx, m->info.name, m->function, &c, sizeof c, model_out);
}

wf_status wf_model_create(wf_context *ctx, const char *name, wf_model_function function,
                          const void *config, size_t config_bytes, wf_model **model_out) {
    wf_model *model = wfi_alloc(ctx, 1, sizeof *model, "a model");
    if (!model) return WF_NO_MEMORY;
    model->ctx = ctx;
    model->function = function;
    model->name = wfi_strdup(ctx, name);
    if (config && config_bytes) {
        model->config = wfi_alloc(ctx, config_bytes, 1, "a model's configuration");
        model->config_bytes = config_bytes;
        if (model->config) memcpy(model->config, config, config_bytes);
    }
    if (!model->name || (model->config_bytes && !model->config)) {
        wf_model_destroy(model);
        return WF_NO_MEMORY;
    }
    *model_out = model;
    return WF_OK;
}

wf_status wfi_model_copy(const wf_model *model, wf_model **model_out) {
    return wf_model_create(model->ctx, model->name, model->function, model->config,
                           model->config_bytes, model_out);
}

int64_t wfi_model_n_layers(const wf_model *model) {
    bool has_layers = model->function == wfi_model_gpt2 || model->function == wfi_model_llama;
    return has_layers ? ((const wf_model_config *)model->config)->n_layers : 0;
}

wf_status wfi_model_with_layers(const wf_model *model, int64_t n_layers, wf_model **model_out) {
    wf_model_config config = *(const wf_model_config *)model->config;
    config.n_layers = n_layers;
    return wf_model_create(model->ctx, model->name, model->function, &config, sizeof config,
                           model_out);
}

const wf_model_config *wf_model_config_of(const wf_model *model) {
    for (size_t i = 0; i < WFI_COUNT(registry); i++)
        if (model->function == registry[i].function) return model->config;
    return NULL;
}

const char *wf_model_name(const wf_model *model) {
    return model->name;
}

void wf_model_destroy(wf_model *model) {
    if (!model) return;
    wfi_free(model->ctx, model->name);
    wfi_free(model->ctx, model->config);
    wfi_free(model->ctx, model);
}
