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

wfi_extent wfi_value_extent(const wf_program *p, int32_t value, int64_t micro, int32_t rank) {
    const wfi_place *place = &wfi_program_code_of(p, micro)->place[value];
    if (!wfi_keeps_own_rows(p, wfi_named(WFI_BLOCK_VALUE, value, micro)))
        return (wfi_extent){0, place->bytes};
    size_t bytes = place->bytes / (size_t)p->mesh.tp;
    return (wfi_extent){(size_t)wfi_mesh_at(&p->mesh, WFI_TP, rank) * bytes, bytes};
}
