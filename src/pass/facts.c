/* Facts about a model that the recipe's defaults depend on. */
#include "op/op_table.h"
#include "pass/pairs.h"
#include "pass/pass.h"

static int64_t common_divisor(int64_t a, int64_t b) {
    while (b) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static void look_at(const wfi_node *node, wfi_model_facts *facts) {
    bool is_attention = node->op == &wfi_op_self_attention || node->op == &wfi_op_cached_attention;
    facts->has_batch_norm |= node->op == &wfi_op_batch_norm_inference;
    if (is_attention) facts->n_heads = common_divisor(node->attr.attention.n_heads, facts->n_heads);
}

/* Builds the inference graph to find the facts: it has the same layers, and may have caches. */
wf_status wfi_model_look(wf_context *ctx, wf_model_function model, const void *config,
                         int32_t most_slices, wfi_model_facts *facts_out) {
    wf_graph *g;
    WF_TRY(wfi_graph_declare(ctx, 1, false, model, config, &g));
    wfi_model_facts facts = {.n_slices = 1};
    for (int32_t n = 0; n < g->n_nodes; n++) look_at(&g->nodes[n], &facts);
    wf_status status = WF_OK;
    if (facts.n_heads) {
        while (most_slices > 1 && facts.n_heads % most_slices) most_slices /= 2;
        status = wfi_pairs_most(g, most_slices, &facts.n_slices);
    }
    wf_graph_destroy(g);
    if (status == WF_OK) *facts_out = facts;
    return status;
}

wf_status wfi_model_check_slices(wf_context *ctx, wf_model_function model, const void *config,
                                 int32_t n_slices) {
    wf_graph *g;
    WF_TRY(wfi_graph_declare(ctx, 1, false, model, config, &g));
    wf_status status = wfi_graph_shard(g, n_slices);
    wf_graph_destroy(g);
    return status;
}
