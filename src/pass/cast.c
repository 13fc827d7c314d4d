/* Types of values when a graph of F32 is trained in BF16. Kernels add in F32 and round their
 * outputs, for any type of input. So a value's type is its type in memory and in transfers. */
#include "op/op_table.h"
#include "pass/pass.h"
#include "pass/rewrite.h"

typedef struct cast_pass {
    wf_graph *g;
    wf_dtype dtype;
    bool *is_wide;            /* [n_values] of values that own their bytes: stays F32 */
    int32_t *cast;            /* [n_values], or -1: its cast, in the unit of that */
    bool *is_narrow_gradient; /* [n_values] a weight's gradient that is made in `dtype` */
    wfi_node_list list;       /* the new order */
} cast_pass;

static void keep_wide(cast_pass *pass, int32_t v) {
    if (v >= 0) pass->is_wide[wfi_value_root(pass->g, v)] = true;
}

/* A library's workspace is read by the kernel of the type of the one that wrote it. */
static bool reads_workspace(const wf_graph *g, int32_t n) {
    if (n < 0 || !(g->nodes[n].op->flags & WFI_OP_ONE_TYPE)) return false;
    for (int i = 0; i < g->nodes[n].n_in; i++)
        if (g->nodes[n].in[i] >= 0 && g->values[g->nodes[n].in[i]].opaque) return true;
    return false;
}

/* Keeps gradients of weights, and the summands of such gradients, in F32. The loop runs backward
 * because a node comes after the nodes that it reads. */
static void keep_gradients(cast_pass *pass) {
    const wf_graph *g = pass->g;
    for (int32_t i = 0; i < g->n_weight_gradients; i++) {
        int32_t root = wfi_value_root(g, g->weight_gradients[i].value);
        if (!reads_workspace(g, g->values[root].node)) keep_wide(pass, root);
    }
    for (int32_t n = g->n_nodes - 1; n >= 0; n--) {
        const wfi_node *node = &g->nodes[n];
        if (node->dead) continue;
        if (node->op->flags & WFI_OP_WEIGHT_GRADIENT) keep_wide(pass, node->out[0]);
        bool sums = node->op == &wfi_op_add && node->phase == WFI_W;
        for (int i = 0; i < node->n_in && sums; i++)
            if (pass->is_wide[wfi_value_root(g, node->out[0])]) keep_wide(pass, node->in[i]);
    }
}

static void find_wide(cast_pass *pass) {
    const wf_graph *g = pass->g;
    for (int32_t v = 0; v < g->n_values; v++)
        if (g->values[v].kind != WFI_VALUE_NODE || g->values[v].shape.n_dims < 2)
            pass->is_wide[v] = true;
    for (int32_t n = 0; n < g->n_nodes; n++)
        for (int i = 0; i < g->nodes[n].n_out; i++)
            if (g->nodes[n].op->roles.wide_out >> i & 1) keep_wide(pass, g->nodes[n].out[i]);
    /* Values that ranks sum, and values that they divide by rows. */
    for (int32_t n = 0; n < g->n_nodes; n++) {
        if (g->nodes[n].op == &wfi_op_join_rows) keep_wide(pass, g->nodes[n].out[0]);
        if (g->nodes[n].op == &wfi_op_split_rows) keep_wide(pass, g->nodes[n].in[0]);
    }
    for (int32_t i = 0; i < g->n_outputs && !g->training; i++) keep_wide(pass, g->outputs[i]);
    for (int32_t i = 0; i < g->n_hidden; i++) keep_wide(pass, g->hidden[i].after);
    keep_gradients(pass);
}

static void set_types(cast_pass *pass) {
    wf_graph *g = pass->g;
    for (int32_t v = 0; v < g->n_values; v++)
        if (g->values[v].dtype == WF_F32 && !pass->is_wide[wfi_value_root(g, v)])
            g->values[v].dtype = pass->dtype;
    for (int32_t i = 0; i < g->n_weight_gradients; i++) {
        int32_t v = g->weight_gradients[i].value;
        pass->is_narrow_gradient[v] = g->values[v].dtype != WF_F32;
    }
}

static wf_status push_cast(cast_pass *pass, int32_t v, const wfi_node *near, wfi_phase phase,
                           wf_dtype dtype, int32_t *cast_out) {
    wf_graph *g = pass->g;
    wfi_node node = {.op = &wfi_op_cast,
                     .n_in = 1,
                     .n_out = 1,
                     .unit = near->unit,
                     .phase = phase,
                     .shape = g->values[v].shape};
    WF_TRY(WFI_GROW(g->ctx, g->values, g->n_values, g->value_capacity, "a graph's values"));
    g->values[g->n_values] = (wfi_value){.kind = WFI_VALUE_NODE,
                                         .dtype = dtype,
                                         .shape = g->values[v].shape,
                                         .layout = g->values[v].layout,
                                         .node = -1,
                                         .alias = -1,
                                         .unit = near->unit};
    for (int i = 0; i < WFI_MAX_INPUTS; i++) node.in[i] = i ? -1 : v;
    for (int i = 0; i < WFI_MAX_OUTPUTS; i++) node.out[i] = i ? -1 : g->n_values;
    *cast_out = g->n_values++;
    return wfi_node_push(pass->g, &pass->list, &node);
}

/* The value that `near` reads instead of v. Each unit has casts of its own. */
static wf_status cast_of(cast_pass *pass, int32_t v, const wfi_node *near, int32_t *cast_out) {
    *cast_out = pass->cast[v];
    if (*cast_out >= 0 && pass->g->values[*cast_out].unit == near->unit) return WF_OK;
    WF_TRY(push_cast(pass, v, near, near->phase, pass->dtype, cast_out));
    pass->cast[v] = *cast_out;
    return WF_OK;
}

static bool makes_narrow_gradient(const cast_pass *pass, const wfi_node *node) {
    for (int k = 0; k < node->n_out; k++)
        if (node->out[k] >= 0 && pass->is_narrow_gradient[node->out[k]]) return true;
    return false;
}

/* If an output of the node is a weight's gradient, it is summed in F32. */
static wf_status widen_gradients(cast_pass *pass, const wfi_node *node) {
    wf_graph *g = pass->g;
    if (!makes_narrow_gradient(pass, node)) return WF_OK;
    for (int32_t i = 0; i < g->n_weight_gradients; i++) {
        wfi_weight_gradient *w = &g->weight_gradients[i];
        for (int k = 0; k < node->n_out; k++)
            if (node->out[k] == w->value && g->values[w->value].dtype != WF_F32)
                WF_TRY(push_cast(pass, w->value, node, WFI_W, WF_F32, &w->value));
    }
    return WF_OK;
}

static bool needs_cast(const wf_graph *g, const wfi_node *node, int i) {
    const wfi_value *value = node->in[i] < 0 ? NULL : wfi_value_at(g, node->in[i]);
    bool is_weight = node->op->roles.weight_in >> i & 1;
    if (!value || value->dtype != WF_F32 || value->shape.n_dims < 2) return false;
    /* A weight that is computed is in no kernel's format. */
    return !is_weight || g->values[wfi_value_root(g, node->in[i])].kind == WFI_VALUE_NODE;
}

static wf_status rewrite(cast_pass *pass) {
    wf_graph *g = pass->g;
    for (int32_t n = 0; n < g->n_nodes; n++) {
        wfi_node node = g->nodes[n];
        bool one_type = node.op->flags & WFI_OP_ONE_TYPE;
        for (int i = 0; i < node.n_in && one_type && !node.dead; i++)
            if (needs_cast(g, &node, i)) WF_TRY(cast_of(pass, node.in[i], &node, &node.in[i]));
        WF_TRY(wfi_node_push(pass->g, &pass->list, &node));
        if (!node.dead) WF_TRY(widen_gradients(pass, &node));
    }
    wfi_node_list_take(g, &pass->list);
    return WF_OK;
}

wf_status wfi_graph_cast(wf_graph *g, wf_dtype dtype) {
    if (dtype == WF_F32) return WF_OK;
    size_t n = (size_t)g->n_values;
    cast_pass pass = {.g = g, .dtype = dtype};
    pass.is_wide = wfi_alloc(g->ctx, n, sizeof *pass.is_wide, "the cast pass");
    pass.cast = wfi_alloc(g->ctx, n, sizeof *pass.cast, "the cast pass");
    pass.is_narrow_gradient =
        wfi_alloc(g->ctx, n, sizeof *pass.is_narrow_gradient, "the cast pass");
    bool ok = pass.is_wide && pass.cast && pass.is_narrow_gradient;
    wf_status status = ok ? WF_OK : WF_NO_MEMORY;
    if (status == WF_OK) {
        for (size_t v = 0; v < n; v++) pass.cast[v] = -1;
        find_wide(&pass);
        set_types(&pass);
        status = rewrite(&pass);
    }
    wfi_free(g->ctx, pass.list.nodes);
    wfi_free(g->ctx, pass.is_wide);
    wfi_free(g->ctx, pass.cast);
    wfi_free(g->ctx, pass.is_narrow_gradient);
    return status;
}
