#include "graph/op.h"

int64_t wfi_size_of(const wf_shape *shape, int first, int end) {
    int64_t n = 1;
    for (int d = first; d < end; d++) n *= shape->dim[d];
    return n;
}

static wfi_operand operand_of(const wf_graph *g, int32_t v) {
    if (v < 0) return (wfi_operand){NULL};
    const wfi_value *value = &g->values[v];
    return (wfi_operand){NULL, value->dtype, value->shape, value->layout};
}

wfi_call wfi_call_of(const wf_graph *g, const wfi_node *node) {
    wfi_call call = {.attr = &node->attr, .n_in = node->n_in, .n_out = node->n_out};
    for (int i = 0; i < call.n_in; i++) call.in[i] = operand_of(g, node->in[i]);
    for (int i = 0; i < call.n_out; i++) call.out[i] = operand_of(g, node->out[i]);
    return call;
}
