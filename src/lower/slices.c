/* Values of slices are summed: each writes its summand into one of a few places, and those of a
 * rank are folded as soon as both sides are there, as lanes are; then the ranks that divide the
 * slices sum their partial sums. So the sum is over one tree under any placement of slices. Or each
 * has made some rows of a value, and ranks gather all; or, where the next reads rows, get only the
 * sums of these.
 *
 * For a weight that all slices have, each slice adds up the gradients of its own use along a lane;
 * when the lane is complete, they are summed in the same way.
 */
#include "lower/slices.h"
#include "base/tree.h"
#include "lower/move.h"

wf_status wfi_lower_fold(wfi_lowering *l, int32_t unit, wfi_name name, wfi_lane_fold fold) {
    wfi_name names[] = {wfi_in_accumulator(name, fold.into), wfi_in_accumulator(name, fold.from)};
    return wfi_emit_named(l, wfi_make(WFI_FOLD, unit, fold.from, name.micro), 2, names);
}

/* The placements of a value: as slices make it, and as its readers need it. */
static wfi_placement made_as(const wf_program *p, int32_t value) {
    return wfi_is_slice_sum(p->graph, value) ? WFI_PARTIAL : WFI_SHARD;
}
static wfi_placement read_as(const wf_program *p, int32_t value, int64_t micro) {
    bool is_split = wfi_program_code_of(p, micro)->place[value].is_split;
    return is_split && p->plan->divides_rows ? WFI_SHARD : WFI_REPLICATE;
}

/* Changes the placement of slices' values, all in one instruction. */
static wf_status change(wfi_lowering *l, const wfi_segment *segment, int64_t micro,
                        wfi_placement from, wfi_placement to) {
    const wf_program *p = l->p;
    int32_t first = segment->unit - p->graph->units[segment->unit].slice;
    for (int32_t s = 0; s < segment->n_slots; s++) {
        int32_t v = segment->slots[s].id;
        if (wfi_gives_part(p, segment, &segment->slots[s]) && made_as(p, v) == from &&
            read_as(p, v, micro) == to)
            WF_TRY(wfi_add_name(l, wfi_named(WFI_BLOCK_VALUE, v, micro)));
    }
    return wfi_move_among(l, wfi_slice_group(p, l->rank), from, to, first);
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
        for (int32_t f = sums->first_fold[k]; f < sums->first_fold[k + 1] && is_sum; f++)
            WF_TRY(wfi_lower_fold(l, segment->unit, wfi_named(slot->kind, slot->id, micro),
                                  sums->folds[f]));
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
    return wfi_lower_fold(l, unit, wfi_named(WFI_BLOCK_TIED, use, micro),
                          (wfi_lane_fold){.into = first, .from = first + left});
}

wf_status wfi_lower_slice_uses(wfi_lowering *l, int32_t unit, int64_t micro) {
    const wf_program *p = l->p;
    const wf_graph *g = p->graph;
    for (int32_t i = g->units[unit].first_gradient; i < g->units[unit].end_gradient; i++) {
        if (!wfi_is_slices_use(g, i) || !wfi_is_last_use(p, i)) continue;
        int32_t use = wfi_use_of(g, i);
        WF_TRY(fold_uses(l, unit, use, micro, 0, wfi_n_local_slices(p, unit)));
        WF_TRY(wfi_add_name(l, wfi_named(WFI_BLOCK_TIED, use, micro)));
    }
    if (!is_summed_by_ranks(p, unit)) l->n_names = 0;
    return l->n_names ? wfi_move_among(l, wfi_slice_group(p, l->rank), WFI_PARTIAL, WFI_REPLICATE,
                                       unit - g->units[unit].slice)
                      : WF_OK;
}
