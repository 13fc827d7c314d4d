/* Joins the units of rows (shard.c) under plans in which no rank divides rows. One instruction then
 * computes the rows of all slices, so there are fewer instructions to plan, to prove and to run.
 */
#include "pass/pass.h"

static int32_t joined(const wf_graph *g, int32_t unit) {
    return unit >= 0 && g->units[unit].is_rows ? unit - g->units[unit].slice : unit;
}

void wfi_graph_join_rows(wf_graph *g) {
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
}
