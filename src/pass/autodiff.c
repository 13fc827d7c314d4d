/* Reverse-mode differentiation: appends the backward nodes.
 *
 * Forward nodes are visited in reverse order. Each contributes to the gradients
 * of its inputs; a second contribution to the same value is added by a node, in
 * the order of the visit, so the order of every sum is fixed by the graph alone.
 * A weight used in several units keeps one gradient per unit (a tied weight has
 * one accumulator per use).
 */
#include "graph/op.h"
#include "op/op_table.h"
#include "pass/pass.h"

#include <stdlib.h>
#include <string.h>

struct wfi_autodiff {
    wf_graph *g;
    int32_t unit;      /* of the forward node at hand */
    int32_t n_forward; /* values that existed before the backward */
    int32_t *gradient; /* [n_forward] of values: their gradient so far; of parameters: the last of
                          their weight gradients, or -1 */
    bool *wants;       /* [n_forward] */
    int32_t *earlier;  /* [n_weight_gradients] the parameter's gradient before, of another unit, or
                          -1 */
    size_t earlier_capacity;
};

wf_graph *wfi_autodiff_graph(wfi_autodiff *ad) {
    return ad->g;
}

void wfi_autodiff_take_unit(wfi_autodiff *ad, int32_t unit) {
    ad->unit = unit;
}

int32_t wfi_gradient_of(const wfi_autodiff *ad, int32_t v) {
    return v < 0 ? -1 : ad->gradient[v];
}

bool wfi_wants_gradient(const wfi_autodiff *ad, int32_t v) {
    return v >= 0 && ad->wants[v];
}

const wfi_node *wfi_backward_node(wfi_autodiff *ad, const wfi_op *op, const wfi_attr *attr,
                                  const wf_shape *shape, int n_in, const int32_t *in) {
    wf_graph *g = ad->g;
    wf_tensor tensors[WFI_MAX_INPUTS];
    wfi_phase phase = op->flags & WFI_OP_WEIGHT_GRADIENT ? WFI_W : WFI_B;
    for (int i = 0; i < n_in; i++) {
        tensors[i] = wfi_tensor(g, in[i]);
        int32_t producer = in[i] < 0 ? -1 : g->values[in[i]].node;
        if (producer >= 0 && g->nodes[producer].phase == WFI_W) phase = WFI_W;
    }
    wfi_node *node = (wfi_node *)wfi_graph_add(g, op, attr, shape, n_in, tensors);
    if (!node) return NULL;
    node->phase = phase;
    node->unit = ad->unit;
    for (int i = 0; i < node->n_out; i++) g->values[node->out[i]].unit = ad->unit;
    return node;
}

static wf_status add_weight_gradient(wfi_autodiff *ad, int32_t param, int32_t value) {
    wf_graph *g = ad->g;
    for (int32_t i = ad->gradient[param]; i >= 0; i = ad->earlier[i]) {
        wfi_weight_gradient *w = &g->weight_gradients[i];
        if (w->unit != ad->unit) continue;
        const wfi_node *sum =
            wfi_backward_node(ad, &wfi_op_add, NULL, NULL, 2, (int32_t[]){w->value, value});
        if (!sum) return g->status;
        /* Summands of a weight's gradient are needed by nothing else. */
        ((wfi_node *)sum)->phase = WFI_W;
        w->value = sum->out[0];
        return WF_OK;
    }
    WF_TRY(WFI_GROW(g->ctx, g->weight_gradients, g->n_weight_gradients, g->weight_gradient_capacity,
                    "weight gradients"));
    WF_TRY(WFI_GROW(g->ctx, ad->earlier, g->n_weight_gradients, ad->earlier_capacity, "autodiff"));
    ad->earlier[g->n_weight_gradients] = ad->gradient[param];
    ad->gradient[param] = g->n_weight_gradients;
    const wfi_unit *unit = &g->units[ad->unit];
    bool is_slices_use = unit->is_slice && !g->units[g->values[param].unit].is_slice;
    g->weight_gradients[g->n_weight_gradients++] =
        (wfi_weight_gradient){param, value, ad->unit, is_slices_use ? unit->slice : -1};
    return WF_OK;
}

wf_status wfi_contribute(wfi_autodiff *ad, int32_t v, int32_t dv) {
    if (!wfi_wants_gradient(ad, v) || dv < 0) return WF_OK;
    wf_graph *g = ad->g;
    if (!wfi_shape_equal(&g->values[v].shape, &g->values[dv].shape))
        return wfi_fail(g->ctx, WF_BUG, "a gradient of another shape than its value, from op %s",
                        g->nodes[g->values[dv].node].op->name);
    if (g->values[v].kind == WFI_VALUE_PARAM) return add_weight_gradient(ad, v, dv);
    if (ad->gradient[v] < 0) {
        ad->gradient[v] = dv;
        return WF_OK;
    }
    const wfi_node *sum =
        wfi_backward_node(ad, &wfi_op_add, NULL, NULL, 2, (int32_t[]){ad->gradient[v], dv});
    if (!sum) return g->status;
    ad->gradient[v] = sum->out[0];
    return WF_OK;
}

/* ---- a node's inputs ---- */

static bool passes(const wfi_op *op) {
    return op->backward || op->gradient;
}

static int32_t operand(const wfi_autodiff *ad, const wfi_node *node, uint8_t which) {
    if (which == WFI_DY) return wfi_gradient_of(ad, node->out[0]);
    return which < WFI_Y ? node->in[which - WFI_X] : node->out[which - WFI_Y];
}

static wf_status pass_by_row(wfi_autodiff *ad, const wfi_node *node, const wfi_op_backward *row) {
    int32_t in[WFI_MAX_INPUTS], out[WFI_MAX_OUTPUTS];
    int n_in = 0, n_to = row->n_to ? row->n_to : 1;
    bool wants = false;
    for (int k = 0; k < n_to; k++) wants |= wfi_wants_gradient(ad, node->in[row->to + k]);
    if (!wants) return WF_OK;
    for (; n_in < WFI_MAX_INPUTS && row->in[n_in]; n_in++)
        in[n_in] = operand(ad, node, row->in[n_in]);
    if (!row->op) return wfi_contribute(ad, node->in[row->to], in[0]);
    wf_shape shape = ad->g->values[node->in[row->to]].shape;
    const wfi_node *back =
        wfi_backward_node(ad, row->op, &node->attr, row->has_shape ? &shape : NULL, n_in, in);
    if (!back) return ad->g->status;
    memcpy(out, back->out, sizeof out); /* a sum is a node, too, and may move this one */
    for (int k = 0; k < n_to; k++) WF_TRY(wfi_contribute(ad, node->in[row->to + k], out[k]));
    return WF_OK;
}

static wf_status pass_to_inputs(wfi_autodiff *ad, const wfi_node *node) {
    const wfi_op_backward *row = node->op->backward;
    for (; row && row->in[0]; row++) WF_TRY(pass_by_row(ad, node, row));
    return node->op->gradient ? node->op->gradient(ad, node) : WF_OK;
}

static void find_wanted(wfi_autodiff *ad) {
    const wf_graph *g = ad->g;
    for (int32_t v = 0; v < ad->n_forward; v++)
        ad->wants[v] = g->values[v].kind == WFI_VALUE_PARAM && !g->values[v].is_frozen;
    for (int32_t n = 0; n < g->n_nodes; n++) {
        const wfi_node *node = &g->nodes[n];
        if (node->dead || !passes(node->op)) continue;
        bool wants = false;
        for (int i = 0; i < node->n_in; i++) wants |= node->in[i] >= 0 && ad->wants[node->in[i]];
        for (int i = 0; i < node->n_out; i++)
            if (node->out[i] >= 0) ad->wants[node->out[i]] = wants;
    }
}

static wf_status differentiate(wfi_autodiff *ad) {
    wf_graph *g = ad->g;
    int32_t n_forward_nodes = g->n_nodes;
    find_wanted(ad);
    if (!ad->wants[g->loss])
        return wfi_fail(g->ctx, WF_INVALID_ARG,
                        "the loss does not depend on any parameter that is trained");
    ad->unit = g->values[g->loss].unit;
    const wfi_node *seed =
        wfi_backward_node(ad, &wfi_op_loss_gradient, NULL, &g->values[g->loss].shape, 0, NULL);
    if (!seed) return g->status;
    ad->gradient[g->loss] = seed->out[0];
    for (int32_t n = n_forward_nodes - 1; n >= 0; n--) {
        wfi_node node = g->nodes[n]; /* a copy: adding nodes may move the array */
        if (node.dead || !passes(node.op)) continue;
        bool reached = false;
        for (int i = 0; i < node.n_out; i++) reached |= wfi_gradient_of(ad, node.out[i]) >= 0;
        if (!reached || !ad->wants[node.out[0]]) continue;
        ad->unit = node.unit;
        WF_TRY(pass_to_inputs(ad, &node));
        if (g->status != WF_OK) return g->status;
    }
    return WF_OK;
}

static int by_unit_then_param(const void *x, const void *y) {
    const wfi_weight_gradient *a = x, *b = y;
    return a->unit != b->unit ? a->unit - b->unit : a->param - b->param;
}

/* Returns the unit that owns the weight if another unit uses it; -1: its own unit uses it, or a
 * slice other than the first. */
static int32_t find_owner(const wf_graph *g, int32_t i) {
    const wfi_weight_gradient *w = &g->weight_gradients[i];
    int32_t owner = g->values[w->param].unit;
    return owner != w->unit && w->slice <= 0 ? owner : -1;
}

/* Each unit's stand side by side, and so do, in `tied`, those of other units for each owner. */
static wf_status sort_weight_gradients(wf_graph *g) {
    int32_t n = g->n_weight_gradients, n_tied = 0;
    qsort(g->weight_gradients, (size_t)n, sizeof *g->weight_gradients, by_unit_then_param);
    for (int32_t i = 0; i < n; i++) {
        const wfi_weight_gradient *w = &g->weight_gradients[i];
        wfi_unit *unit = &g->units[w->unit];
        if (i == 0 || w[-1].unit != w->unit) unit->first_gradient = i;
        unit->end_gradient = i + 1;
        int32_t owner = find_owner(g, i);
        if (owner >= 0) g->units[owner].end_tied++;
    }
    for (int32_t u = 0; u < g->n_units; u++) {
        g->units[u].first_tied = n_tied;
        n_tied += g->units[u].end_tied;
        g->units[u].end_tied = g->units[u].first_tied;
    }
    g->tied = wfi_pool_alloc(&g->pool, (size_t)n_tied, sizeof *g->tied);
    for (int32_t i = 0; i < n && g->tied; i++) {
        int32_t owner = find_owner(g, i);
        if (owner >= 0) g->tied[g->units[owner].end_tied++] = i;
    }
    return g->tied ? WF_OK : WF_NO_MEMORY;
}

wf_status wfi_graph_autodiff(wf_graph *g) {
    wfi_autodiff ad = {.g = g, .n_forward = g->n_values};
    ad.gradient = wfi_alloc(g->ctx, (size_t)g->n_values, sizeof *ad.gradient, "autodiff");
    ad.wants = wfi_alloc(g->ctx, (size_t)g->n_values, sizeof *ad.wants, "autodiff");
    wf_status status = ad.gradient && ad.wants ? WF_OK : WF_NO_MEMORY;
    if (status == WF_OK) {
        for (int32_t v = 0; v < g->n_values; v++) ad.gradient[v] = -1;
        status = differentiate(&ad);
    }
    if (status == WF_OK) status = sort_weight_gradients(g);
    wfi_free(g->ctx, ad.gradient);
    wfi_free(g->ctx, ad.wants);
    wfi_free(g->ctx, ad.earlier);
    return status;
}
