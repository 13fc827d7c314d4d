/* Nodes between pairs are computed by rows: a norm, a dropout or a residual sum computes each
 * output row from the same input row. So each slice can compute some of the rows. */
#include "op/op_table.h"
#include "pass/pairs.h"

/* Rows of a sample; 0: it has none. */
static int64_t count_tokens(const wf_graph *g, int32_t v) {
    const wf_shape *shape = &g->values[v].shape;
    int64_t n_elem = wf_shape_n_elem(shape), n = shape->n_dims ? shape->dim[shape->n_dims - 1] : 0;
    if (shape->n_dims < 2 || shape->n_dims > 3 || n_elem == 0 || n_elem / n % g->batch) return 0;
    return n_elem / n / g->batch;
}

/* Tokens divide, so that it does not depend on the number of samples; and each part begins at a
 * cache line. */
static bool can_divide(const wf_graph *g, int32_t n_slices, int32_t v) {
    const wfi_value *value = wfi_value_at(g, v);
    int64_t n_tokens = count_tokens(g, v), n = value->shape.dim[value->shape.n_dims - 1];
    return n_tokens % n_slices == 0 &&
           (size_t)(n_tokens / n_slices * n) * wf_dtype_bytes(value->dtype) % WFI_ALIGN_BYTES == 0;
}

static bool is_vector(const wf_graph *g, int32_t v) {
    return g->values[v].kind == WFI_VALUE_PARAM && g->values[v].shape.n_dims == 1;
}

/* Whether the op computes rows of its first output from rows of the first input, from vectors of
 * parameters and from rows of others. Only cheap ops qualify: the others have a weight with a large
 * gradient. */
static bool computes_rows(const wf_graph *g, const wfi_node *node) {
    const wfi_op_cut *rule = node->op->place;
    if (!(node->op->flags & WFI_OP_CHEAP) || node->op->flags & WFI_OP_IMAGE) return false;
    if (count_tokens(g, node->in[0]) < 2) return false;
    if (node->op == &wfi_op_dropout) return true;
    while (rule && rule->name && rule->in[0] != 1 && rule->in[0] != WFI_ANY_DIM) rule++;
    if (!rule || !rule->name || (rule->applies && !rule->applies(g, node))) return false;
    for (int i = 1; i < node->n_in; i++) {
        bool has_rows =
            rule->in[i] == rule->in[0] &&
            wfi_shape_equal(&g->values[node->in[i]].shape, &g->values[node->in[0]].shape);
        if (!has_rows && !is_vector(g, node->in[i])) return false;
    }
    return true;
}

/* Whether the node is next to a pair or to row nodes: it reads their outputs, or computes inputs of
 * a pair. */
static bool is_between(const wf_graph *g, const wfi_pairs *pairs, int32_t n) {
    const wfi_node *node = &g->nodes[n];
    for (int i = 0; i < node->n_in; i++) {
        int32_t producer = g->values[node->in[i]].node;
        if (producer >= 0 && (pairs->is_row[producer] || pairs->end_of[producer] >= 0)) return true;
    }
    const wfi_readers *readers = &pairs->readers;
    for (int32_t k = readers->first[node->out[0]]; k < readers->first[node->out[0] + 1]; k++)
        if (pairs->end_of[readers->nodes[k]] >= 0) return true;
    return false;
}

static bool is_seen_outside(const wf_graph *g, const wfi_node *node) {
    bool is_seen = false;
    for (int i = 0; i < node->n_out; i++)
        is_seen |=
            g->values[node->out[i]].name || node->out[i] == g->loss || node->out[i] == g->record;
    return is_seen;
}

/* Whether node k is of the unit, is no dropout, and makes rows. */
static bool is_neighbor(const wf_graph *g, const wfi_pairs *pairs, int32_t k, int32_t unit) {
    return k >= 0 && pairs->is_row[k] && g->nodes[k].unit == unit &&
           g->nodes[k].op != &wfi_op_dropout;
}

/* Whether such a node computes the first input of node n, or reads its first output. */
static bool has_neighbor(const wf_graph *g, const wfi_pairs *pairs, int32_t n) {
    const wfi_node *node = &g->nodes[n];
    const wfi_readers *readers = &pairs->readers;
    bool has = is_neighbor(g, pairs, g->values[node->in[0]].node, node->unit);
    for (int32_t k = readers->first[node->out[0]]; k < readers->first[node->out[0] + 1]; k++)
        has |= is_neighbor(g, pairs, readers->nodes[k], node->unit);
    return has;
}

void wfi_pairs_find_rows(const wf_graph *g, wfi_pairs *pairs) {
    for (int32_t n = 0; n < g->n_nodes; n++) {
        const wfi_node *node = &g->nodes[n];
        pairs->is_row[n] = !node->dead && pairs->end_of[n] < 0 && node->n_in &&
                           computes_rows(g, node) && is_between(g, pairs, n) &&
                           !is_seen_outside(g, node);
    }
    /* Graphs that are not trained have no dropout, and the same units. */
    for (int32_t n = 0; n < g->n_nodes; n++)
        if (g->nodes[n].op == &wfi_op_dropout && !has_neighbor(g, pairs, n))
            pairs->is_row[n] = false;
    for (int32_t n = 0; n < g->n_nodes; n++)
        if (pairs->is_row[n] && !can_divide(g, pairs->n_slices, g->nodes[n].in[0])) {
            pairs->is_row[n] = false;
            pairs->has_uneven_rows = true;
        }
}
