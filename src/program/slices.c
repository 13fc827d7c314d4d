/* What slices give is summed: each writes its summand into one of a few places, and those of a
 * rank are folded as soon as both sides are there, as lanes are; then ranks that divide the slices
 * sum what they have. So the sum is over one tree, whoever has which slices.
 */
#include "op/op_table.h"
#include "program/lower.h"

bool wfi_is_slice_sum(const wf_graph *g, int32_t value) {
    int32_t n = g->values[value].node;
    return n >= 0 && g->nodes[n].op == &wfi_op_sum_slices;
}

static wf_status fold(wfi_lowering *l, int32_t unit, int32_t value, int64_t micro,
                      wfi_lane_fold fold) {
    wfi_extent all = wfi_whole(wfi_program_code_of(l->p, micro)->place[value].bytes);
    int32_t i;
    WF_TRY(wfi_emit(l, wfi_make(WFI_FOLD, unit, fold.from, micro), 2, &i));
    WF_TRY(
        wfi_refer(l, i, 0, WFI_BLOCK_VALUE, value, -fold.into, micro, all, WFI_READ | WFI_WRITE));
    return wfi_refer(l, i, 1, WFI_BLOCK_VALUE, value, -fold.from, micro, all, WFI_READ);
}

wf_status wfi_lower_slice(wfi_lowering *l, const wfi_segment *segment, int64_t micro) {
    const wf_program *p = l->p;
    const wfi_lane_sums *sums = &p->slice_sums;
    for (int32_t s = 0; s < segment->n_slots; s++) {
        const wfi_slot *slot = &segment->slots[s];
        if (!wfi_gives_summand(p, segment, slot)) continue;
        int32_t k = wfi_local_slice(p, segment->unit);
        for (int32_t f = sums->first_fold[k]; f < sums->first_fold[k + 1]; f++)
            WF_TRY(fold(l, segment->unit, slot->id, micro, sums->folds[f]));
        if (p->mesh.tp == 1 || k + 1 < p->graph->n_slices / p->mesh.tp) continue;
        WF_TRY(wfi_add_thing(l, WFI_BLOCK_VALUE, slot->id, 0, micro));
        WF_TRY(wfi_lower_change(l, wfi_slice_group(p, l->rank), WFI_PARTIAL, WFI_REPLICATE,
                                p->graph->values[slot->id].unit));
    }
    return WF_OK;
}
