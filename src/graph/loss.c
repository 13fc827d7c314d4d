/* wf_loss: what is trained on, and what is recorded of each microbatch. */
#include "graph/graph.h"
#include "op/op_table.h"

void wf_loss(wf_tensor loss) {
    wf_graph *g = loss.graph;
    if (g->status != WF_OK) return;
    char text[WFI_SHAPE_TEXT];
    if (g->loss >= 0) {
        wfi_graph_fail(g, WF_INVALID_ARG, "wf_loss is called twice; add the two losses instead");
        return;
    }
    const wfi_value *value = wfi_value_at(g, loss.id);
    if (value->shape.n_dims != 1 || value->dtype != WF_F32 || value->kind != WFI_VALUE_NODE) {
        wfi_graph_fail(g, WF_SHAPE, "wf_loss takes one F32 value a row, [rows]; this is %s",
                       wfi_shape_text(&value->shape, text));
        return;
    }
    g->loss = loss.id;
    g->n_rows = value->shape.dim[0];
    /* Hits and ignored labels are known where the loss is a cross entropy. */
    wf_tensor hits = wfi_inert(g);
    const wfi_node *producer = &g->nodes[value->node];
    if (producer->op == &wfi_op_cross_entropy) {
        hits = wfi_tensor(g, producer->out[1]);
        int32_t labels = wfi_value_root(g, producer->in[1]);
        if (g->values[labels].kind == WFI_VALUE_INPUT) g->labels = labels;
    }
    wf_tensor record =
        wfi_graph_op(g, &wfi_op_loss_record, NULL, NULL, 2, (wf_tensor[]){loss, hits});
    g->record = record.id;
}
