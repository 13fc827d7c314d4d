/* Embedding: rows of a table.
 *
 * embedding(ids I32 [...], table [rows, n]) -> y [..., n]
 * embedding_backward(dy, ids) -> dtable, added in the order of the tokens */
#include "op/check.h"

#include <string.h>

static wf_status embedding_check(wf_graph *g, wfi_node *node) {
    WF_TRY(wfi_check_inputs(g, node, "if"));
    wf_shape y = wfi_in_shape(g, node, 0), table = wfi_in_shape(g, node, 1);
    if (table.n_dims != 2 || y.n_dims == WF_MAX_DIMS)
        return wfi_op_fail(g, node, WF_SHAPE, "ids %s from a table %s; a table is [rows, n]",
                           wfi_show(&y).text, wfi_show(&table).text);
    y.dim[y.n_dims++] = table.dim[1];
    return wfi_node_output(g, node, WF_F32, &y);
}

static wf_status embedding_gradient(wfi_autodiff *ad, const wfi_node *node) {
    wf_shape table = wfi_in_shape(wfi_graph_of(ad), node, 1);
    return wfi_pass(ad, node->in[1], &wfi_op_embedding_backward, NULL, &table, 2,
                    (int32_t[]){wfi_gradient_of(ad, node->out[0]), node->in[0]});
}

/* Ids are checked where data come in; one that is out of range here reads zeros. */
static void embedding_reference(const wfi_call *call) {
    const int32_t *ids = call->in[0].data;
    const float *table = call->in[1].data;
    float *y = call->out[0].data;
    int64_t n_ids = wf_shape_n_elem(&call->in[0].shape);
    int64_t n_rows = call->in[1].shape.dim[0], n = call->in[1].shape.dim[1];
    for (int64_t i = 0; i < n_ids; i++) {
        bool known = ids[i] >= 0 && ids[i] < n_rows;
        if (known) memcpy(y + i * n, table + ids[i] * n, (size_t)n * sizeof *y);
        else memset(y + i * n, 0, (size_t)n * sizeof *y);
    }
}

static double embedding_flops(const wf_graph *g, const wfi_node *node) {
    (void)g, (void)node;
    return 0;
}

const wfi_op wfi_op_embedding = {
    .name = "embedding",
    .check = embedding_check,
    .gradient = embedding_gradient,
    .flops = embedding_flops,
    .reference = embedding_reference,
};

static wf_status embedding_backward_check(wf_graph *g, wfi_node *node) {
    WF_TRY(wfi_check_inputs(g, node, "fi"));
    return wfi_node_output(g, node, WF_F32, &node->shape);
}

static void embedding_backward_reference(const wfi_call *call) {
    const float *dy = call->in[0].data;
    const int32_t *ids = call->in[1].data;
    float *dtable = call->out[0].data;
    int64_t n_ids = wf_shape_n_elem(&call->in[1].shape);
    int64_t n_rows = call->out[0].shape.dim[0], n = call->out[0].shape.dim[1];
    memset(dtable, 0, (size_t)(n_rows * n) * sizeof *dtable);
    for (int64_t i = 0; i < n_ids; i++)
        for (int64_t k = 0; k < n && ids[i] >= 0 && ids[i] < n_rows; k++)
            dtable[ids[i] * n + k] += dy[i * n + k];
}

static double embedding_backward_flops(const wf_graph *g, const wfi_node *node) {
    wf_shape dy = wfi_in_shape(g, node, 0);
    return (double)wf_shape_n_elem(&dy);
}

const wfi_op wfi_op_embedding_backward = {
    .name = "embedding_backward",
    .flags = WFI_OP_WEIGHT_GRADIENT,
    .tolerance = 1e-5f,
    .check = embedding_backward_check,
    .flops = embedding_backward_flops,
    .reference = embedding_backward_reference,
};

wf_tensor wf_embedding_with(wf_tensor ids, wf_tensor table) {
    return wfi_build(&wfi_op_embedding, NULL, NULL, 2, (wf_tensor[]){ids, table});
}
