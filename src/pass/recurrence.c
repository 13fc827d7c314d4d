/* Layers of long short-term memory, token by token: so slices can each have some of the hidden
 * units. What the gates get of the input is one product for all tokens. What they get of h is one
 * for each: all of h, of which every slice makes its units (op/lstm_cell.c), is there before the
 * next token begins.
 */
#include "op/op_table.h"
#include "pass/pass.h"
#include "pass/rewrite.h"

/* A layer as it is added. */
typedef struct layer {
    wf_graph *g;
    const wfi_node *node;
    int64_t n, n_tokens, n_hidden;
} layer;

static wf_tensor input(const layer *l, int i) {
    return wfi_tensor(l->g, l->node->in[i]);
}

static wf_tensor add(const layer *l, const wfi_op *op, const wfi_attr *attr, const wf_shape *shape,
                     int n_in, const wf_tensor *in) {
    return wfi_rewrite_add(l->g, l->node, op, attr, shape, n_in, in);
}

/* h, or c, of what the step before has left. */
static wf_tensor before(const layer *l, int which) {
    wf_tensor hidden = input(l, 5);
    wfi_attr attr = {.slice = {.dim = 1, .start = which}};
    wf_tensor x = add(l, &wfi_op_slice, &attr, &WF_SHAPE(l->n, 1, l->n_hidden), 1, &hidden);
    return add(l, &wfi_op_reshape, NULL, &WF_SHAPE(l->n, l->n_hidden), 1, &x);
}

/* What the gates get of the input, and of both biases. */
static wf_tensor add_input(const layer *l) {
    wf_tensor x =
        add(l, &wfi_op_linear, NULL, NULL, 3, (wf_tensor[]){input(l, 0), input(l, 1), input(l, 3)});
    return add(l, &wfi_op_add_broadcast, NULL, NULL, 2, (wf_tensor[]){x, input(l, 4)});
}

/* The next h; and c. */
static wf_tensor add_token(const layer *l, int64_t token, wf_tensor x, wf_tensor h, wf_tensor *c) {
    wfi_attr product = {.matmul = {.transpose_b = 1, .shares_b = 1}};
    wfi_attr cell = {.lstm_cell = {.step = token, .h = l->n_hidden}};
    wf_tensor r = add(l, &wfi_op_matmul, &product, NULL, 2, (wf_tensor[]){h, input(l, 2)});
    h = add(l, &wfi_op_lstm_cell, &cell, NULL, 3, (wf_tensor[]){x, r, *c});
    if (h.id >= 0) c->id = l->g->nodes[l->g->n_nodes - 1].out[1];
    return h;
}

/* h of all tokens: y. */
static void join_tokens(const layer *l, const wf_tensor *h) {
    wfi_attr attr = {.slice = {.dim = 1}};
    wf_tensor in[WFI_MAX_INPUTS], y = h[0];
    for (int64_t t = 1; t < l->n_tokens;) {
        int n = 0;
        in[n++] = y;
        while (n < WFI_MAX_INPUTS && t < l->n_tokens) in[n++] = h[t++];
        y = add(l, &wfi_op_concat, &attr, NULL, n, in);
    }
    (void)add(l, &wfi_op_reshape, NULL, &WF_SHAPE(l->n, l->n_tokens, l->n_hidden), 1, &y);
    wfi_rewrite_give(l->g, &l->node->out[0], 1);
}

/* The last h and c, in the place of what was before. */
static void join_hidden(const layer *l, wf_tensor h, wf_tensor c) {
    wf_shape one = WF_SHAPE(l->n, 1, l->n_hidden);
    wfi_attr attr = {.slice = {.dim = 1}};
    wf_tensor in[] = {add(l, &wfi_op_reshape, NULL, &one, 1, &h),
                      add(l, &wfi_op_reshape, NULL, &one, 1, &c)};
    (void)add(l, &wfi_op_concat, &attr, NULL, 2, in);
    wfi_rewrite_give(l->g, &l->node->out[1], 1);
}

static wf_status add_layer(const layer *l) {
    wf_graph *g = l->g;
    wf_tensor *h = wfi_alloc(g->ctx, (size_t)l->n_tokens, sizeof *h, "an LSTM");
    if (!h) return WF_NO_MEMORY;
    wf_tensor last = before(l, 0), c = before(l, 1), x = add_input(l);
    for (int64_t t = 0; t < l->n_tokens; t++) last = h[t] = add_token(l, t, x, last, &c);
    wfi_attr attr = {.slice = {.dim = 1}}; /* of each slice's units, where they are in the whole */
    c = add(l, &wfi_op_slice_backward, &attr, &WF_SHAPE(l->n, l->n_hidden), 1, &c);
    join_tokens(l, h);
    join_hidden(l, last, c);
    wfi_free(g->ctx, h);
    return g->status;
}

static void add_again(wf_graph *g, const wfi_node *node, const void *how) {
    (void)how;
    if (node->dead || node->op != &wfi_op_lstm) {
        wfi_rewrite_keep(g, node);
        return;
    }
    wf_shape x = g->values[node->in[0]].shape, w_hh = g->values[node->in[2]].shape;
    wf_status status = add_layer(&(layer){g, node, x.dim[0], x.dim[1], w_hh.dim[1]});
    if (g->status == WF_OK) g->status = status;
}

wf_status wfi_graph_unroll(wf_graph *g) {
    bool has_layers = false;
    for (int32_t n = 0; n < g->n_nodes; n++) has_layers |= g->nodes[n].op == &wfi_op_lstm;
    return has_layers ? wfi_rewrite(g, add_again, NULL) : WF_OK;
}
