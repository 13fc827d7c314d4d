/* One token of a layer of long short-term memory; slices divide its hidden units
 * (pass/recurrence.c). The gates' inputs from all tokens' features, the previous h and the previous
 * c give the next h and c.
 *
 * lstm_cell(x, r, c) -> h, next, gates (in training graphs)
 * lstm_cell_backward(dh, gates, c, next, dnext?) -> dr, dc
 *
 * x [n, tokens, 4 u], of which attr.step is the token; r [n, 4 u]: u units of all four gates, which
 * op/lstm.c names. c and next [n, u]; but before the first token c has the units of the whole, as h
 * and dh [n, attr.h] always do. h is zero where the units from attr.first on are not, so parts of
 * it are summed without rounding.
 *
 * The gradients of x and of the recurrent weight, which is the same for all tokens, are those of
 * all tokens at once: the first token's cell, the last in the backward, adds them. */
#include "op/plain.h"

#include "op/lstm_cell.cl"

enum { N_GATES = 4 };

/* ---- checks ---- */

static wf_status lstm_cell_check(wf_graph *g, wfi_node *node) {
    WF_TRY(wfi_check_inputs(g, node, "fff"));
    wf_shape x = wfi_in_shape(g, node, 0);
    int64_t step = node->attr.lstm_cell.step, h = node->attr.lstm_cell.h, n = x.dim[0];
    int64_t u = x.n_dims == 3 ? x.dim[2] / N_GATES : 0, first = node->attr.lstm_cell.first;
    if (u < 1 || x.dim[2] % N_GATES || step < 0 || step >= x.dim[1] || first < 0 || first + u > h)
        return wfi_op_fail(g, node, WF_SHAPE, "token %lld, units from %lld on of %lld in %s",
                           (long long)step, (long long)first, (long long)h, wfi_show(&x).text);
    WF_TRY(wfi_check_shape(g, node, 1, "input 1", WF_SHAPE(n, N_GATES * u)));
    WF_TRY(wfi_check_shape(g, node, 2, "input 2", WF_SHAPE(n, step ? u : h)));
    WF_TRY(wfi_node_output(g, node, WF_F32, &WF_SHAPE(n, h)));
    WF_TRY(wfi_node_output(g, node, WF_F32, &WF_SHAPE(n, u)));
    return g->training ? wfi_node_output(g, node, WF_F32, &WF_SHAPE(n, N_GATES * u)) : WF_OK;
}

/* ---- references ---- */

/* The units of a part begin in c before the first token where they do in the whole. */
static wfi_numbers lstm_cell_numbers(const wfi_call *call) {
    wfi_numbers own = wfi_row_numbers(&call->out[1].shape);
    own.n[2] = call->attr->lstm_cell.h;
    own.n[3] = call->attr->lstm_cell.first;
    own.n[4] = call->attr->lstm_cell.step ? 0 : own.n[3];
    own.n[5] = wfi_last_dim(&call->in[2].shape);
    own.n[6] = call->in[0].shape.dim[1];
    own.n[7] = call->attr->lstm_cell.step;
    return own;
}

PLAIN_REFERENCE(compute_units, lstm_cell, lstm_cell_numbers)
PLAIN_REFERENCE(lstm_cell_backward_reference, lstm_cell_backward, lstm_cell_numbers)

static void lstm_cell_reference(const wfi_call *call) {
    plain_clear(call);
    compute_units(call);
}

/* ---- the gradient ---- */

/* Concatenates the values of all tokens: [n, tokens, width]. */
static int32_t join_tokens(wfi_autodiff *ad, const int32_t *parts, int64_t n_parts,
                           wfi_phase phase) {
    wf_graph *g = wfi_graph_of(ad);
    wf_shape part = g->values[parts[0]].shape;
    wf_shape shape = WF_SHAPE(part.dim[0], n_parts, part.dim[1]);
    wfi_attr attr = {.slice = {.dim = 1}};
    int32_t in[WFI_MAX_INPUTS], joined = parts[0];
    for (int64_t t = 1; t < n_parts;) {
        int n = 0;
        in[n++] = joined;
        while (n < WFI_MAX_INPUTS && t < n_parts) in[n++] = parts[t++];
        wfi_node *node = (wfi_node *)wfi_backward_node(ad, &wfi_op_concat, &attr, NULL, n, in);
        if (!node) return -1;
        node->phase = phase;
        joined = node->out[0];
    }
    const wfi_node *node = wfi_backward_node(ad, &wfi_op_reshape, NULL, &shape, 1, &joined);
    return node ? node->out[0] : -1;
}

/* The product that r is; NULL: it is something else. */
static const wfi_node *find_product(const wf_graph *g, const wfi_node *cell) {
    int32_t n = g->values[cell->in[1]].node;
    bool is_product =
        n >= 0 && g->nodes[n].op == &wfi_op_matmul && g->nodes[n].attr.matmul.shares_b;
    return is_product ? &g->nodes[n] : NULL;
}

/* Finds the gradient of r and the previous h of each token of the cell's layer, whose backward
 * nodes exist. */
static void find_tokens(const wf_graph *g, const wfi_node *cell, int32_t *dr, int32_t *before) {
    for (int32_t n = 0; n < g->n_nodes; n++) {
        const wfi_node *back = &g->nodes[n];
        if (back->op != &wfi_op_lstm_cell_backward) continue;
        const wfi_node *one = &g->nodes[g->values[back->in[1]].node];
        if (one->in[0] != cell->in[0]) continue;
        const wfi_node *product = find_product(g, one);
        dr[one->attr.lstm_cell.step] = back->out[0];
        before[one->attr.lstm_cell.step] = product ? product->in[0] : -1;
    }
}

/* Adds the gradients of x and of the recurrent weight, the factor of the previous h. */
static wf_status pass_to_layer(wfi_autodiff *ad, const wfi_node *cell) {
    wf_graph *g = wfi_graph_of(ad);
    const wfi_node *product = find_product(g, cell);
    int32_t weight = product ? product->in[1] : -1;
    bool wants_weight = wfi_wants_gradient(ad, weight);
    if (!wants_weight && !wfi_wants_gradient(ad, cell->in[0])) return WF_OK;
    int64_t n = g->values[cell->in[0]].shape.dim[1];
    int32_t *dr = wfi_alloc(g->ctx, 2 * (size_t)n, sizeof *dr, "the gradient of an LSTM");
    if (!dr) return WF_NO_MEMORY;
    int32_t *before = dr + n;
    find_tokens(g, cell, dr, before);
    int32_t dx = join_tokens(ad, dr, n, WFI_B);
    if (dx >= 0) g->status = wfi_contribute(ad, cell->in[0], dx);
    if (dx >= 0 && wants_weight && g->status == WF_OK) {
        int32_t in[] = {dx, join_tokens(ad, before, n, WFI_W)};
        wf_shape shape = g->values[weight].shape;
        const wfi_node *back =
            in[1] < 0 ? NULL
                      : wfi_backward_node(ad, &wfi_op_linear_backward_weight, NULL, &shape, 2, in);
        if (back) g->status = wfi_contribute(ad, weight, back->out[0]);
    }
    wfi_free(g->ctx, dr);
    return g->status;
}

static wf_status lstm_cell_gradient(wfi_autodiff *ad, const wfi_node *node) {
    const int32_t operands[] = {wfi_gradient_of(ad, node->out[0]), node->out[2], node->in[2],
                                node->out[1], wfi_gradient_of(ad, node->out[1])};
    const wfi_node *back = wfi_backward_node(ad, &wfi_op_lstm_cell_backward, &node->attr, NULL,
                                             operands[4] < 0 ? 4 : 5, operands);
    if (!back) return wfi_graph_of(ad)->status;
    int32_t dr = back->out[0], dc = back->out[1];
    WF_TRY(wfi_contribute(ad, node->in[1], dr));
    if (node->attr.lstm_cell.step) return wfi_contribute(ad, node->in[2], dc);
    return pass_to_layer(ad, node);
}

/* ---- the ops ---- */

static bool is_first(const wf_graph *g, const wfi_node *node) {
    (void)g;
    return !node->attr.lstm_cell.step;
}
static bool is_later(const wf_graph *g, const wfi_node *node) {
    return !is_first(g, node);
}

static bool divide_units(wfi_attr *attr, const wfi_op_part *part) {
    attr->lstm_cell.first += part->begin;
    return true;
}

static const wfi_op_sample lstm_cell_samples[] = {
    {.n_in = 3,
     .in = {WFI_DIMS(2, 1, 20), WFI_DIMS(2, 20), WFI_DIMS(2, 5)},
     .no_gradient = 1 << 2,
     .attr = {.lstm_cell = {0, 0, 5}}},
    {.n_in = 3,
     .in = {WFI_DIMS(2, 3, 20), WFI_DIMS(2, 20), WFI_DIMS(2, 5)},
     .no_gradient = 1 << 0,
     .attr = {.lstm_cell = {2, 0, 5}}},
    {0}};

#define UNITS .n_blocks = N_GATES, .blocks = 1 << 0 | 1 << 1, .divide = divide_units
static const wfi_op_cut lstm_cell_place[] = {
    {.name = "units", .in = {-1, -1}, .out = {WFI_SUMMED, -1, -1}, .applies = is_first, UNITS},
    {.name = "units", .in = {-1, -1, -1}, .out = {WFI_SUMMED, -1, -1}, .applies = is_later, UNITS},
    {0}};

const wfi_op wfi_op_lstm_cell = {
    .name = "lstm_cell",
    .roles = {.wide_out = 1 << 1 | 1 << 2},
    .tolerance = 1e-5f,
    .check = lstm_cell_check,
    .gradient = lstm_cell_gradient,
    .work = {30, WFI_Y + 1},
    .reference = lstm_cell_reference,
    .numbers = lstm_cell_numbers,
    .samples = lstm_cell_samples,
    .place = lstm_cell_place,
};

const wfi_op wfi_op_lstm_cell_backward = {
    .name = "lstm_cell_backward",
    .roles = {.wide_out = 1 << 1},
    .tolerance = 1e-5f,
    .makes = {WFI_X + 1, WFI_X + 3},
    .work = {25, WFI_Y + 1},
    .reference = lstm_cell_backward_reference,
    .numbers = lstm_cell_numbers,
};
