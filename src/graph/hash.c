/* The hash of a graph, for processes that must have the same graph. */
#include "base/hash.h"
#include "graph/op.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Which member of wfi_attr an op has, by the beginning of its name. */
enum member {
    CONV,
    POOL,
    NORM,
    LINEAR,
    MATMUL,
    GELU,
    SCALE,
    TRANSPOSE,
    SLICE,
    REDUCE,
    DROPOUT,
    EMBEDDING,
    CLASSES,
    LOSS,
    ATTENTION,
    ROTARY,
    LSTM_CELL,
    REORDER,
    NONE
};
static const struct {
    const char *begin;
    enum member member;
} members[] = {{"conv2d", CONV},
               {"conv_transpose2d", CONV},
               {"max_pool", POOL},
               {"avg_pool", POOL},
               {"batch_norm", NORM},
               {"layer_norm", NORM},
               {"rms_norm", NORM},
               {"linear", LINEAR},
               {"matmul", MATMUL},
               {"gelu", GELU},
               {"scale", SCALE},
               {"leaky_relu", SCALE},
               {"transpose", TRANSPOSE},
               {"concat", SLICE},
               {"slice", SLICE},
               {"split_rows", SLICE},
               {"reduce", REDUCE},
               {"dropout", DROPOUT},
               {"embedding", EMBEDDING},
               {"class_sums", CLASSES},
               {"cross_entropy_of_sums", CLASSES},
               {"smoothed_cross_entropy", LOSS},
               {"self_attention", ATTENTION},
               {"cached_attention", ATTENTION},
               {"rotary", ROTARY},
               {"lstm_cell", LSTM_CELL},
               {"reorder", REORDER}};

static enum member member_of(const wfi_op *op) {
    for (size_t k = 0; k < WFI_COUNT(members); k++)
        if (!strncmp(op->name, members[k].begin, strlen(members[k].begin)))
            return members[k].member;
    return NONE;
}

const char *wfi_attr_text(const wfi_op *op, const wfi_attr *a, char *text) {
    char *to = text;
    size_t n = WFI_ATTR_TEXT;
    *text = 0;
    switch (member_of(op)) {
    case CONV:
        to += snprintf(to, n, "%" PRId64 " %" PRId64 " %" PRId64 " %d", a->conv.stride, a->conv.pad,
                       a->conv.groups, a->conv.bias);
        if (a->conv.dilation != 1) snprintf(to, 24, " %" PRId64, a->conv.dilation);
        break;
    case POOL:
        snprintf(to, n, "%" PRId64 " %" PRId64 " %" PRId64, a->pool.kernel, a->pool.stride,
                 a->pool.pad);
        break;
    case NORM:
        snprintf(to, n, "%a %d", a->norm.eps, a->norm.relu);
        break;
    case LINEAR:
        snprintf(to, n, "%d %d", a->linear.in_out, a->linear.bias);
        break;
    case MATMUL:
        snprintf(to, n, "%d %d %d", a->matmul.transpose_a, a->matmul.transpose_b,
                 a->matmul.shares_b);
        break;
    case GELU:
        snprintf(to, n, "%d", a->gelu.tanh);
        break;
    case SCALE:
        snprintf(to, n, "%a", a->scale.factor);
        break;
    case TRANSPOSE:
        snprintf(to, n, "%d %d", a->transpose.dim_a, a->transpose.dim_b);
        break;
    case SLICE:
        snprintf(to, n, "%d %" PRId64, a->slice.dim, a->slice.start);
        break;
    case REDUCE:
        snprintf(to, n, "%d %a", a->reduce.dim, a->reduce.factor);
        break;
    case DROPOUT:
        snprintf(to, n, "%a %" PRIu64 " %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64, a->dropout.p,
                 a->dropout.name, a->dropout.run, a->dropout.first, a->dropout.stride,
                 a->dropout.sample_size);
        break;
    case EMBEDDING:
        snprintf(to, n, "%" PRId64 " %" PRId64, a->embedding.n_classes, a->embedding.first);
        break;
    case CLASSES:
        snprintf(to, n, "%" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %a", a->classes.n_classes,
                 a->classes.n_blocks, a->classes.begin, a->classes.end, a->classes.smoothing);
        break;
    case LOSS:
        snprintf(to, n, "%a", a->loss.smoothing);
        break;
    case ATTENTION:
        to += snprintf(to, n, "%" PRId64 " %d", a->attention.n_heads, a->attention.causal);
        if (a->attention.n_keys != a->attention.n_heads)
            snprintf(to, 24, " %" PRId64, a->attention.n_keys);
        break;
    case ROTARY:
        to += snprintf(to, n, "%" PRId64 " %" PRId64 " %a", a->rotary.n_heads, a->rotary.n_keys,
                       a->rotary.theta);
        if (a->rotary.factor != 0)
            snprintf(to, n - (size_t)(to - text), " %a %a %a %" PRId64, a->rotary.factor,
                     a->rotary.low, a->rotary.high, a->rotary.n_positions);
        break;
    case LSTM_CELL:
        snprintf(to, n, "%" PRId64 " %" PRId64 " %" PRId64, a->lstm_cell.step, a->lstm_cell.first,
                 a->lstm_cell.h);
        break;
    case REORDER:
        snprintf(to, n, "%d", (int)a->reorder.to);
        break;
    case NONE:
        break;
    }
    return text;
}

/* ---- parts ---- */

static void add_number(uint64_t *hash, int64_t number) {
    *hash = wfi_hash_add(*hash, &number, sizeof number);
}

static void add_text(uint64_t *hash, const char *text) {
    *hash = wfi_hash_add(*hash, text ? text : "", text ? strlen(text) + 1 : 1);
}

static void add_shape(uint64_t *hash, const wf_shape *shape) {
    add_number(hash, shape->n_dims);
    for (int d = 0; d < shape->n_dims; d++) add_number(hash, shape->dim[d]);
}

static void add_value(uint64_t *hash, const wfi_value *v) {
    const int64_t numbers[] = {v->kind,  v->dtype, v->layout,    v->opaque,          v->node,
                               v->alias, v->unit,  v->init.kind, (int64_t)v->offset, v->is_frozen};
    for (size_t k = 0; k < WFI_COUNT(numbers); k++) add_number(hash, numbers[k]);
    *hash = wfi_hash_add(*hash, &v->init.value, sizeof v->init.value);
    add_shape(hash, &v->shape);
    add_text(hash, v->name);
    if (!v->cut) return;
    add_number(hash, v->cut->whole);
    add_number(hash, v->cut->dim);
    add_number(hash, v->cut->n_blocks);
}

static void add_node(uint64_t *hash, const wfi_node *node) {
    char attr[WFI_ATTR_TEXT];
    add_text(hash, node->op->name);
    add_text(hash, wfi_attr_text(node->op, &node->attr, attr));
    add_number(hash, node->unit);
    add_number(hash, node->phase);
    add_number(hash, node->dead);
    for (int k = 0; k < node->n_in; k++) add_number(hash, node->in[k]);
    for (int k = 0; k < node->n_out; k++) add_number(hash, node->out[k]);
}

static void add_stat(uint64_t *hash, const wfi_stat *s) {
    const int64_t numbers[] = {s->mean,      s->var,  s->running_mean, s->running_var,
                               s->n_batches, s->unit, s->n_reduced};
    for (size_t k = 0; k < WFI_COUNT(numbers); k++) add_number(hash, numbers[k]);
    *hash = wfi_hash_add(*hash, &s->momentum, sizeof s->momentum);
}

uint64_t wfi_graph_hash(const wf_graph *g) {
    uint64_t hash = WFI_HASH_INIT;
    add_number(&hash, g->batch);
    for (int32_t k = 0; k < g->n_units; k++) add_text(&hash, g->units[k].name);
    for (int32_t k = 0; k < g->n_values; k++) add_value(&hash, &g->values[k]);
    for (int32_t k = 0; k < g->n_nodes; k++) add_node(&hash, &g->nodes[k]);
    for (int32_t k = 0; k < g->n_stats; k++) add_stat(&hash, &g->stats[k]);
    for (int32_t k = 0; k < g->n_hidden; k++) {
        add_number(&hash, g->hidden[k].before);
        add_number(&hash, g->hidden[k].after);
    }
    for (int32_t k = 0; k < g->n_outputs; k++) add_number(&hash, g->outputs[k]);
    add_number(&hash, g->loss);
    return hash;
}
