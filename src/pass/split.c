/* The loss as a unit of its own, so that it can live on another rank than the model. */
#include "pass/pass.h"

#include <string.h>

/* Marks the nodes of the loss: backward from it through values with one number a row. Earlier nodes
 * (for example logits) belong to the model. */
static void mark_back(const wf_graph *g, int32_t v, bool *is_loss) {
    int32_t n = v < 0 ? -1 : g->values[v].node;
    if (n < 0 || is_loss[n] || g->nodes[n].unit != g->n_units - 1) return;
    is_loss[n] = true;
    for (int i = 0; i < g->nodes[n].n_in; i++) {
        int32_t in = g->nodes[n].in[i];
        if (in >= 0 && g->values[in].shape.n_dims <= 1) mark_back(g, in, is_loss);
    }
}

/* Marks the readers of marked nodes, too, because no unit reads a later one. */
static void mark_readers(const wf_graph *g, bool *is_loss) {
    for (int32_t n = 0; n < g->n_nodes; n++)
        for (int i = 0; i < g->nodes[n].n_in && !g->nodes[n].dead; i++) {
            int32_t v = g->nodes[n].in[i];
            if (v >= 0 && g->values[v].node >= 0 && is_loss[g->values[v].node]) is_loss[n] = true;
        }
}

/* "loss", or "loss_", ... if the model calls a unit so. */
static void add_unit(wf_graph *g) {
    char name[64] = "loss";
    for (int32_t u = 0; u < g->n_units && strlen(name) + 2 < sizeof name; u++)
        if (!strcmp(g->units[u].name, name)) {
            strcat(name, "_");
            u = -1;
        }
    wfi_graph_add_unit(g, name);
}

wf_status wfi_graph_split_loss(wf_graph *g) {
    if (g->loss < 0) return WF_OK;
    bool *is_loss = wfi_alloc(g->ctx, (size_t)g->n_nodes, sizeof *is_loss, "the loss");
    if (!is_loss) return WF_NO_MEMORY;
    mark_back(g, g->record, is_loss);
    mark_readers(g, is_loss);
    add_unit(g);
    for (int32_t n = 0; n < g->n_nodes && g->status == WF_OK; n++) {
        wfi_node *node = &g->nodes[n];
        if (!is_loss[n]) continue;
        node->unit = g->n_units - 1;
        for (int i = 0; i < node->n_out; i++)
            if (node->out[i] >= 0) g->values[node->out[i]].unit = g->n_units - 1;
    }
    g->loss_unit = g->n_units - 1;
    wfi_free(g->ctx, is_loss);
    return g->status;
}
