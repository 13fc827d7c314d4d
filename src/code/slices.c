/* Values that slices make: sums of one summand a slice, and values of which each makes some rows.
 */
#include "code/code.h"
#include "op/op_table.h"

bool wfi_is_slice_sum(const wf_graph *g, int32_t value) {
    int32_t n = g->values[value].node;
    return n >= 0 && g->nodes[n].op == &wfi_op_sum_slices;
}

bool wfi_is_made_by_slices(const wf_graph *g, int32_t value) {
    int32_t n = g->values[value].node;
    return n >= 0 && (wfi_is_slice_sum(g, value) || g->nodes[n].op == &wfi_op_join_rows ||
                      g->nodes[n].op == &wfi_op_place_rows);
}
