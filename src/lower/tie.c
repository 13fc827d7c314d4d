/* The steps after a lane of a unit's gradient is complete. Where other units use a weight of the
 * unit, too (it is tied), each use has a sum of its own for each lane, which is added here: so ties
 * are made before replicas are summed, in one order under every plan. Then lanes are folded.
 */
#include "lower/tie.h"
#include "lower/move.h"
#include "lower/reduce.h"
#include "lower/slices.h"

static wfi_name sum_of(int32_t unit, int32_t accumulator) {
    return wfi_in_accumulator(wfi_of_unit(WFI_BLOCK_GRADIENT, unit), accumulator);
}

static wf_status emit_ties(wfi_lowering *l, int32_t unit, int32_t accumulator, int64_t micro) {
    const wf_graph *g = l->p->graph;
    for (int32_t k = g->units[unit].first_tied; k < g->units[unit].end_tied; k++) {
        int32_t i = g->tied[k];
        wfi_name names[] = {sum_of(unit, accumulator), wfi_named(WFI_BLOCK_TIED, i, micro)};
        WF_TRY(wfi_emit_named(l, wfi_make(WFI_TIE, unit, i, micro), 2, names));
    }
    return WF_OK;
}

static wf_status fold_from(wfi_lowering *l, int32_t unit, const wfi_lane_sums *sums, int32_t begin,
                           int32_t end) {
    for (int32_t k = begin; k < end; k++)
        WF_TRY(wfi_lower_fold(l, unit, wfi_of_unit(WFI_BLOCK_GRADIENT, unit), sums->folds[k]));
    return WF_OK;
}

/* A partial sum of a unit's gradient goes to or comes from another replica. */
static wf_status move_lane(wfi_lowering *l, int32_t unit, const wfi_lane_move *move, bool sends) {
    const wf_program *p = l->p;
    int64_t micro = move->lane * (p->recipe.n_micro / p->recipe.n_lanes);
    int32_t peer = wfi_program_rank_of(p, move->replica, wfi_program_stage_of(p, unit), l->rank);
    WF_TRY(wfi_move_between(l, sum_of(unit, move->accumulator), micro, sends ? l->rank : peer,
                            sends ? peer : l->rank));
    return sends ? WF_OK : wfi_depend_on_freed(l, p->n_instructions - 1);
}

/* With uneven shares: sends the partial sums of other homes, receives those of its own home, and
 * folds them. All replicas complete units in one order. */
static wf_status exchange(wfi_lowering *l, int32_t unit, const wfi_lane_sums *sums) {
    const wf_program *p = l->p;
    if (!sums->n_sends && !sums->n_receives) return WF_OK;
    for (int32_t k = 0; k < sums->n_sends; k++) WF_TRY(move_lane(l, unit, &sums->sends[k], true));
    for (int32_t k = 0; k < sums->n_receives; k++)
        WF_TRY(move_lane(l, unit, &sums->receives[k], false));
    int32_t replica = wfi_stage_replica_on(p, wfi_program_stage_of(p, unit), l->rank);
    const int64_t *first = p->stages[wfi_program_stage_of(p, unit)].shares.first;
    int64_t n_lanes = first[replica + 1] - first[replica];
    return fold_from(l, unit, sums, sums->first_fold[n_lanes], sums->n_folds);
}

static int32_t count_uses(const wf_graph *g, int32_t unit) {
    return 1 + g->units[unit].end_tied - g->units[unit].first_tied;
}

/* One more of the uses of the unit's weights is here. */
static wf_status add_use(wfi_lowering *l, int32_t unit, int64_t micro) {
    const wf_program *p = l->p;
    int32_t stage = wfi_program_stage_of(p, unit), lane = wfi_lane_of(p, stage, micro);
    int32_t replica = wfi_stage_replica_of(p, stage, micro);
    const wfi_lane_sums *sums = wfi_stage_sums(p, stage, replica);
    if (++l->n_added[unit * p->recipe.n_lanes + lane] < count_uses(p->graph, unit)) return WF_OK;
    WF_TRY(emit_ties(l, unit, sums->accumulator[lane], micro));
    WF_TRY(fold_from(l, unit, sums, sums->first_fold[lane], sums->first_fold[lane + 1]));
    if (micro + 1 < wfi_first_micro(p, stage, replica + 1)) return WF_OK;
    WF_TRY(exchange(l, unit, sums));
    return wfi_lower_finished(l, unit);
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
        bool is_here = wfi_stage_rank_of(p, owner, micro, l->rank) == l->rank;
        if (wfi_is_tied(g, i) && is_here && wfi_is_last_use(p, i))
            WF_TRY(wfi_lower_tied(l, wfi_use_of(g, i), micro));
    }
    return g->units[unit].trained_bytes ? add_use(l, unit, micro) : WF_OK;
}
