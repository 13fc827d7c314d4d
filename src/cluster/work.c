/* From a model to the work of its blocks. */
#include "cluster/work.h"
#include "graph/op.h"
#include "nn/model.h"
#include "op/op_table.h"
#include "plan/costs.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* A graph of so many layers has one that is like all others. */
#define FEW_LAYERS 3
/* Bytes a parameter when a microbatch's gradient (2) is added to the sum (4, read and written). */
#define ACCUMULATE_BYTES 10

typedef struct builder {
    const wfi_work_request *q;
    wf_graph *g;
    wfi_model_work *w;
    int32_t *block_of; /* [n_units] */
    bool *is_saved;    /* [n_values] already counted */
    bool *is_own;      /* [n_units] */
    double *used[2];   /* [n_units] parameters that a unit reads forward, backward */
    double *own;       /* [n_units] those that it has */
} builder;

/* ---- blocks of units ---- */

/* The length of a unit's name without what slices add to it: "h.0.pair0.1" is of "h.0". */
static size_t base_bytes(const char *name) {
    static const char *const parts[] = {".pair", ".rows", ".sum", ".join"};
    size_t n = strlen(name);
    for (size_t k = 0; k < WFI_COUNT(parts); k++)
        for (const char *at = name; (at = strstr(at, parts[k])); at++)
            if (isdigit((unsigned char)at[strlen(parts[k])]) && (size_t)(at - name) < n)
                n = (size_t)(at - name);
    return n;
}

static bool is_same_block(const wfi_unit *a, const wfi_unit *b) {
    size_t n = base_bytes(a->name);
    return n == base_bytes(b->name) && !strncmp(a->name, b->name, n);
}

/* Returns whether rank 0 along tp computes the unit. */
static bool is_own(const builder *b, int32_t unit) {
    const wfi_unit *u = &b->g->units[unit];
    return !u->is_slice || u->slice < b->g->n_slices / b->q->tp ||
           (u->is_rows && !b->q->divides_rows);
}

static void number_blocks(builder *b) {
    int32_t n = 0;
    for (int32_t u = 0; u < b->g->n_units; u++) {
        if (u > 0 && !is_same_block(&b->g->units[u - 1], &b->g->units[u])) n++;
        b->block_of[u] = n;
    }
    b->w->n_kinds = n + 1;
}

static void name_blocks(const builder *b) {
    for (int32_t u = 0; u < b->g->n_units; u++) {
        const wfi_unit *unit = &b->g->units[u];
        wfi_model_block *block = &b->w->kinds[b->block_of[u]];
        block->begins_stage |= unit->begins_stage;
        if (!*block->name)
            snprintf(block->name, sizeof block->name, "%.*s", (int)base_bytes(unit->name),
                     unit->name);
    }
}

static wfi_model_block *block_at(const builder *b, int32_t unit) {
    return &b->w->kinds[b->block_of[unit]];
}

/* ---- time ---- */

static bool is_attention(const wfi_node *node) {
    return node->op == &wfi_op_self_attention || node->op == &wfi_op_self_attention_backward;
}

static double bytes_of(const wf_graph *g, const wfi_node *node) {
    double bytes = 0;
    for (int i = 0; i < node->n_in; i++)
        if (node->in[i] >= 0) bytes += (double)wfi_value_bytes(g, node->in[i]);
    for (int i = 0; i < node->n_out; i++)
        if (node->out[i] >= 0) bytes += (double)wfi_value_bytes(g, node->out[i]);
    return bytes;
}

/* Two products forward, four backward, over whole squares of tokens. A fused kernel leaves out the
 * future, and makes the scores again backward, at a little less of the peak. */
static double fused_us(const builder *b, bool is_forward, double flops) {
    const wf_cluster *c = b->q->cluster;
    double all = is_forward ? flops : 2.5 * flops / 0.85;
    return c->launch_us + 1e6 * all / (c->peak_flops[b->q->precision] * c->attention_efficiency);
}

/* Softmax and dropout read and write scores, and the mask is a byte. */
static double attention_us(const builder *b, bool is_forward, double squares, double t, double d) {
    const wf_cluster *c = b->q->cluster;
    double element = b->q->precision == WFI_F32 ? 4 : 2, passes = is_forward ? 4 : 5;
    if (c->fuses_attention || b->q->accounting == WF_ACCOUNTING_WEFT)
        return fused_us(b, is_forward, 2 * squares * t * t * d);
    double scores = wfi_product_us(c, b->q->precision, squares, t, t, d);
    double values = wfi_product_us(c, b->q->precision, squares, t, d, t);
    double drawn = is_forward && c->random_per_s > 0 ? 1e6 * squares * t * t / c->random_per_s : 0;
    return (is_forward ? 1 : 2) * (scores + values) + c->launch_us + drawn +
           wfi_bytes_us(c, (passes * element + 1) * squares * t * t);
}

/* Context-parallel ranks gather keys and values of all tokens; backward gathers them again and
 * scatters their gradients. */
static double contexts_us(const builder *b, bool is_forward, double n_elements) {
    const wf_model_config *m = wf_model_config_of(b->q->model);
    bool is_grouped = m && m->n_kv_heads;
    double share = is_grouped ? (double)m->n_kv_heads / (double)m->n_heads : 1;
    double bytes = 2 * share * n_elements * (b->q->precision == WFI_F32 ? 4 : 2);
    return (is_forward ? 1 : 2) *
           wfi_traffic_us(b->q->cluster, WFI_TRAFFIC_ALL_GATHER, bytes, b->q->n_contexts, b->q->tp);
}

static void add_attention(const builder *b, const wfi_node *node, wfi_phase_work *to) {
    bool is_forward = node->op == &wfi_op_self_attention;
    const wf_shape *y = &b->g->values[is_forward ? node->out[0] : node->in[0]].shape;
    double t = (double)y->dim[1], c = (double)y->dim[2];
    double n = (double)y->dim[0] * b->q->n_contexts; /* squares of t: of all others' tokens, too */
    double heads = (double)node->attr.attention.n_heads, products = is_forward ? 2 : 4;
    to->flops += products * 2 * n * t * t * c;
    to->us += attention_us(b, is_forward, n * heads, t, c / heads) +
              contexts_us(b, is_forward, n * t * c);
}

/* Rows and columns of the product that makes the first output; images are rows of channels. */
static void add_product(const builder *b, const wfi_node *node, double flops, wfi_phase_work *to) {
    const wf_shape *y = &b->g->values[node->out[0]].shape;
    double n_elements = (double)wf_shape_n_elem(y);
    double n = (double)(y->n_dims == 4 ? y->dim[1] : y->n_dims ? y->dim[y->n_dims - 1] : 1);
    double m = n_elements / n, k = flops / (2 * n_elements);
    to->flops += flops;
    double us = wfi_product_us(b->q->cluster, b->q->precision, 1, m, n, fmax(k, 1));
    bool is_weft = b->q->accounting == WF_ACCOUNTING_WEFT;
    to->us += is_weft ? fmax(us, wfi_bytes_us(b->q->cluster, bytes_of(b->g, node))) : us;
}

/* Nodes of sum_slices are a binary tree: each of tp - 1 has its share of an all-reduce. */
static void add_sum(const builder *b, const wfi_node *node, wfi_phase_work *to) {
    double n = (double)wf_shape_n_elem(&b->g->values[node->out[0]].shape), tp = b->q->tp;
    double wire = b->q->accounting == WF_ACCOUNTING_MEGATRON && b->q->precision != WFI_F32 ? 2 : 4;
    to->summed_us +=
        wfi_traffic_us(b->q->cluster, WFI_TRAFFIC_ALL_REDUCE, n * wire, tp, 1) / (tp - 1);
}

static void add_time(const builder *b, const wfi_node *node) {
    wfi_model_block *block = block_at(b, node->unit);
    wfi_phase_work *to = &block->phase[node->phase];
    double flops = node->op->flops ? node->op->flops(b->g, node) : 0;
    if (wfi_node_is_alias(b->g, node)) return;
    if (is_attention(node))
        add_attention(b, node, to);
    else if (flops > 0)
        add_product(b, node, flops, to);
    else if (!wfi_work_has_papers(b->q))
        to->us += wfi_bytes_us(b->q->cluster, bytes_of(b->g, node));
    if (node->op == &wfi_op_self_attention && node->phase == WFI_F)
        add_attention(b, node, &block->attention);
}

/* ---- memory ---- */

static bool is_made(const wf_graph *g, int32_t v, wfi_phase phase) {
    int32_t node = g->values[v].node;
    return g->values[v].kind == WFI_VALUE_NODE && node >= 0 && g->nodes[node].phase == phase;
}

/* Parameters that the block uses, its own or another's (tied weights), each once. */
static void add_used(builder *b, const wfi_node *node) {
    for (int i = 0; i < node->n_in && node->phase == WFI_F; i++) {
        if (node->in[i] < 0) continue;
        int32_t v = wfi_value_root(b->g, node->in[i]);
        const wfi_value *value = &b->g->values[v];
        if (value->kind != WFI_VALUE_PARAM || b->is_saved[v]) continue;
        if (b->block_of[value->unit] == b->block_of[node->unit]) continue;
        b->is_saved[v] = true;
        b->used[0][node->unit] += (double)wf_shape_n_elem(&value->shape);
        block_at(b, node->unit)->n_used += (double)wf_shape_n_elem(&value->shape);
    }
}

static void add_parameters(builder *b) {
    for (int32_t v = 0; v < b->g->n_values; v++) {
        const wfi_value *value = &b->g->values[v];
        double n = (double)wf_shape_n_elem(&value->shape);
        if (value->kind == WFI_VALUE_CUT || (value->kind == WFI_VALUE_PARAM && !value->cut))
            b->w->n_parameters += n;
        if (value->kind != WFI_VALUE_PARAM || !is_own(b, value->unit)) continue;
        block_at(b, value->unit)->n_parameters += n;
        block_at(b, value->unit)->n_used += n;
        b->used[0][value->unit] += n;
        b->own[value->unit] += n;
    }
}

/* Of its parameters, those that the unit reads backward. */
static void add_read_again(const builder *b, const wfi_node *node) {
    for (int i = 0; i < node->n_in && node->phase != WFI_F; i++) {
        int32_t v = node->in[i] < 0 ? -1 : wfi_value_root(b->g, node->in[i]);
        if (v >= 0 && b->g->values[v].kind == WFI_VALUE_PARAM)
            b->used[1][node->unit] = b->used[0][node->unit];
    }
}

/* Kernels read copies of weights in 16 bits, and those of convolutions and LSTMs in a format of
 * their own: one for forward, one for backward. */
static void add_packed(const builder *b, const wfi_node *node) {
    bool has_format = node->op->flags & WFI_OP_IMAGE || node->op == &wfi_op_lstm ||
                      node->op == &wfi_op_lstm_backward;
    if (!node->op->flops || (b->q->precision == WFI_F32 && !has_format)) return;
    for (int i = 0; i < node->n_in; i++) {
        int32_t v = node->in[i] < 0 ? -1 : wfi_value_root(b->g, node->in[i]);
        if (v < 0 || b->g->values[v].kind != WFI_VALUE_PARAM) continue;
        if (b->g->values[v].shape.n_dims < 2) continue;
        double bytes =
            (b->q->precision == WFI_F32 ? 4 : 2) * (double)wf_shape_n_elem(&b->g->values[v].shape);
        wfi_pass_bytes *pass = block_at(b, node->unit)->pass;
        if (node->phase == WFI_F) pass[0].packed += bytes;
        if (node->phase == WFI_B) pass[1].packed += bytes;
    }
}

/* Parameters of each unit and of those that follow it, forward or backward, and have any: at most,
 * of a block's units, in the array at the offset `member`; or of all units. */
static void add_windows(const builder *b, const double *n_of, int way, size_t member, double *all) {
    double next[WFI_MOST_AHEAD] = {0};
    for (int32_t k = 0; k < b->g->n_units; k++) {
        int32_t u = way > 0 ? b->g->n_units - 1 - k : k;
        double *most = all ? all : (double *)((char *)block_at(b, u) + member), n = n_of[u];
        for (int i = 0; i <= WFI_MOST_AHEAD; i++) {
            most[i] = fmax(most[i], n);
            if (i < WFI_MOST_AHEAD) n += next[i];
        }
        if (n_of[u] == 0) continue;
        memmove(next + 1, next, sizeof next - sizeof *next);
        next[0] = n_of[u];
    }
}

static void find_windows(const builder *b) {
    for (int32_t u = 0; u < b->g->n_units; u++) {
        wfi_model_block *block = block_at(b, u);
        block->n_units++;
        block->unit_own = fmax(block->unit_own, b->own[u]);
        block->unit_tied = fmax(block->unit_tied, b->used[0][u] - b->own[u]);
        b->w->has_rows |= b->g->units[u].is_rows;
    }
    add_windows(b, b->used[0], 1, offsetof(wfi_model_block, pass[0].gathered), NULL);
    add_windows(b, b->used[1], -1, offsetof(wfi_model_block, pass[1].gathered), NULL);
    add_windows(b, b->own, -1, offsetof(wfi_model_block, updated), NULL);
    add_windows(b, b->own, 1, 0, b->w->updated);
}

/* Values that the block reads of those before it, each once. With rows, a value is in parts. */
static void add_input(builder *b, const wfi_node *node) {
    for (int i = 0; i < node->n_in && node->phase == WFI_F; i++) {
        int32_t v = node->in[i] < 0 ? -1 : wfi_value_root(b->g, node->in[i]);
        if (v < 0 || !is_made(b->g, v, WFI_F) || b->is_saved[v]) continue;
        int32_t from = b->block_of[b->g->nodes[b->g->values[v].node].unit];
        if (from == b->block_of[node->unit]) continue;
        b->is_saved[v] = true;
        block_at(b, node->unit)->input_elements += (double)wf_shape_n_elem(&b->g->values[v].shape);
    }
}

static wf_status add_lives(const builder *b) {
    double *bytes = wfi_alloc(b->g->ctx, (size_t)b->g->n_units, sizeof *bytes, "work");
    const wfi_lives_request q = {b->g, b->w->kinds, b->block_of, b->is_own, bytes};
    wf_status status = bytes ? wfi_work_find_lives(&q) : WF_NO_MEMORY;
    wfi_free(b->g->ctx, bytes);
    return status;
}

/* A program balances its stages by costs of its own. */
static wf_status add_planned(const builder *b) {
    wf_costs *costs;
    WF_TRY(wfi_costs_compute(b->g, &costs));
    for (int32_t u = 0; u < b->g->n_units; u++)
        if (b->is_own[u])
            block_at(b, u)->planned_us +=
                costs->units[u].forward_us + costs->units[u].backward_weight_us;
    wf_costs_destroy(costs);
    return WF_OK;
}

static wf_status add_all(builder *b) {
    for (int32_t u = 0; u < b->g->n_units; u++) b->is_own[u] = is_own(b, u);
    add_parameters(b);
    for (int32_t k = 1; k < b->w->n_kinds - 1; k++) b->w->kinds[k].is_layer = true;
    for (int32_t n = 0; n < b->g->n_nodes; n++) {
        const wfi_node *node = &b->g->nodes[n];
        bool is_sum = node->op == &wfi_op_sum_slices; /* the tree lies in units of all slices */
        if (is_sum && b->q->tp > 1) add_sum(b, node, &block_at(b, node->unit)->phase[node->phase]);
        if (node->dead) continue;
        add_input(b, node);
        if (!is_own(b, node->unit)) continue;
        add_time(b, node);
        add_used(b, node);
        add_packed(b, node);
    }
    for (int32_t n = 0; n < b->g->n_nodes; n++)
        if (!b->g->nodes[n].dead && is_own(b, b->g->nodes[n].unit))
            add_read_again(b, &b->g->nodes[n]);
    find_windows(b);
    for (int32_t k = 0; k < b->w->n_kinds; k++) {
        wfi_model_block *block = &b->w->kinds[k];
        if (wfi_work_has_papers(b->q))
            wfi_work_add_papers(b->q, block, k == b->w->n_kinds - 1);
        else
            block->phase[WFI_W].us += wfi_bytes_us(b->q->cluster, ACCUMULATE_BYTES * block->n_used);
    }
    WF_TRY(add_planned(b));
    return add_lives(b);
}

/* The middle one of a few layers stands for all: one more is left out for each beyond. */
static void repeat_layers(builder *b, int64_t n_layers) {
    wfi_model_work *w = b->w;
    w->layer = -1;
    if (n_layers <= FEW_LAYERS || w->n_kinds < FEW_LAYERS + 2) return;
    w->layer = w->n_kinds - FEW_LAYERS;
    w->n_layers = n_layers - FEW_LAYERS + 1;
    for (int32_t v = 0; v < b->g->n_values; v++) {
        const wfi_value *value = &b->g->values[v];
        bool is_state =
            value->kind == WFI_VALUE_CUT || (value->kind == WFI_VALUE_PARAM && !value->cut);
        if (is_state && b->block_of[value->unit] == w->layer)
            w->n_parameters += (double)(w->n_layers - 1) * (double)wf_shape_n_elem(&value->shape);
    }
}

static void add_up(wfi_model_work *w) {
    int64_t n;
    for (int64_t i = 0; i < wfi_work_n_blocks(w); i += n) {
        n = wfi_work_n_equal(w, i);
        for (int k = 0; k < 4; k++) w->us += (double)n * wfi_work_block(w, i)->phase[k].us;
        w->n_own += (double)n * wfi_work_block(w, i)->n_parameters;
    }
}

static wf_status measure(const wfi_work_request *q, wf_graph *g, int64_t n_layers,
                         wfi_model_work *w) {
    wf_context *ctx = g->ctx;
    builder b = {.q = q, .g = g, .w = w};
    b.block_of = wfi_alloc(ctx, (size_t)g->n_units, sizeof *b.block_of, "work");
    b.is_saved = wfi_alloc(ctx, (size_t)g->n_values, sizeof *b.is_saved, "work");
    b.is_own = wfi_alloc(ctx, (size_t)g->n_units, sizeof *b.is_own, "work");
    for (int k = 0; k < 2; k++)
        b.used[k] = wfi_alloc(ctx, (size_t)g->n_units, sizeof *b.used[k], "work");
    b.own = wfi_alloc(ctx, (size_t)g->n_units, sizeof *b.own, "work");
    bool ok = b.block_of && b.is_saved && b.is_own && b.used[0] && b.used[1] && b.own;
    wf_status status = ok ? WF_OK : WF_NO_MEMORY;
    if (status == WF_OK) {
        number_blocks(&b);
        w->kinds = wfi_alloc(ctx, (size_t)w->n_kinds, sizeof *w->kinds, "work");
        status = w->kinds ? add_all(&b) : WF_NO_MEMORY;
        if (w->kinds) name_blocks(&b);
    }
    if (status == WF_OK) repeat_layers(&b, n_layers);
    if (status == WF_OK) add_up(w);
    wfi_free(ctx, b.block_of);
    wfi_free(ctx, b.is_saved);
    wfi_free(ctx, b.is_own);
    for (int k = 0; k < 2; k++) wfi_free(ctx, b.used[k]);
    wfi_free(ctx, b.own);
    return status;
}

/* ---- the graph ---- */

static wf_status recompute(wf_graph *g, wfi_recompute how) {
    if (how == WFI_RECOMPUTE_NONE) return WF_OK;
    wfi_recompute *all = wfi_alloc(g->ctx, (size_t)g->n_units, sizeof *all, "work");
    if (!all) return WF_NO_MEMORY;
    for (int32_t u = 0; u < g->n_units; u++) all[u] = how;
    wf_status status = wfi_graph_recompute(g, all);
    wfi_free(g->ctx, all);
    return status;
}

/* The rule for sp of a program. */
static wf_status check_rows(const wfi_work_request *q, const wf_graph *g) {
    if (!q->divides_rows || !g->has_uneven_rows) return WF_OK;
    return wfi_fail(g->ctx, WF_INVALID_ARG,
                    "plan: sp, but slices=%d do not divide the tokens of a sample into parts that "
                    "begin at a cache line",
                    q->tp);
}

static wf_status create_graph(const wfi_work_request *q, const wf_model *model, int n_slices,
                              wf_graph **g_out) {
    wf_graph_config config = WF_GRAPH_CONFIG_INIT;
    config.batch = q->n_samples;
    config.training = 1;
    wf_graph *g;
    WF_TRY(
        wfi_graph_create(model->ctx, &config, n_slices, false, model->function, model->config, &g));
    wf_status status = check_rows(q, g);
    if (status == WF_OK) status = wfi_graph_cast(g, q->precision == WFI_F32 ? WF_F32 : WF_BF16);
    /* The papers' recomputation is another one (predict.c). */
    if (status == WF_OK && q->accounting == WF_ACCOUNTING_WEFT) status = recompute(g, q->recompute);
    if (status == WF_OK)
        *g_out = g;
    else
        wf_graph_destroy(g);
    return status;
}

static wf_status create_few(const wfi_work_request *q, int n_slices, wf_graph **g_out) {
    int64_t n_layers = wfi_model_n_layers(q->model);
    wf_model *few;
    if (n_layers <= FEW_LAYERS) return create_graph(q, q->model, n_slices, g_out);
    WF_TRY(wfi_model_with_layers(q->model, FEW_LAYERS, &few));
    wf_status status = create_graph(q, few, n_slices, g_out);
    wf_model_destroy(few);
    return status;
}

static wf_status create_work(wf_context *ctx, const wfi_work_request *q, int n_slices,
                             wfi_model_work **work_out) {
    wf_graph *g;
    WF_TRY(create_few(q, n_slices, &g));
    wfi_model_work *w = wfi_alloc(ctx, 1, sizeof *w, "work");
    wf_status status = w ? WF_OK : WF_NO_MEMORY;
    if (w) w->ctx = ctx;
    if (w) status = measure(q, g, wfi_model_n_layers(q->model), w);
    wf_graph_destroy(g);
    if (status == WF_OK)
        *work_out = w;
    else
        wfi_work_destroy(w);
    return status;
}

/* Takes from the work with more slices what depends on how large they are. */
static void take_bytes(wfi_model_work *w, const wfi_model_work *sliced) {
    memcpy(w->updated, sliced->updated, sizeof w->updated);
    for (int32_t k = 0; k < w->n_kinds; k++) {
        wfi_model_block *to = &w->kinds[k];
        const wfi_model_block *from = &sliced->kinds[k];
        to->saved_bytes = from->saved_bytes;
        to->weight_bytes = from->weight_bytes;
        to->unit_saved_bytes = from->unit_saved_bytes;
        to->unit_own = from->unit_own;
        to->unit_tied = from->unit_tied;
        to->added_bytes = from->added_bytes;
        to->n_units = from->n_units;
        memcpy(to->updated, from->updated, sizeof to->updated);
        memcpy(to->pass, from->pass, sizeof to->pass);
    }
}

/* Times are of a slice a rank, which any recipe may have. */
wf_status wfi_work_create(wf_context *ctx, const wfi_work_request *q, wfi_model_work **work_out) {
    int n_slices = (int)q->recipe->n_slices;
    wfi_model_work *sliced;
    WF_TRY(create_work(ctx, q, q->tp, work_out));
    if (q->accounting != WF_ACCOUNTING_WEFT || n_slices <= q->tp || n_slices % q->tp) return WF_OK;
    if (create_work(ctx, q, n_slices, &sliced) != WF_OK) return WF_OK; /* the model refuses them */
    if (sliced->n_kinds == (*work_out)->n_kinds) take_bytes(*work_out, sliced);
    wfi_work_destroy(sliced);
    return WF_OK;
}

void wfi_work_destroy(wfi_model_work *w) {
    if (!w) return;
    wfi_free(w->ctx, w->kinds);
    wfi_free(w->ctx, w);
}
