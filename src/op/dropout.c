/* Dropout: what is kept is a function of (seed, name, step, sample, element), so it
 * is the same in the forward, the backward and a recomputation, on any rank.
 *
 * dropout(x) -> y, dropout_backward(dy) -> dx; attr.dropout */
#include "op/check.h"

#define DRAWN_AT_ONCE 256

static wf_status dropout_check(wf_graph *g, wfi_node *node) {
    WF_TRY(wfi_check_inputs(g, node, "f"));
    wf_shape x = wfi_in_shape(g, node, 0);
    double p = node->attr.dropout.p;
    if (!(p >= 0 && p < 1))
        return wfi_op_fail(g, node, WF_INVALID_ARG, "p is %g, but must be in [0, 1)", p);
    /* Elements are counted from the sample's first, whatever the microbatch. */
    if (x.n_dims < 1 || x.dim[0] != g->batch)
        return wfi_op_fail(g, node, WF_SHAPE,
                           "the first dim of %s is not the microbatch's %lld "
                           "samples",
                           wfi_show(&x).text, (long long)g->batch);
    return wfi_node_output(g, node, WF_F32, &x);
}

static void dropout_reference(const wfi_call *call) {
    const float *x = call->in[0].data;
    float *y = call->out[0].data;
    const wf_shape *shape = &call->in[0].shape;
    const wfi_step_args *step = call->step;
    wfi_random_key key = {step->seed, call->attr->dropout.name};
    double p = call->attr->dropout.p, factor = 1 / (1 - p);
    int64_t n_total = wf_shape_n_elem(shape), sample_size = n_total / shape->dim[0];
    uint64_t first = (uint64_t)step->first_sample * (uint64_t)sample_size;
    float uniform[DRAWN_AT_ONCE];
    for (int64_t i = 0; i < n_total; i += DRAWN_AT_ONCE) {
        int64_t n = wfi_min_i64(DRAWN_AT_ONCE, n_total - i);
        wfi_random_fill_uniform(key, step->step, first + (uint64_t)i, n, uniform);
        for (int64_t k = 0; k < n; k++) y[i + k] = uniform[k] >= p ? (float)(x[i + k] * factor) : 0;
    }
}

static const wfi_op_sample dropout_samples[] = {
    {.n_in = 1, .in = {WFI_DIMS(1, 5, 9)}, .attr = {.dropout = {0.4, 7}}}, {0}};

const wfi_op wfi_op_dropout = {
    .name = "dropout",
    .flags = WFI_OP_CHEAP,
    .overwrites = 1 << 0,
    .tolerance = 1e-7f,
    .check = dropout_check,
    .backward = (const wfi_op_backward[]){{.op = &wfi_op_dropout_backward, .in = {WFI_DY}}, {0}},
    .work = {20, WFI_Y}, /* ten rounds of Philox for every four elements */
    .reference = dropout_reference,
    .samples = dropout_samples,
};

const wfi_op wfi_op_dropout_backward = {
    .name = "dropout_backward",
    .overwrites = 1 << 0,
    .tolerance = 1e-7f,
    .check = dropout_check,
    .work = {20, WFI_Y},
    .reference = dropout_reference,
};

/* Two of one name would drop the same elements. */
static bool name_is_taken(const wf_graph *g, uint64_t name) {
    for (int32_t n = 0; n < g->n_nodes; n++)
        if (g->nodes[n].op == &wfi_op_dropout && g->nodes[n].attr.dropout.name == name) return true;
    return false;
}

wf_tensor wf_dropout(wf_tensor x, const char *name, float p) {
    wf_graph *g = x.graph;
    if (!g || x.id < 0 || g->status != WF_OK) return x;
    /* Training graphs and others have the same units. */
    if (p != 0) g->units[g->n_units - 1].is_passed = true;
    if (!g->training || p == 0) return x;
    char *full = wfi_pool_format(&g->pool, "%s%s", g->scope, name);
    if (!full) {
        g->status = WF_NO_MEMORY;
        return wfi_inert(g);
    }
    wfi_attr attr = {.dropout = {.p = p, .name = wfi_random_name(full)}};
    if (name_is_taken(g, attr.dropout.name)) {
        wfi_graph_fail(g, WF_INVALID_ARG,
                       "dropout: two are called '%s'; their masks would be equal", full);
        return wfi_inert(g);
    }
    return wfi_build(&wfi_op_dropout, &attr, NULL, 1, &x);
}
