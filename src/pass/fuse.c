/* Fusion on the forward graph: a node and the sum or the ReLU that reads its output become one
 * node, if the op supports it (wfi_op.with_addend, with_relu) and no other node reads that output.
 * The choice looks at the graph alone, so every plan makes the same one. */
#include "graph/readers.h"
#include "op/op_table.h"
#include "pass/pass.h"

/* The node that makes input i of node n for it alone, in its unit; or NULL. Values have the readers
 * that they had before: a fused node reads the inputs of both nodes, except the value between
 * them. */
static wfi_node *maker_of(wf_graph *g, const wfi_readers *readers, int32_t n, int i) {
    int32_t x = g->nodes[n].in[i], producer = g->values[x].node;
    if (producer < 0 || g->values[x].name || x == g->loss || wfi_n_readers(readers, x) != 1)
        return NULL;
    wfi_node *before = &g->nodes[producer];
    return before->unit == g->nodes[n].unit && !before->dead ? before : NULL;
}

/* Replaces node n by `before` with the output of n; the value in between has no producer any more.
 * The fused node takes the position of n, after the inputs of both. */
static void replace(wf_graph *g, int32_t n, wfi_node *before) {
    int32_t out = g->nodes[n].out[0];
    g->values[before->out[0]].node = -1;
    before->out[0] = out;
    g->nodes[n] = *before;
    before->dead = true;
}

static void set_producer(wf_graph *g, int32_t n) {
    for (int i = 0; i < g->nodes[n].n_out; i++)
        if (g->nodes[n].out[i] >= 0) g->values[g->nodes[n].out[i]].node = n;
}

static void fuse_addend(wf_graph *g, const wfi_readers *readers, int32_t n) {
    for (int i = 0; i < 2; i++) {
        wfi_node *before = maker_of(g, readers, n, i);
        if (!before || !before->op->with_addend) continue;
        if (!before->op->with_addend(g, before, g->nodes[n].in[!i])) continue;
        replace(g, n, before);
        set_producer(g, n);
        return;
    }
}

static wf_status fuse_relu(wf_graph *g, const wfi_readers *readers, int32_t n) {
    wfi_node *before = maker_of(g, readers, n, 0);
    if (!before || !before->op->with_relu) return WF_OK;
    replace(g, n, before);
    WF_TRY(g->nodes[n].op->with_relu(g, &g->nodes[n]));
    set_producer(g, n);
    return WF_OK;
}

wf_status wfi_graph_fuse(wf_graph *g) {
    wfi_readers readers;
    WF_TRY(wfi_readers_find(g, &readers));
    wf_status status = WF_OK;
    for (int32_t n = 0; n < g->n_nodes && status == WF_OK; n++) {
        const wfi_node *node = &g->nodes[n];
        if (node->dead) continue;
        if (node->op == &wfi_op_add) fuse_addend(g, &readers, n);
        if (node->op == &wfi_op_relu) status = fuse_relu(g, &readers, n);
    }
    wfi_readers_release(g->ctx, &readers);
    return status;
}
