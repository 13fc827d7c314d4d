/* Other nodes in the place of some. */
#include "pass/rewrite.h"

void wfi_rewrite_keep(wf_graph *g, const wfi_node *node) {
    if (g->status == WF_OK)
        g->status = WFI_GROW(g->ctx, g->nodes, g->n_nodes, g->node_capacity, "a graph's nodes");
    if (g->status == WF_OK) g->nodes[g->n_nodes++] = *node;
}

void wfi_rewrite_give(wf_graph *g, const int32_t *values, int n) {
    for (int i = 0; i < n && g->status == WF_OK; i++) {
        int32_t *out = &g->nodes[g->n_nodes - 1].out[i];
        g->values[values[i]].alias = g->values[*out].alias;
        *out = values[i];
    }
}

int32_t wfi_rewrite_value(wf_graph *g, int32_t v, const wfi_node *near, wf_dtype dtype,
                          wfi_layout layout) {
    if (g->status == WF_OK)
        g->status = WFI_GROW(g->ctx, g->values, g->n_values, g->value_capacity, "a graph's values");
    if (g->status != WF_OK) return -1;
    g->values[g->n_values] = (wfi_value){.kind = WFI_VALUE_NODE,
                                         .dtype = dtype,
                                         .shape = g->values[v].shape,
                                         .layout = layout,
                                         .node = -1,
                                         .alias = -1,
                                         .unit = near->unit};
    return g->n_values++;
}

void wfi_rewrite_add(wf_graph *g, const wfi_op *op, const wfi_attr *attr, const wfi_node *near,
                     wfi_phase phase, int32_t from, int32_t to) {
    if (g->status != WF_OK) return;
    wfi_node node = {.op = op, .n_in = 1, .n_out = 1, .unit = near->unit, .phase = phase};
    if (attr) node.attr = *attr;
    node.shape = g->values[from].shape;
    for (int i = 0; i < WFI_MAX_INPUTS; i++) node.in[i] = i ? -1 : from;
    for (int i = 0; i < WFI_MAX_OUTPUTS; i++) node.out[i] = i ? -1 : to;
    wfi_rewrite_keep(g, &node);
}

wf_status wfi_rewrite(wf_graph *g, wfi_rewrite_function function, void *how) {
    wfi_node *nodes = g->nodes;
    int32_t n_nodes = g->n_nodes;
    g->nodes = NULL;
    g->n_nodes = 0;
    g->node_capacity = 0;
    for (int32_t n = 0; n < n_nodes && g->status == WF_OK; n++) {
        int32_t added = g->n_nodes;
        function(g, &nodes[n], how);
        for (; added < g->n_nodes; added++)
            if (g->nodes[added].phase != WFI_R) g->nodes[added].unit = nodes[n].unit;
    }
    wfi_free(g->ctx, nodes);
    if (g->status == WF_OK) wfi_graph_find_producers(g);
    return g->status;
}
