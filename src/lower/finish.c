/* The end of a step, after its microbatches: gradients that are left are summed, measured and
 * applied, statistics are folded, and the loss is reported.
 */
#include "lower/finish.h"
#include "lower/move.h"
#include "lower/reduce.h"
#include "lower/update.h"

/* ---- norms ---- */

/* The ranks that share the norm with this one; itself, if it is alone. NULL: it updates nothing. */
static const wfi_group *find_norm_group(const wfi_lowering *l) {
    const wf_program *p = l->p;
    for (int32_t k = p->first_norm_group; k < p->first_slice_group; k++)
        if (wfi_group_find(&p->groups[k], l->rank) >= 0) return &p->groups[k];
    return NULL;
}

/* The total norm for clipping: the sum over all units' blocks of NORM, in order of units. */
static wf_status emit_total_norm(wfi_lowering *l) {
    const wf_graph *g = l->p->graph;
    WF_TRY(wfi_add_name(l, wfi_of_unit(WFI_BLOCK_TOTAL_NORM, 0)));
    for (int32_t u = 0; u < g->n_units; u++)
        WF_TRY(wfi_add_name(l, wfi_of_unit(WFI_BLOCK_NORM, u)));
    return wfi_emit_added(l, wfi_make(WFI_TOTAL_NORM, -1, 0, -1));
}

/* Each unit has a block of NORM; a rank receives the parts that it has not measured from the
 * others. */
static wf_status emit_norms(wfi_lowering *l) {
    wf_program *p = l->p;
    const wf_graph *g = p->graph;
    const wfi_group *group = find_norm_group(l);
    if (p->recipe.clip_norm <= 0 || !group) return WF_OK;
    for (int32_t u = 0; u < g->n_units; u++) {
        if (!g->units[u].trained_bytes) continue;
        WF_TRY(wfi_add_name(l, wfi_of_unit(WFI_BLOCK_NORM, u)));
        wfi_name names[] = {wfi_summed_name(p, u), wfi_of_unit(WFI_BLOCK_NORM, u)};
        if (wfi_measured_extent(p, group, u, l->rank).bytes)
            WF_TRY(wfi_emit_named(l, wfi_make(WFI_NORM, u, 0, -1), 2, names));
    }
    WF_TRY(wfi_move_among(l, (int32_t)(group - p->groups), WFI_SHARD, WFI_REPLICATE));
    return emit_total_norm(l);
}

/* ---- statistics ---- */

/* The microbatches' statistics of a unit, of all replicas, are folded in their order. */
static wf_status emit_statistics(wfi_lowering *l) {
    wf_program *p = l->p;
    int64_t n_micro = wfi_program_n_micro(p);
    for (int32_t u = 0; u < p->graph->n_units; u++) {
        int32_t s = wfi_program_stage_of(p, u);
        if (!p->code->units[u].bytes[WFI_BLOCK_STATS] || !wfi_take_stage(l, s)) continue;
        for (int64_t m = 0; m < n_micro; m++)
            WF_TRY(wfi_add_name(l, wfi_named(WFI_BLOCK_STATS, u, m)));
        WF_TRY(wfi_move_among(l, wfi_stage_members(p, s, l->rank), WFI_SHARD,
                              p->stages[s].strategy->buffer));
        if (!wfi_kept_extent(p, WFI_BLOCK_BUFFER, u, l->rank).bytes) continue;
        WF_TRY(wfi_add_name(l, wfi_of_unit(WFI_BLOCK_BUFFER, u)));
        for (int64_t m = 0; m < n_micro; m++)
            WF_TRY(wfi_add_name(l, wfi_named(WFI_BLOCK_STATS, u, m)));
        WF_TRY(wfi_emit_added(l, wfi_make(WFI_FOLD_STATS, u, 0, -1)));
    }
    return WF_OK;
}

/* ---- the end ---- */

/* All ranks along `tp` have the loss and report it, so that they are alike; the host takes the
 * first one's. */
wf_status wfi_lower_report(wfi_lowering *l) {
    wf_program *p = l->p;
    const wf_graph *g = p->graph;
    int32_t last = p->n_stages - 1;
    if (g->record < 0 || !wfi_take_stage(l, last)) return WF_OK;
    int64_t end = wfi_first_micro(p, last, l->replica + 1);
    for (int64_t m = wfi_first_micro(p, last, l->replica); m < end; m++)
        WF_TRY(wfi_add_name(l, wfi_named(WFI_BLOCK_RECORD, g->n_units - 1, m)));
    return wfi_emit_added(l, wfi_make(WFI_REPORT, -1, 0, -1));
}

wf_status wfi_lower_finish(wfi_lowering *l) {
    WF_TRY(wfi_lower_reductions(l));
    WF_TRY(wfi_lower_early_updates(l, l->n_finished));
    if (wfi_updates(l->p)) {
        WF_TRY(emit_norms(l));
        WF_TRY(wfi_lower_updates(l));
    }
    return emit_statistics(l);
}
