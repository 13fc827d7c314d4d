/* Updates: the optimizer changes the parameters of a unit, where the rank keeps its state, and the
 * new parameters go to every rank that keeps or reads them.
 */
#include "lower/update.h"
#include "lower/move.h"

/* Whether the last use read the unit's parameters, so that they are still gathered. */
static bool is_gathered(const wfi_lowering *l, int32_t unit) {
    return l->last_read[unit] >= 0 && l->last_read[unit] == l->n_uses - 1;
}

/* The copy of a PARAM or STATE during its update: where it is kept, or, if that is in another
 * space, a temporary block. */
static wfi_name here(const wfi_lowering *l, wfi_block_kind kind, int32_t unit) {
    const wf_program *p = l->p;
    const wfi_stage *stage = &p->stages[wfi_program_stage_of(p, unit)];
    bool is_slice = stage->strategy->parameter == WFI_SHARD && stage->n_parts > 1;
    wfi_name name = wfi_of_unit(kind, unit);
    if (!wfi_is_offloaded(p, kind)) return wfi_is_kept_apart(p, kind, unit) ? wfi_kept(name) : name;
    if (kind != WFI_BLOCK_PARAM) return wfi_in_turn(name, 1);
    if (!is_slice) return wfi_in_turn(name, l->n_gathered[unit] + !is_gathered(l, unit));
    name.copy = WFI_COPY_PART;
    return name;
}

/* A fetch for the update waits for the rank's last computation, so that it does not hold memory
 * earlier. */
static wf_status not_before(wfi_lowering *l, wfi_block_kind kind, int32_t instruction) {
    bool exists = instruction < l->p->n_instructions;
    return wfi_is_offloaded(l->p, kind) && exists ? wfi_depend_on(l, instruction, l->last_compute)
                                                  : WF_OK;
}

/* Sends the new parameters once to each rank that updates another stage that reads some of them, if
 * it lacks them: from the replica of the same number if that updates the unit's stage, else from
 * the first. */
static wf_status move_tied_weights(wfi_lowering *l, int32_t unit) {
    wf_program *p = l->p;
    int32_t own = wfi_program_stage_of(p, unit), end_reader = p->first_reader[unit + 1];
    wfi_extent kept = wfi_kept_extent(p, WFI_BLOCK_PARAM, unit, l->rank);
    wfi_name name = here(l, WFI_BLOCK_PARAM, unit);
    if (!wfi_trained_extent(p, unit, kept).bytes) return WF_OK;
    for (int32_t r = p->first_reader[unit]; r < end_reader; r++)
        for (int32_t k = 0; k < p->stages[p->readers[r]].n_replicas; k++) {
            int32_t to = wfi_program_rank_of(p, k, p->readers[r], l->rank), i = p->n_instructions;
            int32_t from = wfi_program_rank_of(p, k, own, l->rank);
            if (!wfi_stage_is_updated(p, own, from)) from = wfi_program_rank_of(p, 0, own, l->rank);
            if (wfi_stage_is_updated(p, own, to) || !wfi_stage_is_updated(p, p->readers[r], to))
                continue;
            WF_TRY(wfi_move_between(l, name, -1, from, to));
            if (to == l->rank) WF_TRY(not_before(l, WFI_BLOCK_PARAM, i));
        }
    return WF_OK;
}

/* ---- updates ---- */

/* Fetches a part of the unit that is kept in another space for its update, or evicts it. */
static wf_status bring(wfi_lowering *l, wfi_block_kind kind, int32_t unit, bool fetches) {
    wfi_name at = here(l, kind, unit);
    int32_t i = l->p->n_instructions;
    if (!wfi_is_offloaded(l->p, kind)) return WF_OK;
    if (fetches && kind == WFI_BLOCK_PARAM && at.copy != WFI_COPY_PART && is_gathered(l, unit))
        return WF_OK; /* it is there */
    int32_t stage = wfi_where_kept(l->p, kind, unit, l->rank).stage;
    if (!fetches) return wfi_move(l, at, stage, WFI_RENEWED, WFI_KEPT);
    WF_TRY(wfi_move(l, at, stage, WFI_KEPT, WFI_UPDATED));
    return not_before(l, kind, i);
}

static bool updates(const wfi_lowering *l, int32_t unit) {
    return wfi_kept_extent(l->p, WFI_BLOCK_STATE, unit, l->rank).bytes > 0;
}

static wf_status emit_update(wfi_lowering *l, int32_t u) {
    const wf_recipe *recipe = &l->p->recipe;
    WF_TRY(wfi_add_name(l, here(l, WFI_BLOCK_PARAM, u)));
    WF_TRY(wfi_add_name(l, wfi_summed_name(l->p, u)));
    if (wfi_recipe_n_states(recipe)) WF_TRY(wfi_add_name(l, here(l, WFI_BLOCK_STATE, u)));
    if (recipe->clip_norm > 0) WF_TRY(wfi_add_name(l, wfi_of_unit(WFI_BLOCK_TOTAL_NORM, 0)));
    return wfi_emit_added(l, wfi_make(WFI_UPDATE, u, 0, -1));
}

/* Moves new parameters from the ranks that updated them to the ranks that keep them. */
static wf_status renew(wfi_lowering *l, int32_t u) {
    int32_t i = l->p->n_instructions;
    WF_TRY(wfi_move(l, here(l, WFI_BLOCK_PARAM, u), wfi_program_stage_of(l->p, u), WFI_UPDATED,
                    WFI_RENEWED));
    return not_before(l, WFI_BLOCK_PARAM, i);
}

static wf_status update(wfi_lowering *l, int32_t u) {
    if (updates(l, u)) {
        WF_TRY(emit_update(l, u));
        WF_TRY(bring(l, WFI_BLOCK_STATE, u, false));
    }
    WF_TRY(renew(l, u));
    WF_TRY(move_tied_weights(l, u));
    return bring(l, WFI_BLOCK_PARAM, u, false);
}

/* An early update needs no norm of all gradients, and no other stage may read the parameters. */
bool wfi_is_updated_early(const wf_program *p, int32_t unit) {
    int32_t stage = wfi_program_stage_of(p, unit);
    if (!wfi_updates(p) || p->recipe.clip_norm > 0 || !wfi_is_offloaded(p, WFI_BLOCK_STATE))
        return false;
    for (int32_t s = 0; s < p->n_stages; s++)
        if (s != stage && wfi_stage_reads_parameters(p, s, unit)) return false;
    return true;
}

/* gather.c schedules their prefetches. The units may belong to another stage of the rank than the
 * current action, so the current stage is restored. */
wf_status wfi_lower_early_updates(wfi_lowering *l, int32_t end) {
    int32_t stage = l->stage;
    for (; l->n_updated < end; l->n_updated++) {
        int32_t u = l->finished[l->n_updated];
        if (!wfi_is_updated_early(l->p, u)) continue;
        if (updates(l, u)) WF_TRY(bring(l, WFI_BLOCK_PARAM, u, true));
        WF_TRY(update(l, u));
    }
    (void)wfi_take_stage(l, stage);
    return WF_OK;
}

/* Parts in other spaces are fetched during the updates of earlier units, `prefetch` units ahead,
 * and evicted afterwards. */
wf_status wfi_lower_updates(wfi_lowering *l) {
    const wf_program *p = l->p;
    int32_t ahead = p->plan->overlaps ? p->plan->prefetch : 0, next = 0, n_next = 0, n = 0;
    for (int32_t u = 0; u < p->graph->n_units; u++) {
        for (; n_next <= n + ahead && next < p->graph->n_units; next++) {
            if (!updates(l, next) || wfi_is_updated_early(p, next)) continue;
            WF_TRY(bring(l, WFI_BLOCK_STATE, next, true));
            WF_TRY(bring(l, WFI_BLOCK_PARAM, next, true));
            n_next++;
        }
        if (wfi_is_updated_early(p, u)) continue;
        n += updates(l, u);
        WF_TRY(update(l, u));
    }
    return WF_OK;
}
