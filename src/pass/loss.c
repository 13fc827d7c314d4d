/* wf_loss: sets the loss to train on, and the records of each microbatch. */
#include "op/op_table.h"

/* The cross entropies that the loss is made of. Their labels decide which rows count:
 * all of them must look at the same ones, or the model says which. */
typedef struct search {
    int32_t wanted; /* labels; -1: any */
    int32_t hits;   /* of the last one; -1: none */
    int32_t labels; /* the input behind them; -1: none yet, -2: several */
} search;

/* The operand that plays the role; -1: none does. */
static int32_t with_role(const int32_t *operands, int n, unsigned role) {
    for (int i = 0; i < n; i++)
        if (role >> i & 1) return operands[i];
    return -1;
}

static void find_cross_entropy(const wf_graph *g, int32_t v, search *s) {
    if (v < 0 || g->values[v].node < 0) return;
    const wfi_node *node = &g->nodes[g->values[v].node];
    if (node->op->roles.label_in) {
        int32_t labels =
            wfi_value_root(g, with_role(node->in, node->n_in, node->op->roles.label_in));
        if (s->wanted >= 0 && s->wanted != labels) return;
        s->labels = s->labels == -1 || s->labels == labels ? labels : -2;
        s->hits = with_role(node->out, node->n_out, node->op->roles.hit_out);
        return;
    }
    for (int i = 0; i < node->n_in; i++) {
        const wfi_value *in = node->in[i] < 0 ? NULL : wfi_value_at(g, node->in[i]);
        /* Follows only values with one number a row: nodes before the logits are not part of the
         * loss. */
        if (in && in->shape.n_dims <= 1) find_cross_entropy(g, node->in[i], s);
    }
}

static void set_loss(wf_tensor loss, int32_t labels) {
    wf_graph *g = loss.graph;
    if (!g || g->status != WF_OK) return;
    char text[WFI_SHAPE_TEXT];
    if (loss.id < 0) {
        wfi_graph_fail(g, WF_INVALID_ARG, "wf_loss of a tensor that does not exist");
        return;
    }
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
    search s = {labels, -1, -1};
    find_cross_entropy(g, loss.id, &s);
    if (s.labels == -2) {
        wfi_graph_fail(g, WF_UNSUPPORTED,
                       "the loss adds cross entropies with different labels, so it is not clear "
                       "which rows count; wf_loss_by names them");
        return;
    }
    wf_tensor hits = wfi_tensor(g, s.hits);
    if (s.labels >= 0 && g->values[s.labels].kind == WFI_VALUE_INPUT) g->labels = s.labels;
    wf_tensor record =
        wfi_graph_op(g, &wfi_op_loss_record, NULL, NULL, 2, (wf_tensor[]){loss, hits});
    g->record = record.id;
}

void wf_loss(wf_tensor loss) {
    set_loss(loss, -1);
}

void wf_loss_by(wf_tensor loss, wf_tensor labels) {
    wf_graph *g = loss.graph;
    if (g && g->status == WF_OK && labels.id < 0)
        wfi_graph_fail(g, WF_INVALID_ARG, "wf_loss_by with labels that do not exist");
    else
        set_loss(loss, labels.id);
}
