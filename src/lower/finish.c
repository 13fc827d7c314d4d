/* The end of a step, after its microbatches: gradients that are left are summed, measured and
 * applied, statistics are folded, and the loss is reported.
 */
#include "lower/finish.h"
#include "lower/change.h"
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
    int32_t i;
    WF_TRY(wfi_emit(l, wfi_make(WFI_TOTAL_NORM, -1, 0, -1), 1 + g->n_units, &i));
    WF_TRY(wfi_refer(l, i, 0, wfi_of_unit(WFI_BLOCK_TOTAL_NORM, 0), wfi_whole(sizeof(double)),
                     WFI_WRITE));
    for (int32_t u = 0; u < g->n_units; u++)
        WF_TRY(wfi_refer(l, i, 1 + u, wfi_of_unit(WFI_BLOCK_NORM, u),
                         wfi_norm_extent(wfi_whole(g->units[u].trained_bytes)), WFI_READ));
    return WF_OK;
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
        WF_TRY(wfi_add_moved(l, wfi_of_unit(WFI_BLOCK_NORM, u)));
        wfi_extent own = wfi_measured_extent(p, group, u, l->rank);
        int32_t n;
        if (!own.bytes) continue;
        WF_TRY(wfi_emit(l, wfi_make(WFI_NORM, u, 0, -1), 2, &n));
        WF_TRY(wfi_refer(l, n, 0, wfi_summed_name(p, u), own, WFI_READ));
        WF_TRY(wfi_refer(l, n, 1, wfi_of_unit(WFI_BLOCK_NORM, u), wfi_norm_extent(own), WFI_WRITE));
    }
    WF_TRY(wfi_lower_change(l, (int32_t)(group - p->groups), WFI_SHARD, WFI_REPLICATE, -1));
    return emit_total_norm(l);
}

/* ---- statistics ---- */

/* The microbatches' statistics of a unit, of all replicas, are folded in their order. */
static wf_status emit_statistics(wfi_lowering *l) {
    wf_program *p = l->p;
    int64_t n_micro = wfi_program_n_micro(p);
    for (int32_t u = 0; u < p->graph->n_units; u++) {
        int32_t s = wfi_program_stage_of(p, u), i;
        size_t kept = wfi_kept_extent(p, WFI_BLOCK_BUFFER, u, l->rank).bytes;
        if (!p->code->units[u].stats_bytes || !wfi_take_stage(l, s)) continue;
        for (int64_t m = 0; m < n_micro; m++)
            WF_TRY(wfi_add_moved(l, wfi_named(WFI_BLOCK_STATS, u, m)));
        WF_TRY(wfi_lower_change(l, wfi_stage_members(p, s, l->rank), WFI_SHARD,
                                p->stages[s].strategy->buffer, u));
        if (!kept) continue;
        WF_TRY(wfi_emit(l, wfi_make(WFI_FOLD_STATS, u, 0, -1), (int32_t)n_micro + 1, &i));
        WF_TRY(wfi_refer(l, i, 0, wfi_of_unit(WFI_BLOCK_BUFFER, u), wfi_whole(kept),
                         WFI_READ | WFI_WRITE));
        for (int64_t m = 0; m < n_micro; m++)
            WF_TRY(wfi_refer(l, i, (int32_t)m + 1, wfi_named(WFI_BLOCK_STATS, u, m),
                             wfi_whole(wfi_program_code_of(p, m)->units[u].stats_bytes), WFI_READ));
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
    int64_t mine = wfi_replica_n_micro(p, last, l->replica),
            first = wfi_first_micro(p, last, l->replica);
    int32_t i;
    WF_TRY(wfi_emit(l, wfi_make(WFI_REPORT, -1, 0, -1), (int32_t)mine, &i));
    for (int64_t k = 0; k < mine; k++)
        WF_TRY(wfi_refer(l, i, (int32_t)k, wfi_named(WFI_BLOCK_RECORD, g->n_units - 1, first + k),
                         wfi_whole(p->code->place[g->record].bytes), WFI_READ));
    return WF_OK;
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
