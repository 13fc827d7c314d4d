/* Fusion on the forward graph: batch norm + ReLU and add + ReLU become one node,
 * when nothing else reads the value in between. The choice looks at the graph
 * alone, so every plan makes the same one. */
#include "graph/graph.h"
#include "graph/op.h"
#include "op/op_table.h"

static int32_t count_uses(const wf_graph *g, int32_t v) {
    int32_t n = 0;
    for (int32_t k = 0; k < g->n_nodes; k++)
        for (int i = 0; i < g->nodes[k].n_in; i++) n += !g->nodes[k].dead && g->nodes[k].in[i] == v;
    return n;
}

/* The ReLU's output becomes the producer's; the value in between is nobody's. */
static void absorb(wf_graph *g, int32_t producer, wfi_node *relu) {
    g->values[relu->in[0]].node = -1;
    g->nodes[producer].out[0] = relu->out[0];
    g->values[relu->out[0]].node = producer;
    relu->dead = true;
}

wf_status wfi_graph_fuse(wf_graph *g) {
    for (int32_t n = 0; n < g->n_nodes; n++) {
        wfi_node *relu = &g->nodes[n];
        if (relu->dead || relu->op != &wfi_op_relu) continue;
        int32_t x = relu->in[0], producer = g->values[x].node;
        if (producer < 0 || g->values[x].name || x == g->loss || count_uses(g, x) != 1) continue;
        wfi_node *before = &g->nodes[producer];
        if (before->unit != relu->unit || before->dead) continue;
        if (before->op == &wfi_op_add) {
            before->op = &wfi_op_add_relu;
            absorb(g, producer, relu);
        } else if (before->op == &wfi_op_batch_norm_inference) {
            before->attr.norm.relu = 1;
            absorb(g, producer, relu);
        } else if (before->op == &wfi_op_batch_norm) {
            before->attr.norm.relu = 1;
            absorb(g, producer, relu);
            WF_TRY(
                wfi_node_opaque_output(g, before, wf_shape_n_elem(&g->values[relu->out[0]].shape)));
            g->values[before->out[before->n_out - 1]].node = producer;
        }
    }
    return WF_OK;
}
