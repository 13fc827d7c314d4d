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

wf_status wfi_rewrite(wf_graph *g, wfi_rewrite_function function, const void *how) {
    wfi_node *nodes = g->nodes;
    int32_t n_nodes = g->n_nodes;
    g->nodes = NULL;
    g->n_nodes = 0;
    g->node_capacity = 0;
    for (int32_t n = 0; n < n_nodes && g->status == WF_OK; n++) {
        int32_t added = g->n_nodes;
        function(g, &nodes[n], how);
        for (; added < g->n_nodes; added++) g->nodes[added].unit = nodes[n].unit;
    }
    wfi_free(g->ctx, nodes);
    if (g->status == WF_OK) wfi_graph_find_producers(g);
    return g->status;
}

wf_status wfi_node_push(wf_graph *g, wfi_node_list *list, const wfi_node *node) {
    WF_TRY(WFI_GROW(g->ctx, list->nodes, list->n, list->capacity, "a graph's nodes"));
    list->nodes[list->n++] = *node;
    return WF_OK;
}

void wfi_node_list_take(wf_graph *g, wfi_node_list *list) {
    wfi_graph_set_nodes(g, list->nodes, list->n, list->capacity);
    *list = (wfi_node_list){0};
}
