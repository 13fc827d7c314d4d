/* Building a graph: declarations, scopes, nodes, sticky errors. */
#include "graph/graph.h"
#include "base/hash.h"
#include "graph/op.h"

#include <stdio.h>
#include <string.h>

/* More nodes than any hand-written model has. The limit bounds the memory that a hostile model
 * configuration can allocate. */
#define MAX_NODES 200000

void wfi_graph_fail(wf_graph *g, wf_status status, const char *format, ...) {
    if (g->status != WF_OK) return; /* only the first failure is reported */
    char line[800];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    g->status = wfi_fail(g->ctx, status, "%s", line);
}

void wf_graph_fail(wf_graph *g, const char *sentence) {
    wfi_graph_fail(g, WF_INVALID_ARG, "%s", sentence);
}

const char *wfi_shape_text(const wf_shape *shape, char *text) {
    int n = snprintf(text, WFI_SHAPE_TEXT, "[");
    for (int d = 0; d < shape->n_dims; d++)
        n += snprintf(text + n, (size_t)(WFI_SHAPE_TEXT - n), "%s%lld", d ? ", " : "",
                      (long long)shape->dim[d]);
    snprintf(text + n, (size_t)(WFI_SHAPE_TEXT - n), "]");
    return text;
}

bool wfi_shape_equal(const wf_shape *a, const wf_shape *b) {
    if (a->n_dims != b->n_dims) return false;
    for (int d = 0; d < a->n_dims; d++)
        if (a->dim[d] != b->dim[d]) return false;
    return true;
}

static bool shape_is_sane(const wf_shape *shape) {
    if (shape->n_dims < 0 || shape->n_dims > WF_MAX_DIMS) return false;
    int64_t n = 1;
    for (int d = 0; d < shape->n_dims; d++) {
        if (shape->dim[d] < 0) return false;
        if (__builtin_mul_overflow(n, shape->dim[d], &n) || n > INT64_C(1) << 40) return false;
    }
    return true;
}

/* ---- values, units ---- */

static int32_t add_value(wf_graph *g, wfi_value value) {
    if (g->status != WF_OK) return -1;
    if (!shape_is_sane(&value.shape)) {
        wfi_graph_fail(g, WF_SHAPE, "%s has a shape that is negative or far too large",
                       value.name ? value.name : "an op's output");
        return -1;
    }
    g->status = WFI_GROW(g->ctx, g->values, g->n_values, g->value_capacity, "a graph's values");
    if (g->status != WF_OK) return -1;
    g->values[g->n_values] = value;
    return g->n_values++;
}

static int32_t current_unit(wf_graph *g) {
    return g->n_units - 1;
}

void wfi_graph_add_unit(wf_graph *g, const char *name) {
    if (g->status != WF_OK) return;
    g->status = WFI_GROW(g->ctx, g->units, g->n_units, g->unit_capacity, "a graph's units");
    if (g->status != WF_OK) return;
    char *copy = wfi_pool_format(&g->pool, "%s", name);
    if (!copy) {
        g->status = WF_NO_MEMORY;
        return;
    }
    g->units[g->n_units++] = (wfi_unit){.name = copy};
}

/* Whether the current unit has no op and declares only inputs: a cut before the first op names the
 * first unit. The unit's nodes and values are the last ones. */
static bool is_empty(const wf_graph *g, int32_t unit) {
    bool has_node = g->n_nodes && g->nodes[g->n_nodes - 1].unit == unit;
    int32_t v = g->n_values - 1;
    while (v >= 0 && g->values[v].unit == unit && g->values[v].kind == WFI_VALUE_INPUT) v--;
    bool has_value = v >= 0 && g->values[v].unit == unit;
    return !g->units[unit].is_passed && !has_node && !has_value;
}

wf_tensor wf_cut(wf_tensor x, const char *name) {
    wf_graph *g = x.graph;
    if (g->status != WF_OK) return x;
    int32_t u = current_unit(g);
    if (is_empty(g, u)) {
        char *copy = wfi_pool_format(&g->pool, "%s", name);
        if (!copy)
            g->status = WF_NO_MEMORY;
        else
            g->units[u].name = copy;
    } else {
        wfi_graph_add_unit(g, name);
    }
    return x;
}

wf_tensor wf_next_stage(wf_tensor x, const char *name) {
    (void)wf_cut(x, name);
    if (x.graph->status == WF_OK) x.graph->units[current_unit(x.graph)].begins_stage = true;
    return x;
}

void wf_scope(wf_graph *g, const char *format, ...) {
    if (g->status != WF_OK) return;
    char name[256];
    va_list args;
    va_start(args, format);
    vsnprintf(name, sizeof name, format, args);
    va_end(args);
    if (g->n_scopes == WFI_MAX_SCOPES) {
        wfi_graph_fail(g, WF_INVALID_ARG, "scope '%s': more than %d are open", name,
                       WFI_MAX_SCOPES);
        return;
    }
    g->outer_scope[g->n_scopes++] = strlen(g->scope);
    char *scope = wfi_pool_format(&g->pool, "%s%s.", g->scope, name);
    if (!scope)
        g->status = WF_NO_MEMORY;
    else
        g->scope = scope;
}

void wf_scope_end(wf_graph *g) {
    if (g->status != WF_OK || !g->n_scopes) return;
    int n = (int)g->outer_scope[--g->n_scopes]; /* a name may hold dots of its own */
    char *scope = wfi_pool_format(&g->pool, "%.*s", n, g->scope);
    if (!scope)
        g->status = WF_NO_MEMORY;
    else
        g->scope = scope;
}

/* The table's entry of the declared value of that name, or a free entry for it. */
static int32_t *find_entry(const wf_graph *g, const char *name) {
    size_t at = wfi_hash_add(WFI_HASH_INIT, name, strlen(name)) % g->n_table;
    while (g->declared[at] && strcmp(g->values[g->declared[at] - 1].name, name))
        at = (at + 1) % g->n_table;
    return &g->declared[at];
}

static int32_t find_declared(const wf_graph *g, const char *name) {
    return g->n_table ? *find_entry(g, name) - 1 : -1;
}

/* A value that is not declared yet. */
static int32_t add_declared(wf_graph *g, wfi_value value) {
    int32_t v = add_value(g, value);
    if (v < 0) return v;
    if (2 * ++g->n_declared > g->n_table) {
        int32_t *all = g->declared;
        size_t n = g->n_table;
        g->n_table = n ? 4 * n : 64;
        g->declared = wfi_alloc(g->ctx, g->n_table, sizeof *g->declared, "a graph's values");
        for (size_t k = 0; k < n && g->declared; k++)
            if (all[k]) *find_entry(g, g->values[all[k] - 1].name) = all[k];
        wfi_free(g->ctx, all);
        if (!g->declared) {
            g->n_table = 0;
            g->status = WF_NO_MEMORY;
            return -1;
        }
    }
    *find_entry(g, value.name) = v + 1;
    return v;
}

/* Shape of all samples of a microbatch. */
static wf_shape shape_of_batch(const wf_graph *g, const wf_shape *sample) {
    wf_shape shape = {sample->n_dims + 1, {g->batch}};
    for (int d = 0; d < sample->n_dims; d++) shape.dim[d + 1] = sample->dim[d];
    return shape;
}

wf_tensor wf_input(wf_graph *g, const char *name, wf_dtype dtype, wf_shape sample) {
    if (g->status != WF_OK) return wfi_inert(g);
    if (sample.n_dims >= WF_MAX_DIMS || (dtype != WF_F32 && dtype != WF_I32)) {
        wfi_graph_fail(g, WF_SHAPE, "input '%s': samples have at most %d dims, F32 or I32", name,
                       WF_MAX_DIMS - 1);
        return wfi_inert(g);
    }
    if (find_declared(g, name) >= 0) {
        wfi_graph_fail(g, WF_INVALID_ARG, "two inputs or parameters are called '%s'", name);
        return wfi_inert(g);
    }
    char *copy = wfi_pool_format(&g->pool, "%s", name);
    if (!copy) g->status = WF_NO_MEMORY;
    if (!copy) return wfi_inert(g);
    return wfi_tensor(g, add_declared(g, (wfi_value){.kind = WFI_VALUE_INPUT,
                                                     .dtype = dtype,
                                                     .shape = shape_of_batch(g, &sample),
                                                     .node = -1,
                                                     .alias = -1,
                                                     .unit = current_unit(g),
                                                     .name = copy}));
}

/* Appends a buffer to its unit's flat storage. */
static void lay_out(wf_graph *g, int32_t v) {
    wfi_unit *unit = &g->units[g->values[v].unit];
    size_t end = unit->buffer_bytes + wfi_value_bytes(g, v);
    g->values[v].offset = unit->buffer_bytes;
    unit->buffer_bytes = wfi_round_up(end, WFI_ALIGN_BYTES);
    if (g->values[v].is_cache) unit->cache_bytes = end;
}

void wfi_graph_lay_out_buffers(wf_graph *g) {
    for (int32_t u = 0; u < g->n_units; u++) g->units[u].buffer_bytes = g->units[u].cache_bytes = 0;
    for (int32_t v = 0; v < g->n_values; v++)
        if (g->values[v].kind == WFI_VALUE_BUFFER) lay_out(g, v);
}

static wf_tensor declare(wf_graph *g, wfi_value_kind kind, const char *name, wf_dtype dtype,
                         wf_shape shape, wf_init init) {
    if (g->status != WF_OK) return wfi_inert(g);
    char *full = wfi_pool_format(&g->pool, "%s%s", g->scope, name);
    if (!full) {
        g->status = WF_NO_MEMORY;
        return wfi_inert(g);
    }
    int32_t v = find_declared(g, full);
    if (v >= 0) {
        char was[WFI_SHAPE_TEXT], is[WFI_SHAPE_TEXT];
        if (g->values[v].kind == kind && wfi_shape_equal(&g->values[v].shape, &shape))
            return wfi_tensor(g, v);
        wfi_graph_fail(g, WF_SHAPE, "'%s' is declared twice, as %s and as %s", full,
                       wfi_shape_text(&g->values[v].shape, was), wfi_shape_text(&shape, is));
        return wfi_inert(g);
    }
    v = add_declared(g, (wfi_value){.kind = kind,
                                    .dtype = dtype,
                                    .shape = shape,
                                    .node = -1,
                                    .alias = -1,
                                    .unit = current_unit(g),
                                    .name = full,
                                    .init = init});
    if (v < 0) return wfi_inert(g);
    if (kind == WFI_VALUE_BUFFER) lay_out(g, v); /* pass/freeze.c places parameters */
    return wfi_tensor(g, v);
}

wf_tensor wf_parameter(wf_graph *g, const char *name, wf_shape shape, wf_init init) {
    return declare(g, WFI_VALUE_PARAM, name, WF_F32, shape, init);
}

int32_t wfi_graph_cut_parameter(wf_graph *g, wfi_cut cut, int32_t slice) {
    wfi_cut *own = wfi_pool_alloc(&g->pool, 1, sizeof *own);
    const wfi_value *whole = wfi_value_at(g, cut.whole);
    int64_t n = whole->shape.dim[cut.dim] / cut.n_blocks;
    const char *name =
        wfi_pool_format(&g->pool, "%s[%d/%d]", whole->name, (int)slice, (int)g->n_slices);
    if (!own || !name) g->status = WF_NO_MEMORY;
    if (g->status != WF_OK) return -1;
    wfi_value part = *whole;
    *own = cut;
    part.kind = WFI_VALUE_PARAM;
    part.name = name;
    part.shape.dim[cut.dim] = cut.n_blocks * (wfi_part_begin(n, slice + 1, g->n_slices) -
                                              wfi_part_begin(n, slice, g->n_slices));
    part.unit = current_unit(g);
    part.cut = own;
    return add_value(g, part);
}

wf_tensor wfi_buffer(wf_graph *g, const char *name, wf_dtype dtype, wf_shape shape, float start) {
    return declare(g, WFI_VALUE_BUFFER, name, dtype, shape, (wf_init){WF_INIT_CONSTANT, start});
}

wf_tensor wfi_cache(wf_graph *g, const char *name, wf_shape shape) {
    if (g->training)
        wfi_graph_fail(g, WF_UNSUPPORTED, "cache '%s%s': a model with a cache cannot be trained",
                       g->scope, name);
    wf_tensor cache = declare(g, WFI_VALUE_BUFFER, name, WF_F32, shape, (wf_init){0});
    if (cache.id < 0) return cache;
    wfi_value *value = &g->values[cache.id];
    value->is_cache = true;
    g->units[value->unit].cache_bytes = value->offset + wfi_value_bytes(g, cache.id);
    return cache;
}

wf_tensor wfi_hidden_state(wf_graph *g, const char *name, wf_shape sample) {
    return declare(g, WFI_VALUE_HIDDEN, name, WF_F32, shape_of_batch(g, &sample), (wf_init){0});
}

/* ---- nodes ---- */

wf_status wfi_node_output(wf_graph *g, wfi_node *node, wf_dtype dtype, const wf_shape *shape) {
    if (node->n_out == WFI_MAX_OUTPUTS)
        return wfi_fail(g->ctx, WF_BUG, "op %s declares too many outputs", node->op->name);
    int32_t v = add_value(g, (wfi_value){.kind = WFI_VALUE_NODE,
                                         .dtype = dtype,
                                         .shape = *shape,
                                         .node = g->n_nodes,
                                         .alias = -1,
                                         .unit = node->unit});
    if (v < 0) return g->status;
    node->out[node->n_out++] = v;
    return WF_OK;
}

wf_status wfi_node_opaque_output(wf_graph *g, wfi_node *node, int64_t n_bytes) {
    wf_shape shape = {1, {n_bytes}};
    WF_TRY(wfi_node_output(g, node, WF_U8, &shape));
    g->values[node->out[node->n_out - 1]].opaque = true;
    return WF_OK;
}

/* By op->makes. */
static wf_status declare_outputs(wf_graph *g, wfi_node *node) {
    for (int k = 0; k < WFI_MAX_OUTPUTS && node->op->makes[k]; k++) {
        int like = node->op->makes[k];
        wf_shape shape =
            like == WFI_OWN_SHAPE ? node->shape : g->values[node->in[like - WFI_X]].shape;
        WF_TRY(wfi_node_output(g, node, WF_F32, &shape));
    }
    return WF_OK;
}

const wfi_node *wfi_graph_add(wf_graph *g, const wfi_op *op, const wfi_attr *attr,
                              const wf_shape *shape, int n_in, const wf_tensor *in) {
    if (g->status != WF_OK) return NULL;
    if (g->n_nodes == MAX_NODES) {
        wfi_graph_fail(g, WF_INVALID_ARG, "the model has more than %d ops", MAX_NODES);
        return NULL;
    }
    wfi_node node = {.op = op, .n_in = n_in, .unit = current_unit(g), .phase = WFI_F};
    if (attr) node.attr = *attr;
    if (shape) node.shape = *shape;
    for (int i = 0; i < WFI_MAX_INPUTS; i++) node.in[i] = i < n_in ? in[i].id : -1;
    for (int i = 0; i < WFI_MAX_OUTPUTS; i++) node.out[i] = -1;
    for (int i = 0; i < n_in; i++)
        if (in[i].graph && in[i].graph != g) {
            wfi_graph_fail(g, WF_INVALID_ARG, "%s: its inputs come from two graphs", op->name);
            return NULL;
        }
    g->status = WFI_GROW(g->ctx, g->nodes, g->n_nodes, g->node_capacity, "a graph's nodes");
    if (g->status != WF_OK) return NULL;
    wf_status status = op->check ? op->check(g, &node) : declare_outputs(g, &node);
    if (status == WF_OK && g->status == WF_OK && (op->flags & WFI_OP_ALIAS))
        g->values[node.out[0]].alias = node.in[0];
    if (g->status == WF_OK) g->status = status;
    if (g->status != WF_OK) return NULL;
    g->nodes[g->n_nodes] = node;
    return &g->nodes[g->n_nodes++];
}

wf_tensor wfi_graph_op(wf_graph *g, const wfi_op *op, const wfi_attr *attr, const wf_shape *shape,
                       int n_in, const wf_tensor *in) {
    const wfi_node *node = wfi_graph_add(g, op, attr, shape, n_in, in);
    return node ? wfi_tensor(g, node->out[0]) : wfi_inert(g);
}

void wfi_graph_add_stat(wf_graph *g, wfi_stat stat) {
    if (g->status != WF_OK) return;
    g->status = WFI_GROW(g->ctx, g->stats, g->n_stats, g->stat_capacity, "a graph's statistics");
    if (g->status == WF_OK) g->stats[g->n_stats++] = stat;
}

void wfi_graph_add_hidden(wf_graph *g, wfi_hidden hidden) {
    if (g->status != WF_OK) return;
    g->status = WFI_GROW(g->ctx, g->hidden, g->n_hidden, g->hidden_capacity, "hidden state");
    if (g->status == WF_OK) g->hidden[g->n_hidden++] = hidden;
}

wf_shape wf_tensor_shape(wf_tensor tensor) {
    return tensor.id < 0 ? WF_SCALAR : tensor.graph->values[tensor.id].shape;
}

int wf_graph_is_training(const wf_graph *g) {
    return g->training;
}

void wf_output(wf_tensor x, const char *name) {
    wf_graph *g = x.graph;
    if (g->status != WF_OK || x.id < 0) return;
    for (int32_t i = 0; i < g->n_outputs; i++)
        if (!strcmp(g->values[g->outputs[i]].name, name)) {
            wfi_graph_fail(g, WF_INVALID_ARG, "two outputs are called '%s'", name);
            return;
        }
    if (g->values[x.id].kind != WFI_VALUE_NODE || g->values[x.id].name) {
        wfi_graph_fail(g, WF_INVALID_ARG, "output '%s' is an input, or has another name already",
                       name);
        return;
    }
    g->status = WFI_GROW(g->ctx, g->outputs, g->n_outputs, g->output_capacity, "outputs");
    if (g->status != WF_OK) return;
    char *copy = wfi_pool_format(&g->pool, "%s", name);
    if (!copy) {
        g->status = WF_NO_MEMORY;
        return;
    }
    g->values[x.id].name = copy;
    g->outputs[g->n_outputs++] = x.id;
}

void wfi_graph_find_producers(wf_graph *g) {
    for (int32_t v = 0; v < g->n_values; v++) g->values[v].node = -1;
    for (int32_t n = 0; n < g->n_nodes; n++)
        for (int i = 0; i < g->nodes[n].n_out && !g->nodes[n].dead; i++)
            if (g->nodes[n].out[i] >= 0) g->values[g->nodes[n].out[i]].node = n;
}

/* ---- sums of slices' weight gradients ---- */

/* Bytes of the gradients from the first on, each from a cache line on. */
static size_t count_bytes(const wf_graph *g, int32_t first, int32_t end) {
    size_t bytes = 0;
    for (int32_t i = first; i < end; i++)
        bytes += wfi_round_up(wfi_value_bytes(g, g->weight_gradients[i].param), WFI_ALIGN_BYTES);
    return bytes;
}

/* Returns the first use by the same slice of a joined unit; `bytes_out`: those of all its uses. */
static int32_t first_of_slice(const wf_graph *g, int32_t i, size_t *bytes_out) {
    const wfi_unit *unit = &g->units[g->weight_gradients[i].unit];
    int32_t n = (unit->end_gradient - unit->first_gradient) / g->n_slices;
    int32_t first = unit->first_gradient + g->weight_gradients[i].slice * n;
    *bytes_out = count_bytes(g, first, first + n);
    return first;
}

/* Slices lie in the order of their numbers' bits read backward. So each level of their tree
 * (base/tree.h) adds the second half of what is left to the first half. */
size_t wfi_sum_begin(const wf_graph *g, int32_t i) {
    const wfi_weight_gradient *w = &g->weight_gradients[i];
    size_t bytes, place = 0;
    if (!wfi_has_one_sum(g, w->unit)) return 0;
    for (int32_t bit = 1; bit < g->n_slices; bit *= 2)
        place = 2 * place + (size_t)(w->slice / bit % 2);
    int32_t first = first_of_slice(g, i, &bytes);
    return place * bytes + count_bytes(g, first, i);
}

size_t wfi_sum_bytes(const wf_graph *g, int32_t i) {
    const wfi_weight_gradient *w = &g->weight_gradients[i];
    size_t bytes;
    if (!wfi_has_one_sum(g, w->unit)) return wfi_value_bytes(g, w->param);
    (void)first_of_slice(g, i, &bytes);
    return bytes * (size_t)g->n_slices;
}

void wf_graph_destroy(wf_graph *g) {
    if (!g) return;
    wf_context *ctx = g->ctx;
    wfi_free(ctx, g->values);
    wfi_free(ctx, g->declared);
    wfi_free(ctx, g->nodes);
    wfi_free(ctx, g->units);
    wfi_free(ctx, g->stats);
    wfi_free(ctx, g->hidden);
    wfi_free(ctx, g->weight_gradients);
    wfi_free(ctx, g->outputs);
    wfi_pool_release(&g->pool);
    wfi_free(ctx, g);
}
