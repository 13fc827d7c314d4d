/* Sums on a rank, each over one fixed tree.
 *
 * Values of slices: each slice writes its summand into one of a few places, and those of a rank are
 * folded as soon as both sides are there. Then the ranks that divide the slices sum their partial
 * sums. So the sum is over one tree under any placement of slices. Or each slice has made some rows
 * of a value, and ranks gather all; or, where the next reads rows, get only the sums of these. For
 * a weight that all slices have, each slice adds up the gradients of its own use along a lane; when
 * the lane is complete, they are summed in the same way.
 *
 * Gradients: where other units use a weight of the unit, too (it is tied), each use has a sum of
 * its own for each lane, which is added when the lane is complete: so ties are made before replicas
 * are summed, in one order under every plan. Then lanes are folded.
 */
#include "lower/sums.h"
#include "base/tree.h"
#include "lower/move.h"
#include "lower/reduce.h"

/* Adds accumulator fold.from of a tensor to its accumulator fold.into, one fold after the other. */
static wf_status emit_folds(wfi_lowering *l, int32_t unit, wfi_name name,
                            const wfi_lane_fold *folds, int32_t begin, int32_t end) {
    for (int32_t k = begin; k < end; k++) {
        wfi_name names[] = {wfi_in_accumulator(name, folds[k].into),
                            wfi_in_accumulator(name, folds[k].from)};
        WF_TRY(wfi_emit_named(l, wfi_make(WFI_FOLD, unit, folds[k].from, name.micro), 2, names));
    }
    return WF_OK;
}

/* ---- slices ---- */

/* Changes the placement of slices' values, all in one instruction. */
static wf_status change(wfi_lowering *l, const wfi_segment *segment, int64_t micro,
                        wfi_placement from, wfi_placement to) {
    const wf_program *p = l->p;
    for (int32_t s = 0; s < segment->n_slots; s++) {
        wfi_name name = wfi_named(WFI_BLOCK_VALUE, segment->slots[s].id, micro);
        if (!wfi_gives_part(p, segment, &segment->slots[s])) continue;
        wfi_where made = wfi_where_is(p, name, WFI_MADE), used = wfi_where_is(p, name, WFI_USED);
        if (made.along[WFI_TP] == from && used.along[WFI_TP] == to) WF_TRY(wfi_add_name(l, name));
    }
    return wfi_move_added(l, WFI_MADE, WFI_USED);
}

static bool is_summed_by_ranks(const wf_program *p, int32_t unit) {
    return p->mesh.tp > 1 && wfi_unit_is_divided(p, unit);
}

wf_status wfi_lower_slice(wfi_lowering *l, const wfi_segment *segment, int64_t micro) {
    const wf_program *p = l->p;
    if (!p->graph->units[segment->unit].is_slice) return WF_OK;
    const wfi_lane_sums *sums = wfi_slice_sums(p, segment->unit);
    int32_t k = wfi_local_slice(p, segment->unit);
    for (int32_t s = 0; s < segment->n_slots; s++) {
        const wfi_slot *slot = &segment->slots[s];
        bool is_sum = wfi_gives_part(p, segment, slot) && wfi_is_slice_sum(p->graph, slot->id);
        if (is_sum)
            WF_TRY(emit_folds(l, segment->unit, wfi_named(slot->kind, slot->id, micro), sums->folds,
                              sums->first_fold[k], sums->first_fold[k + 1]));
    }
    bool is_last = k + 1 == wfi_n_local_slices(p, segment->unit);
    if (!is_last || !is_summed_by_ranks(p, segment->unit)) return WF_OK;
    WF_TRY(change(l, segment, micro, WFI_PARTIAL, WFI_SHARD));
    /* The next slices wait for the former. */
    WF_TRY(change(l, segment, micro, WFI_SHARD, WFI_REPLICATE));
    return change(l, segment, micro, WFI_PARTIAL, WFI_REPLICATE);
}

static wf_status fold_uses(wfi_lowering *l, int32_t unit, int32_t use, int64_t micro, int32_t first,
                           int32_t n) {
    int32_t left = n > 1 ? (int32_t)wfi_tree_split(n) : 0;
    if (n == 1) return WF_OK;
    WF_TRY(fold_uses(l, unit, use, micro, first, left));
    WF_TRY(fold_uses(l, unit, use, micro, first + left, n - left));
    wfi_lane_fold fold = {.into = first, .from = first + left};
    return emit_folds(l, unit, wfi_named(WFI_BLOCK_TIED, use, micro), &fold, 0, 1);
}

/* Whether all of the rank's slices have their gradients when weight gradient i is there. */
static bool is_last_use(const wf_program *p, int32_t i) {
    const wfi_weight_gradient *w = &p->graph->weight_gradients[i];
    return w->slice < 0 || wfi_local_use(p, i) + 1 == wfi_n_local_slices(p, w->unit);
}

/* Where the slices' sums are in one block: level by level. */
static wf_status fold_halves(wfi_lowering *l, int32_t unit, int64_t micro) {
    const wf_graph *g = l->p->graph;
    wfi_name sum = wfi_named(WFI_BLOCK_TIED, g->units[unit].first_gradient, micro);
    const wfi_name names[] = {sum, sum};
    for (int32_t n = g->n_slices / 2; n > 0; n /= 2)
        WF_TRY(wfi_emit_named(l, wfi_make(WFI_FOLD, unit, n, micro), 2, names));
    return WF_OK;
}

/* Sums the slices' uses of weights that all slices have, of a lane. */
static wf_status sum_uses(wfi_lowering *l, int32_t unit, int64_t micro) {
    const wf_program *p = l->p;
    const wf_graph *g = p->graph;
    if (wfi_has_one_sum(g, unit)) return fold_halves(l, unit, micro);
    for (int32_t i = g->units[unit].first_gradient; i < g->units[unit].end_gradient; i++) {
        if (!wfi_is_slices_use(g, i) || !is_last_use(p, i)) continue;
        int32_t use = wfi_use_of(g, i);
        WF_TRY(fold_uses(l, unit, use, micro, 0, wfi_n_local_slices(p, unit)));
        WF_TRY(wfi_add_name(l, wfi_named(WFI_BLOCK_TIED, use, micro)));
    }
    if (!is_summed_by_ranks(p, unit)) l->n_names = 0;
    return wfi_move_added(l, WFI_MADE, WFI_USED);
}

/* ---- lanes ---- */

static wfi_name sum_of(int32_t unit, int32_t accumulator) {
    return wfi_in_accumulator(wfi_of_unit(WFI_BLOCK_GRADIENT, unit), accumulator);
}

static wf_status emit_ties(wfi_lowering *l, int32_t unit, int32_t accumulator, int64_t micro) {
    const wf_graph *g = l->p->graph;
    for (int32_t k = g->units[unit].first_tied; k < g->units[unit].end_tied; k++) {
        int32_t i = g->tied[k];
        wfi_name names[] = {sum_of(unit, accumulator),
                            wfi_named(WFI_BLOCK_TIED, wfi_sum_home(g, i), micro)};
        WF_TRY(wfi_emit_named(l, wfi_make(WFI_TIE, unit, i, micro), 2, names));
    }
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

static int32_t count_uses(const wf_graph *g, int32_t unit) {
    return 1 + g->units[unit].end_tied - g->units[unit].first_tied;
}

/* One more of the uses of the unit's weights is here. With uneven shares, the replica then sends
 * the partial sums of other homes, receives those of its own home, and folds them. All replicas
 * complete units in one order. */
static wf_status add_use(wfi_lowering *l, int32_t unit, int64_t micro) {
    const wf_program *p = l->p;
    int32_t stage = wfi_program_stage_of(p, unit), lane = wfi_lane_of(p, stage, micro);
    int32_t replica = wfi_stage_replica_of(p, stage, micro);
    const wfi_lane_sums *sums = wfi_stage_sums(p, stage, replica);
    const int32_t *folds = &sums->first_fold[lane];
    wfi_name sum = sum_of(unit, 0);
    if (++l->n_added[unit * p->recipe.n_lanes + lane] < count_uses(p->graph, unit)) return WF_OK;
    WF_TRY(emit_ties(l, unit, sums->accumulator[lane], micro));
    WF_TRY(emit_folds(l, unit, sum, sums->folds, folds[0], folds[1]));
    if (micro + 1 < wfi_first_micro(p, stage, replica + 1)) return WF_OK;
    for (int32_t k = 0; k < sums->n_sends; k++) WF_TRY(move_lane(l, unit, &sums->sends[k], true));
    for (int32_t k = 0; k < sums->n_receives; k++)
        WF_TRY(move_lane(l, unit, &sums->receives[k], false));
    WF_TRY(emit_folds(l, unit, sum, sums->folds, folds[1], sums->n_folds));
    return wfi_lower_finished(l, unit);
}

wf_status wfi_lower_tied(wfi_lowering *l, int32_t i, int64_t micro) {
    return add_use(l, wfi_owner_of(l->p->graph, i), micro);
}

wf_status wfi_lower_lane(wfi_lowering *l, int32_t unit, int64_t micro) {
    const wf_program *p = l->p;
    const wf_graph *g = p->graph;
    WF_TRY(sum_uses(l, unit, micro));
    for (int32_t i = g->units[unit].first_gradient; i < g->units[unit].end_gradient; i++) {
        int32_t owner = wfi_program_stage_of(p, wfi_owner_of(g, i));
        bool is_here = wfi_stage_rank_of(p, owner, micro, l->rank) == l->rank;
        if (wfi_is_tied(g, i) && is_here && is_last_use(p, i))
            WF_TRY(wfi_lower_tied(l, wfi_use_of(g, i), micro));
    }
    return g->units[unit].trained_bytes ? add_use(l, unit, micro) : WF_OK;
}
