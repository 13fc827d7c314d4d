/* What follows a lane of a unit's gradient that is complete. Where other units use a weight of the
 * unit, too (it is tied), each use has a sum of its own for each lane, which is added here: so ties
 * are made before replicas are summed, in one order under every plan. Then lanes are folded.
 */
#include "program/lower.h"

static wf_status add(wfi_lowering *l, wfi_instruction now, wfi_block_kind kind, int32_t id,
                     int32_t depth, size_t bytes, int32_t into) {
    int32_t i;
    WF_TRY(wfi_emit(l, now, 2, &i));
    WF_TRY(wfi_refer(l, i, 0, WFI_BLOCK_GRADIENT, now.unit, into, -1,
                     wfi_whole(l->p->graph->units[now.unit].trained_bytes), WFI_READ | WFI_WRITE));
    return wfi_refer(l, i, 1, kind, id, depth, now.micro, wfi_whole(bytes), WFI_READ);
}

static wf_status emit_ties(wfi_lowering *l, int32_t unit, int32_t depth, int64_t micro) {
    const wf_graph *g = l->p->graph;
    for (int32_t k = g->units[unit].first_tied; k < g->units[unit].end_tied; k++) {
        int32_t i = g->tied[k];
        WF_TRY(add(l, wfi_make(WFI_TIE, unit, i, micro), WFI_BLOCK_TIED, i, 0,
                   wfi_tied_bytes(l->p, i), depth));
    }
    return WF_OK;
}

static wf_status emit_folds(wfi_lowering *l, int32_t unit, const wfi_lane_sums *sums,
                            int32_t lane) {
    size_t bytes = l->p->graph->units[unit].trained_bytes;
    for (int32_t k = sums->first_fold[lane]; k < sums->first_fold[lane + 1]; k++)
        WF_TRY(add(l, wfi_make(WFI_FOLD, unit, sums->folds[k].from, -1), WFI_BLOCK_GRADIENT, unit,
                   sums->folds[k].from, bytes, sums->folds[k].into));
    return WF_OK;
}

static int32_t count_uses(const wf_graph *g, int32_t unit) {
    return 1 + g->units[unit].end_tied - g->units[unit].first_tied;
}

/* One more of the uses of the unit's weights is here. */
static wf_status add_use(wfi_lowering *l, int32_t unit, int64_t micro) {
    const wf_program *p = l->p;
    int32_t stage = wfi_program_stage_of(p, unit), lane = wfi_lane_of(p, stage, micro);
    const wfi_lane_sums *sums = &p->stages[stage].sums;
    if (++l->n_added[unit * p->recipe.n_lanes + lane] < count_uses(p->graph, unit)) return WF_OK;
    WF_TRY(emit_ties(l, unit, sums->accumulator[lane], micro));
    WF_TRY(emit_folds(l, unit, sums, lane));
    bool is_last = (micro + 1) % wfi_stage_n_micro(p, stage) == 0;
    return is_last ? wfi_lower_finished(l, unit) : WF_OK;
}

wf_status wfi_lower_tied(wfi_lowering *l, int32_t i, int64_t micro) {
    return add_use(l, wfi_owner_of(l->p->graph, i), micro);
}

wf_status wfi_lower_lane(wfi_lowering *l, int32_t unit, int64_t micro) {
    const wf_program *p = l->p;
    const wf_graph *g = p->graph;
    WF_TRY(wfi_lower_slice_uses(l, unit, micro));
    for (int32_t i = g->units[unit].first_gradient; i < g->units[unit].end_gradient; i++) {
        int32_t owner = wfi_program_stage_of(p, wfi_owner_of(g, i));
        bool is_here = wfi_stage_rank_of(p, owner, micro, wfi_mesh_tp(p->mesh, l->rank)) == l->rank;
        bool is_complete = !wfi_is_slices_use(g, i) || wfi_is_last_slice(p, unit);
        if (wfi_is_tied(g, i) && is_here && is_complete)
            WF_TRY(wfi_lower_tied(l, wfi_use_of(g, i), micro));
    }
    return g->units[unit].trained_bytes ? add_use(l, unit, micro) : WF_OK;
}
