/* Where a graph goes into slices, and comes out of them (pass/shard.c). Nothing runs: what all
 * slices read has one place, and what they give has one, in which it is summed.
 *
 * to_slices(x) -> left, right          x itself, for two halves of the slices
 * sum_slices(left, right) -> y         left + right, which is how slices' summands are added
 *
 * Both are binary, so nodes of them are the tree over which slices are summed. */
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

/* A summand has no other reader, so it can lie where the sum does. */
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
    .check = sum_slices_check,
    .backward = (const wfi_op_backward[]){{.in = {WFI_DY}}, {.in = {WFI_DY}, .to = 1}, {0}},
};
