/* Layers of long short-term memory, token by token: so slices can each have some of the hidden
 * units. One product for all tokens applies the gates' weights to the input. The product with h
 * runs once a token. Every slice computes its units of h (op/lstm_cell.c), and h is complete before
 * the next token begins. */
#include "op/op_table.h"
#include "pass/pass.h"
#include "pass/rewrite.h"

/* Returns h (0) or c (1) of the hidden state from the previous step. */
static wf_tensor before(wf_tensor hidden, int which) {
    wf_shape shape = wf_tensor_shape(hidden);
    return wf_reshape(wf_slice(hidden, 1, which, 1), WF_SHAPE(shape.dim[0], shape.dim[2]));
}

/* The next h; and c. */
static wf_tensor add_token(wf_graph *g, int64_t token, wf_tensor x, wf_tensor w_hh, wf_tensor h,
                           wf_tensor *c) {
    wfi_attr product = {.matmul = {.transpose_b = 1, .shares_b = 1}};
    wfi_attr cell = {.lstm_cell = {.step = token, .h = wf_tensor_shape(w_hh).dim[1]}};
    wf_tensor r = wfi_graph_op(g, &wfi_op_matmul, &product, NULL, 2, (wf_tensor[]){h, w_hh});
    h = wfi_graph_op(g, &wfi_op_lstm_cell, &cell, NULL, 3, (wf_tensor[]){x, r, *c});
    if (h.id >= 0) c->id = g->nodes[g->n_nodes - 1].out[1];
    return h;
}

/* y: h of all tokens. */
static void give_output(const wfi_node *node, const wf_tensor *h, int64_t n_tokens) {
    wf_shape shape = wf_tensor_shape(h[0]);
    (void)wf_reshape(wf_concat(h, (int)n_tokens, 1),
                     WF_SHAPE(shape.dim[0], n_tokens, shape.dim[1]));
    wfi_rewrite_give(h->graph, &node->out[0], 1);
}

/* Replaces the hidden state by the last h and c; each slice writes its units at their place in the
 * whole. */
static void give_hidden(const wfi_node *node, wf_tensor h, wf_tensor c) {
    wf_shape shape = wf_tensor_shape(h), one = WF_SHAPE(shape.dim[0], 1, shape.dim[1]);
    wfi_attr attr = {.slice = {.dim = 1}};
    c = wfi_graph_op(h.graph, &wfi_op_slice_backward, &attr, &shape, 1, &c);
    (void)wf_concat((wf_tensor[]){wf_reshape(h, one), wf_reshape(c, one)}, 2, 1);
    wfi_rewrite_give(h.graph, &node->out[1], 1);
}

static void add_layer(wf_graph *g, const wfi_node *node) {
    wf_tensor in[6];
    for (int i = 0; i < 6; i++) in[i] = wfi_tensor(g, node->in[i]);
    int64_t n_tokens = wf_tensor_shape(in[0]).dim[1];
    wf_tensor *h = wfi_alloc(g->ctx, (size_t)n_tokens, sizeof *h, "an LSTM");
    if (!h) {
        g->status = WF_NO_MEMORY;
        return;
    }
    wf_tensor last = before(in[5], 0), c = before(in[5], 1);
    wf_tensor x = wf_add(wf_linear_with(in[0], in[1], in[3]), in[4]);
    for (int64_t t = 0; t < n_tokens; t++) last = h[t] = add_token(g, t, x, in[2], last, &c);
    give_hidden(node, last, c);
    give_output(node, h, n_tokens);
    wfi_free(g->ctx, h);
}

static void add_again(wf_graph *g, const wfi_node *node, void *how) {
    (void)how;
    if (node->dead || node->op != &wfi_op_lstm)
        wfi_rewrite_keep(g, node);
    else
        add_layer(g, node);
}

wf_status wfi_graph_unroll(wf_graph *g) {
    bool has_layers = false;
    for (int32_t n = 0; n < g->n_nodes; n++) has_layers |= g->nodes[n].op == &wfi_op_lstm;
    return has_layers ? wfi_rewrite(g, add_again, NULL) : WF_OK;
}
