/* Values that slices make: sums of one summand a slice, and values of which each makes some rows.
 */
#include "op/op_table.h"
#include "program/stage.h"

bool wfi_is_slice_sum(const wf_graph *g, int32_t value) {
    int32_t n = g->values[value].node;
    return n >= 0 && g->nodes[n].op == &wfi_op_sum_slices;
}

bool wfi_is_made_by_slices(const wf_graph *g, int32_t value) {
    int32_t n = g->values[value].node;
    return n >= 0 && (wfi_is_slice_sum(g, value) || g->nodes[n].op == &wfi_op_join_rows);
}

bool wfi_keeps_own_rows(const wf_program *p, wfi_name name) {
    return p->plan->divides_rows && name.kind == WFI_BLOCK_VALUE &&
           wfi_program_code_of(p, name.micro)->place[name.owner].is_split;
}
