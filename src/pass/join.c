/* Joins the units of rows (shard.c) under plans in which no rank divides rows. One instruction then
 * computes the rows of all slices, and a value that other units read is one block, so there is less
 * to plan, to prove, to send and to run.
 */
#include "base/tree.h"
#include "op/op_table.h"
#include "pass/pass.h"
#include "pass/rewrite.h"

typedef struct joining {
    const wfi_node *nodes;  /* before */
    int32_t *first, *order; /* order[first[u]], ... are the nodes of unit u that compute */
    int32_t *number;        /* [n_nodes] which of those it is */
    bool *leaves;           /* [n_values] other units read it */
    int32_t *rows;          /* [n_slices] */
} joining;

static int32_t joined(const wf_graph *g, int32_t unit) {
    return unit >= 0 && g->units[unit].is_rows ? unit - g->units[unit].slice : unit;
}

static bool computes(const wfi_node *node) {
    return !node->dead && !(node->op->flags & WFI_OP_SLICES);
}

static void list_nodes(const wf_graph *g, joining *j) {
    for (int32_t n = 0; n < g->n_nodes; n++)
        if (computes(&g->nodes[n])) j->number[n] = j->first[g->nodes[n].unit + 1]++;
    for (int32_t u = 0; u < g->n_units; u++) j->first[u + 1] += j->first[u];
    for (int32_t n = 0; n < g->n_nodes; n++)
        if (computes(&g->nodes[n])) j->order[j->first[g->nodes[n].unit] + j->number[n]] = n;
}

static void find_leaving(const wf_graph *g, joining *j) {
    for (int32_t n = 0; n < g->n_nodes; n++)
        for (int i = 0; i < g->nodes[n].n_in && !g->nodes[n].dead; i++) {
            int32_t v = g->nodes[n].in[i];
            if (v >= 0 && joined(g, g->values[v].unit) != joined(g, g->nodes[n].unit))
                j->leaves[v] = true;
        }
}

/* Finds output i of the nodes that do for the other slices as node n does for its own. Whether all
 * of these can lie side by side, and n is the last of the nodes. */
static bool find_rows(const wf_graph *g, joining *j, int32_t n, int i) {
    const wfi_node *node = &j->nodes[n];
    int32_t first = joined(g, node->unit), number = j->number[n];
    const wfi_value *own = &g->values[node->out[i]];
    size_t bytes = wfi_value_bytes(g, node->out[i]);
    /* In BF16, each has half as many bytes. */
    bool can = j->leaves[node->out[i]] && own->shape.n_dims == 2 && !own->opaque &&
               bytes % (2 * WFI_ALIGN_BYTES) == 0;
    for (int32_t s = 0; s < g->n_slices && can; s++) {
        int32_t other = j->first[first + s] + number;
        if (other >= j->first[first + s + 1]) return false;
        const wfi_node *like = &j->nodes[j->order[other]];
        int32_t v = like->out[i];
        can = j->order[other] <= n && like->op == node->op && like->phase == node->phase &&
              v >= 0 && g->values[v].alias < 0 && wfi_value_bytes(g, v) == bytes &&
              g->values[v].dtype == own->dtype;
        j->rows[s] = v;
    }
    return can;
}

/* Returns the value that has the rows of n slices. */
static int32_t place(wf_graph *g, const int32_t *rows, int32_t n, const wfi_node *near) {
    if (n == 1) return *rows;
    int32_t left = (int32_t)wfi_tree_split(n);
    int32_t halves[] = {place(g, rows, left, near), place(g, rows + left, n - left, near)};
    if (g->status != WF_OK) return -1;
    const wf_shape *a = &g->values[halves[0]].shape, *b = &g->values[halves[1]].shape;
    wf_shape shape = WF_SHAPE(a->dim[0] + b->dim[0], a->dim[1]);
    wf_tensor in[] = {wfi_tensor(g, halves[0]), wfi_tensor(g, halves[1])};
    wfi_node *node = (wfi_node *)wfi_graph_add(g, &wfi_op_place_rows, NULL, &shape, 2, in);
    if (!node) return -1;
    node->phase = near->phase;
    g->values[node->out[0]].unit = near->unit;
    return node->out[0];
}

static void place_outputs(wf_graph *g, const wfi_node *node, void *how) {
    joining *j = how;
    wfi_rewrite_keep(g, node);
    if (!computes(node) || !g->units[node->unit].is_rows) return;
    for (int i = 0; i < node->n_out && g->status == WF_OK; i++)
        if (node->out[i] >= 0 && find_rows(g, j, (int32_t)(node - j->nodes), i))
            (void)place(g, j->rows, g->n_slices, node);
}

static wf_status place_rows(wf_graph *g) {
    wfi_pool pool = {.ctx = g->ctx};
    size_t n_nodes = (size_t)g->n_nodes, n_units = (size_t)g->n_units;
    const char *what = "rows of slices";
    joining j = {.nodes = g->nodes};
    j.first = wfi_pool_array(&pool, n_units + 1, sizeof *j.first, what);
    j.order = wfi_pool_array(&pool, n_nodes, sizeof *j.order, what);
    j.number = wfi_pool_array(&pool, n_nodes, sizeof *j.number, what);
    j.leaves = wfi_pool_array(&pool, (size_t)g->n_values, sizeof *j.leaves, what);
    j.rows = wfi_pool_array(&pool, (size_t)g->n_slices, sizeof *j.rows, what);
    wf_status status = pool.failed ? WF_NO_MEMORY : WF_OK;
    if (status == WF_OK) {
        list_nodes(g, &j);
        find_leaving(g, &j);
        status = wfi_rewrite(g, place_outputs, &j);
    }
    wfi_pool_release(&pool);
    return status;
}

wf_status wfi_graph_join_rows(wf_graph *g) {
    if (g->n_slices > 1) WF_TRY(place_rows(g));
    for (int32_t n = 0; n < g->n_nodes; n++) g->nodes[n].unit = joined(g, g->nodes[n].unit);
    for (int32_t v = 0; v < g->n_values; v++) g->values[v].unit = joined(g, g->values[v].unit);
    for (int32_t i = 0; i < g->n_weight_gradients; i++)
        g->weight_gradients[i].unit = joined(g, g->weight_gradients[i].unit);
    for (int32_t u = g->n_units - 1; u >= 0; u--) {
        wfi_unit *unit = &g->units[u], *first = &g->units[joined(g, u)];
        if (!unit->is_rows) continue;
        if (unit->end_gradient > first->end_gradient) first->end_gradient = unit->end_gradient;
        if (unit != first) unit->first_gradient = unit->end_gradient;
        unit->is_slice = false;
    }
    return WF_OK;
}
