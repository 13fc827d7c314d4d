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
        if (g->values[v].dtype == WF_F32 && !pass->is_wide[wfi_value_root(g, v)]) {
            g->values[v].dtype = pass->dtype;
            if (g->values[v].alias >= 0) g->values[v].offset /= sizeof(float) / sizeof(uint16_t);
        }
    for (int32_t i = 0; i < g->n_weight_gradients; i++) {
        int32_t v = g->weight_gradients[i].value;
        pass->is_narrow_gradient[v] = g->values[v].dtype != WF_F32;
    }
}

static int32_t add_cast(wf_graph *g, int32_t v, const wfi_node *near, wfi_phase phase,
                        wf_dtype dtype) {
    int32_t cast = wfi_rewrite_value(g, v, near, dtype, g->values[v].layout);
    wfi_rewrite_add(g, &wfi_op_cast, NULL, near, phase, v, cast);
    return cast;
}

/* The value that `near` reads instead of v. Each unit has casts of its own. */
static int32_t cast_of(cast_pass *pass, int32_t v, const wfi_node *near) {
    wf_graph *g = pass->g;
    int32_t *cast = &pass->cast[v];
    if (*cast < 0 || g->values[*cast].unit != near->unit)
        *cast = add_cast(g, v, near, near->phase, pass->dtype);
    return *cast;
}

static bool makes_narrow_gradient(const cast_pass *pass, const wfi_node *node) {
    for (int k = 0; k < node->n_out; k++)
        if (node->out[k] >= 0 && pass->is_narrow_gradient[node->out[k]]) return true;
    return false;
}

/* If an output of the node is a weight's gradient, it is summed in F32. */
static void widen_gradients(cast_pass *pass, const wfi_node *node) {
    wf_graph *g = pass->g;
    for (int32_t i = 0; i < g->n_weight_gradients && makes_narrow_gradient(pass, node); i++) {
        wfi_weight_gradient *w = &g->weight_gradients[i];
        for (int k = 0; k < node->n_out; k++)
            if (node->out[k] == w->value && g->values[w->value].dtype != WF_F32)
                w->value = add_cast(g, w->value, node, WFI_W, WF_F32);
    }
}

static bool needs_cast(const wf_graph *g, const wfi_node *node, int i) {
    const wfi_value *value = node->in[i] < 0 ? NULL : wfi_value_at(g, node->in[i]);
    bool is_weight = node->op->roles.weight_in >> i & 1;
    if (!value || value->dtype != WF_F32 || value->shape.n_dims < 2) return false;
    /* A weight that is computed is in no kernel's format. */
    return !is_weight || g->values[wfi_value_root(g, node->in[i])].kind == WFI_VALUE_NODE;
}

static void add_again(wf_graph *g, const wfi_node *node, void *how) {
    wfi_node again = *node;
    bool one_type = node->op->flags & WFI_OP_ONE_TYPE && !node->dead;
    for (int i = 0; i < again.n_in && one_type; i++)
        if (needs_cast(g, &again, i)) again.in[i] = cast_of(how, again.in[i], node);
    wfi_rewrite_keep(g, &again);
    if (!node->dead) widen_gradients(how, &again);
}

wf_status wfi_graph_cast(wf_graph *g, wf_dtype dtype) {
    if (dtype == WF_F32) return WF_OK;
    size_t n = (size_t)g->n_values;
    cast_pass pass = {.g = g, .dtype = dtype};
    wfi_pool pool = {.ctx = g->ctx};
    pass.is_wide = wfi_pool_alloc(&pool, n, sizeof *pass.is_wide);
    pass.cast = wfi_pool_alloc(&pool, n, sizeof *pass.cast);
    pass.is_narrow_gradient = wfi_pool_alloc(&pool, n, sizeof *pass.is_narrow_gradient);
    wf_status status = wfi_pool_status(&pool);
    if (status == WF_OK) {
        for (size_t v = 0; v < n; v++) pass.cast[v] = -1;
        find_wide(&pass);
        set_types(&pass);
        status = wfi_rewrite(g, add_again, &pass);
    }
    wfi_pool_release(&pool);
    return status;
}
