/* Runs a graph's nodes one by one with their plain C references, every value in a
 * block of its own size, so that a sanitizer sees what lies outside. For tests only. */
#pragma once

#include "base/random.h"
#include "graph/op.h"
#include "test.h"

typedef struct graph_walk {
    const wf_graph *g;
    void **data; /* [value]; aliases share */
    wfi_step_args step;
} graph_walk;

/* Uniform in [-1, 1). */
static inline float walk_uniform(uint64_t stream, int64_t i) {
    return 2 * wfi_random_uniform((wfi_random_key){17, stream}, 0, (uint64_t)i) - 1;
}

static inline void walk_create(graph_walk *w, const wf_graph *g) {
    *w = (graph_walk){.g = g, .step = {.seed = 3, .step = 7, .first_sample = 5, .loss_scale = 1}};
    w->data = calloc((size_t)g->n_values + 1, sizeof *w->data);
    assert_non_null(w->data);
    for (int32_t v = 0; v < g->n_values; v++) {
        if (g->values[v].alias >= 0) continue;
        size_t bytes = wfi_value_bytes(g, v);
        w->data[v] = malloc(bytes);
        assert_true(w->data[v] || !bytes);
        if (bytes) memset(w->data[v], 0xff, bytes); /* NaN: what nobody writes shows */
    }
    for (int32_t v = 0; v < g->n_values; v++) w->data[v] = w->data[wfi_value_root(g, v)];
}

static inline void walk_destroy(graph_walk *w) {
    for (int32_t v = 0; v < w->g->n_values; v++)
        if (w->g->values[v].alias < 0) free(w->data[v]);
    free(w->data);
}

static inline wfi_operand walk_operand(const graph_walk *w, int32_t v) {
    const wfi_value *value = wfi_value_at(w->g, v);
    return (wfi_operand){w->data[v], value->dtype, value->shape, value->layout};
}

static inline void walk_node(graph_walk *w, const wfi_node *node) {
    wfi_call call = {
        .attr = &node->attr, .n_in = node->n_in, .n_out = node->n_out, .step = &w->step};
    for (int i = 0; i < node->n_in; i++)
        if (node->in[i] >= 0) call.in[i] = walk_operand(w, node->in[i]);
    for (int i = 0; i < node->n_out; i++) call.out[i] = walk_operand(w, node->out[i]);
    size_t bytes = node->op->scratch_bytes ? node->op->scratch_bytes(w->g, node) : 0;
    call.scratch = malloc(bytes);
    if (bytes) memset(call.scratch, 0xff, bytes);
    node->op->reference(&call);
    free(call.scratch);
}

/* All nodes, or the forward ones alone. */
static inline void walk_run(graph_walk *w, bool only_forward) {
    for (int32_t n = 0; n < w->g->n_nodes; n++) {
        const wfi_node *node = &w->g->nodes[n];
        if (!node->dead && (node->phase == WFI_F || !only_forward)) walk_node(w, node);
    }
}

/* The value that is declared or returned under `name`. */
static inline int32_t walk_find(const wf_graph *g, const char *name) {
    for (int32_t v = 0; v < g->n_values; v++)
        if (g->values[v].name && !strcmp(g->values[v].name, name)) return v;
    fail_msg("no value is called '%s'", name);
    return -1;
}

static inline float *walk_float(const graph_walk *w, const char *name) {
    return w->data[walk_find(w->g, name)];
}

/* The gradient of the parameter `name`. */
static inline const float *walk_gradient(const graph_walk *w, const char *name) {
    int32_t v = walk_find(w->g, name);
    for (int32_t i = 0; i < w->g->n_weight_gradients; i++)
        if (w->g->weight_gradients[i].param == v) return w->data[w->g->weight_gradients[i].value];
    fail_msg("'%s' has no gradient", name);
    return NULL;
}
