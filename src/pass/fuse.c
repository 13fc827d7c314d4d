/* Fusion on the forward graph: an op that can apply a ReLU itself and the ReLU behind it become
 * one node, when nothing else reads the value in between. The choice looks at the graph
 * alone, so every plan makes the same one. */
#include "graph/op.h"
#include "op/op_table.h"
#include "pass/pass.h"

static int32_t count_uses(const wf_graph *g, int32_t v) {
    int32_t n = 0;
    for (int32_t k = 0; k < g->n_nodes; k++)
        for (int i = 0; i < g->nodes[k].n_in; i++) n += !g->nodes[k].dead && g->nodes[k].in[i] == v;
    return n;
}

/* The ReLU's output becomes the producer's; the value in between has no producer any more. */
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
        if (!before->op->with_relu) continue;
        absorb(g, producer, relu);
        WF_TRY(before->op->with_relu(g, before));
        for (int i = 0; i < before->n_out; i++)
            if (before->out[i] >= 0) g->values[before->out[i]].node = producer;
    }
    return WF_OK;
}
