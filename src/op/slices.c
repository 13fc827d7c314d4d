/* The boundaries of tensor-parallel slices in a graph (pass/shard.c). Nothing runs: the slices
 * share the memory of their input, and that of their output, which holds their sum or some rows of
 * each.
 *
 * to_slices(x) -> left, right          x itself, for two halves of the slices
 * sum_slices(left, right) -> y         left + right, which is how slices' summands are added
 * split_rows(x) -> left, right         the first attr.slice.start rows of x, and the others
 * join_rows(left, right) -> y          both, one behind the other; y has the node's shape
 * place_rows(left, right) -> y         the same, for nodes that read rows only
 *
 * All are binary, so nodes of sum_slices are the tree over which slices are summed. */
#include "op/check.h"

static wf_status to_slices_check(wf_graph *g, wfi_node *node) {
    wf_shape x = wfi_in_shape(g, node, 0);
    for (int k = 0; k < 2; k++) {
        WF_TRY(wfi_node_output(g, node, g->values[node->in[0]].dtype, &x));
        g->values[node->out[k]].alias = node->in[0];
    }
    return WF_OK;
}

/* The other way round, slices give summands. */
static wf_status to_slices_gradient(wfi_autodiff *ad, const wfi_node *node) {
    const int32_t in[] = {wfi_gradient_of(ad, node->out[0]), wfi_gradient_of(ad, node->out[1])};
    return wfi_pass(ad, node->in[0], &wfi_op_sum_slices, NULL, NULL, 2, in);
}

const wfi_op wfi_op_to_slices = {
    .name = "to_slices",
    .flags = WFI_OP_ALIAS | WFI_OP_SLICES,
    .check = to_slices_check,
    .gradient = to_slices_gradient,
};

/* A summand has no other reader, so it can share the sum's memory. */
static wf_status sum_slices_check(wf_graph *g, wfi_node *node) {
    WF_TRY(wfi_check_elementwise(g, node));
    for (int k = 0; k < 2; k++) {
        wfi_value *summand = &g->values[node->in[k]];
        if (summand->kind != WFI_VALUE_NODE || summand->alias >= 0 || node->in[0] == node->in[1])
            return wfi_op_fail(g, node, WF_BUG, "a summand is another value, too");
        summand->alias = node->out[0];
    }
    return WF_OK;
}

const wfi_op wfi_op_sum_slices = {
    .name = "sum_slices",
    .flags = WFI_OP_SLICES,
    .roles = {.wide_out = 1 << 0},
    .check = sum_slices_check,
    .backward = (const wfi_op_backward[]){{.in = {WFI_DY}}, {.in = {WFI_DY}, .to = 1}, {0}},
};

static wf_status split_rows_check(wf_graph *g, wfi_node *node) {
    wf_shape x = wfi_in_shape(g, node, 0);
    wf_dtype dtype = g->values[node->in[0]].dtype;
    int64_t n_rows = wfi_n_rows(&x), n_left = node->attr.slice.start, n = wfi_last_dim(&x);
    wf_shape left = WF_SHAPE(n_left, n), right = WF_SHAPE(n_rows - n_left, n);
    if (n_left < 1 || n_left >= n_rows)
        return wfi_op_fail(g, node, WF_BUG, "%s has no more than %lld rows", wfi_show(&x).text,
                           (long long)n_left);
    WF_TRY(wfi_node_output(g, node, dtype, &left));
    WF_TRY(wfi_node_output(g, node, dtype, &right));
    g->values[node->out[1]].alias = node->in[0];
    g->values[node->out[1]].offset = wfi_value_bytes(g, node->out[0]);
    return WF_OK;
}

/* The value from which both were split by rows; otherwise -1. */
static int32_t find_whole(const wf_graph *g, int32_t left, int32_t right, const wf_shape *shape) {
    const wfi_node *split = &g->nodes[g->values[left].node];
    bool is_whole = split->op == &wfi_op_split_rows && split->out[0] == left &&
                    split->out[1] == right &&
                    wfi_shape_equal(&g->values[split->in[0]].shape, shape);
    return is_whole ? split->in[0] : -1;
}

/* The gradient of some rows, in memory of its own. If it is part of another value, the slice that
 * reads these rows copies it. */
static int32_t find_free(wfi_autodiff *ad, const wfi_node *split, int32_t rows) {
    wf_graph *g = wfi_graph_of(ad);
    int32_t v = wfi_gradient_of(ad, rows);
    wfi_attr attr = {.scale = {1}};
    if (g->values[v].alias < 0) return v;
    int32_t slice = (int32_t)(wfi_value_begin(g, rows) / wfi_value_bytes(g, rows));
    wfi_autodiff_take_unit(ad, split->unit + slice);
    const wfi_node *copy = wfi_backward_node(ad, &wfi_op_scale, &attr, NULL, 1, &v);
    return copy ? copy->out[0] : -1;
}

/* The units that make rows of the gradient may be others than those that read rows of x. */
static wf_status split_rows_gradient(wfi_autodiff *ad, const wfi_node *node) {
    wf_graph *g = wfi_graph_of(ad);
    int32_t left = wfi_gradient_of(ad, node->out[0]), right = wfi_gradient_of(ad, node->out[1]);
    wf_shape shape = g->values[node->in[0]].shape;
    int32_t whole = find_whole(g, left, right, &shape);
    if (whole >= 0 || !wfi_wants_gradient(ad, node->in[0]))
        return wfi_contribute(ad, node->in[0], whole);
    const int32_t in[] = {find_free(ad, node, node->out[0]), find_free(ad, node, node->out[1])};
    if (g->status != WF_OK) return g->status;
    wfi_autodiff_take_unit(ad, g->values[in[1]].unit);
    const wfi_node *join = wfi_backward_node(ad, &wfi_op_join_rows, NULL, &shape, 2, in);
    return join ? wfi_contribute(ad, node->in[0], join->out[0]) : g->status;
}

const wfi_op wfi_op_split_rows = {
    .name = "split_rows",
    .flags = WFI_OP_ALIAS | WFI_OP_SLICES,
    .check = split_rows_check,
    .gradient = split_rows_gradient,
};

static wf_status join_rows_check(wf_graph *g, wfi_node *node) {
    wf_shape left = wfi_in_shape(g, node, 0), right = wfi_in_shape(g, node, 1);
    if (wf_shape_n_elem(&left) + wf_shape_n_elem(&right) != wf_shape_n_elem(&node->shape))
        return wfi_op_fail(g, node, WF_BUG, "%s and %s are not the rows of %s",
                           wfi_show(&left).text, wfi_show(&right).text,
                           wfi_show(&node->shape).text);
    WF_TRY(wfi_node_output(g, node, g->values[node->in[0]].dtype, &node->shape));
    for (int k = 0; k < 2; k++) {
        wfi_value *rows = &g->values[node->in[k]];
        if (rows->kind != WFI_VALUE_NODE || rows->alias >= 0 || node->in[0] == node->in[1])
            return wfi_op_fail(g, node, WF_BUG, "rows are another value, too");
        rows->alias = node->out[0];
        rows->offset = k ? wfi_value_bytes(g, node->in[0]) : 0;
    }
    return WF_OK;
}

static wf_status join_rows_gradient(wfi_autodiff *ad, const wfi_node *node) {
    wf_graph *g = wfi_graph_of(ad);
    int32_t dy = wfi_gradient_of(ad, node->out[0]);
    wf_shape left = wfi_in_shape(g, node, 0);
    wfi_attr attr = {.slice = {.start = wfi_n_rows(&left)}};
    const wfi_node *split = wfi_backward_node(ad, &wfi_op_split_rows, &attr, NULL, 1, &dy);
    if (!split) return g->status;
    const int32_t out[] = {split->out[0], split->out[1]};
    for (int k = 0; k < 2; k++) { /* by the slice that has made the rows */
        wfi_autodiff_take_unit(ad, g->values[node->in[k]].unit);
        WF_TRY(wfi_contribute(ad, node->in[k], out[k]));
    }
    return WF_OK;
}

const wfi_op wfi_op_join_rows = {
    .name = "join_rows",
    .flags = WFI_OP_SLICES,
    .check = join_rows_check,
    .gradient = join_rows_gradient,
};

const wfi_op wfi_op_place_rows = {
    .name = "place_rows",
    .flags = WFI_OP_SLICES,
    .check = join_rows_check,
};
