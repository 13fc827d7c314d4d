/* One op on parameters p0, p1, ..., so that training gives all its gradients: the
 * sum of its result's elements, each times a fixed number, is the loss. */
#pragma once

#include "graph_walk.h"
#include "op/op_table.h"

#define CASE_PARAMS 6

/* How parameters are chosen. Not smooth ops are tested away from where they bend. */
typedef enum case_fill { SMOOTH, BIMODAL, DISTINCT } case_fill;

typedef struct op_case {
    const char *name;
    wf_tensor (*build)(wf_graph *g, const wf_tensor *p, const int64_t *arg);
    int64_t arg[4];
    wf_shape shape[CASE_PARAMS];
    int n_params;
    case_fill fill;
    bool has_ids; /* an I32 input "ids" of shape id_shape, behind p, in [0, id_limit) */
    wf_shape id_shape;
    int64_t id_limit;
    bool blocked;     /* p0 is an image that comes from another op, so it may be C16 */
    double tolerance; /* of a gradient's element, in gradient's RMS; 0: 1e-3 */
} op_case;

static inline const char *case_param(int i) {
    static const char *const names[CASE_PARAMS] = {"p0", "p1", "p2", "p3", "p4", "p5"};
    return names[i];
}

static inline void case_model(wf_graph *g, const void *config) {
    const op_case *c = config;
    wf_tensor p[CASE_PARAMS + 1];
    for (int i = 0; i < CASE_PARAMS + 1; i++) p[i] = wfi_inert(g);
    for (int i = 0; i < c->n_params; i++) {
        wf_shape shape = c->shape[i];
        bool flat = c->blocked && i == 0;
        if (flat) shape = WF_SHAPE(wf_shape_n_elem(&shape));
        p[i] = wf_parameter(g, case_param(i), shape, (wf_init){WF_INIT_CONSTANT, 0});
        if (flat) p[i] = wf_reshape(p[i], c->shape[i]);
    }
    if (c->has_ids) p[c->n_params] = wf_input(g, "ids", WF_I32, c->id_shape);
    wf_tensor y = c->build(g, p, c->arg);
    wf_shape shape = wf_tensor_shape(y);
    int64_t n = wf_shape_n_elem(&shape);
    y = wf_reshape(y, WF_SHAPE(1, n));
    wf_output(y, "y");
    wf_loss(wf_sum(wf_mul(y, wf_input(g, "weights", WF_F32, WF_SHAPE(n))), 1));
}

static inline void case_graph(wf_context *ctx, const op_case *c, wf_graph **graph_out) {
    wf_graph_config config = WF_GRAPH_CONFIG_INIT;
    if (wf_graph_create(ctx, &config, case_model, c, graph_out) != WF_OK)
        fail_msg("%s: %s", c->name, wf_context_error(ctx));
}

static inline float case_number(case_fill fill, uint64_t stream, int64_t i, int64_t n) {
    float u = walk_uniform(stream, i);
    if (fill == BIMODAL) return u < 0 ? u * 0.5f - 0.5f : u * 0.5f + 0.5f;
    if (fill == SMOOTH) return u;
    int64_t step = n / 2 + 1; /* coprime to n where it matters: neighbours are far apart */
    while (n % step == 0 && step > 1) step--;
    return 0.125f * (float)(i * step % (n ? n : 1)) + 0.01f * u;
}

static inline void case_fill_values(const op_case *c, graph_walk *w) {
    for (int i = 0; i < c->n_params; i++) {
        int64_t n = wf_shape_n_elem(&c->shape[i]);
        float *p = walk_float(w, case_param(i));
        /* Of two that are added before a bend, the first decides on which side it is. */
        float size = c->fill == BIMODAL && i ? 0.2f : 1;
        for (int64_t k = 0; k < n; k++) p[k] = size * case_number(c->fill, (uint64_t)i, k, n);
    }
    int32_t v = walk_find(w->g, "weights");
    for (int64_t k = 0; k < wf_shape_n_elem(&w->g->values[v].shape); k++)
        ((float *)w->data[v])[k] = walk_uniform(99, k);
    for (v = 0; v < w->g->n_values; v++)
        if (w->g->values[v].name && !strcmp(w->g->values[v].name, "constant"))
            for (int64_t k = 0; k < wf_shape_n_elem(&w->g->values[v].shape); k++)
                ((float *)w->data[v])[k] = walk_uniform(98, k);
    if (!c->has_ids) return;
    v = walk_find(w->g, "ids");
    for (int64_t k = 0; k < wf_shape_n_elem(&w->g->values[v].shape); k++)
        ((int32_t *)w->data[v])[k] = (int32_t)((k * 5 + 1) % c->id_limit);
}

/* ---- cases from the ops' own samples ---- */

/* Numbers that are no parameter's. */
static inline wf_tensor constant(wf_graph *g, const wf_shape *shape) {
    return wf_reshape(wf_input(g, "constant", WF_F32, WF_SHAPE(wf_shape_n_elem(shape))), *shape);
}

/* arg: the op's place in the table, the sample's place in its list. */
static inline wf_tensor case_sample(wf_graph *g, const wf_tensor *p, const int64_t *arg) {
    const wfi_op *op = wfi_op_table[arg[0]];
    const wfi_op_sample *sample = &op->samples[arg[1]];
    wf_tensor in[WFI_MAX_INPUTS];
    int n_params = 0, n_ids = 0;
    for (int i = 0; i < sample->n_in; i++) n_ids += sample->ids >> i & 1;
    for (int i = 0; i < sample->n_in; i++)
        in[i] = sample->ids >> i & 1           ? wf_reshape(p[sample->n_in - n_ids], sample->in[i])
                : sample->no_gradient >> i & 1 ? constant(g, &sample->in[i])
                                               : p[n_params++];
    return wfi_graph_op(g, op, &sample->attr, &sample->shape, sample->n_in, in);
}

static inline op_case case_of_sample(int op, int k, char name[64]) {
    const wfi_op_sample *sample = &wfi_op_table[op]->samples[k];
    op_case c = {.name = name, .build = case_sample, .arg = {op, k}, .tolerance = 3e-3};
    c.fill = sample->bend == WFI_BENDS_AT_ZERO   ? BIMODAL
             : sample->bend == WFI_BENDS_AT_TIES ? DISTINCT
                                                 : SMOOTH;
    for (int i = 0; i < sample->n_in; i++)
        if (sample->ids >> i & 1) {
            c.has_ids = true;
            c.id_shape = WF_SHAPE(wf_shape_n_elem(&sample->in[i]));
            c.id_limit = sample->id_limit;
        } else if (!(sample->no_gradient >> i & 1)) {
            c.shape[c.n_params++] = sample->in[i];
        }
    snprintf(name, 64, "%s, sample %d", wfi_op_table[op]->name, k);
    return c;
}
