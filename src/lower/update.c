/* Updates: the optimizer changes the parameters of a unit, where the rank keeps its state, and the
 * new parameters go to every rank that keeps or reads them.
 */
#include "lower/update.h"
#include "lower/change.h"

/* Takes the stage in hand. Returns whether the rank updates something of it. */
static bool take_updated(wfi_lowering *l, int32_t stage) {
    return wfi_take_stage(l, stage) && wfi_stage_is_updated(l->p, stage, l->rank);
}

/* ---- tied weights ---- */

/* The rank of stage `from` that sends to `rank`, in replica `replica` of another stage: in the
 * replica of the same number if it updates the stage, else in the first. */
static int32_t source_of(const wf_program *p, int32_t from, int32_t replica, int32_t rank) {
    int32_t beside = wfi_program_rank_of(p, replica, from, rank);
    return wfi_stage_is_updated(p, from, beside) ? beside : wfi_program_rank_of(p, 0, from, rank);
}

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

/* The part of the unit's parameters that the rank keeps and a step changes. */
static wfi_extent updated_extent(const wfi_lowering *l, int32_t unit) {
    return wfi_trained_extent(l->p, unit, wfi_kept_extent(l->p, WFI_BLOCK_PARAM, unit, l->rank));
}

/* Sends the rank's part of the unit's new parameters to every rank that updates the stage and lacks
 * it. */
static wf_status emit_sends(wfi_lowering *l, int32_t from, int32_t to, wfi_instruction send) {
    const wf_program *p = l->p;
    wfi_name name = here(l, WFI_BLOCK_PARAM, send.unit);
    for (int32_t k = 0; k < p->stages[to].n_replicas; k++) {
        send.peer = wfi_program_rank_of(p, k, to, l->rank);
        bool wants =
            wfi_stage_is_updated(p, to, send.peer) && !wfi_stage_is_updated(p, from, send.peer);
        if (!wants || source_of(p, from, k, l->rank) != l->rank) continue;
        WF_TRY(wfi_emit_named(l, send, 1, &name));
    }
    return WF_OK;
}

/* Sends the owner's new parameters once to each other stage that reads some of them. */
static wf_status emit_tied_weights(wfi_lowering *l, int32_t owner) {
    wf_program *p = l->p;
    int32_t from = wfi_program_stage_of(p, owner);
    for (int32_t to = 0; to < p->n_stages && updated_extent(l, owner).bytes; to++) {
        if (to == from || !wfi_stage_reads_parameters(p, to, owner)) continue;
        bool is_here = take_updated(l, from);
        int32_t id = wfi_first_parameter(p->graph, owner);
        if (is_here) WF_TRY(emit_sends(l, from, to, wfi_make(WFI_SEND, owner, id, -1)));
        if (is_here || !take_updated(l, to)) continue;
        wfi_instruction receive = wfi_make(WFI_RECEIVE, owner, id, -1);
        receive.peer = source_of(p, from, l->replica, l->rank);
        int32_t number = p->n_instructions;
        wfi_name name = here(l, WFI_BLOCK_PARAM, owner);
        WF_TRY(wfi_emit_named(l, receive, 1, &name));
        WF_TRY(not_before(l, WFI_BLOCK_PARAM, number));
    }
    return WF_OK;
}

/* ---- updates ---- */

/* Fetches a part of the unit that is kept in another space for its update, or evicts it. */
static wf_status bring(wfi_lowering *l, wfi_block_kind kind, int32_t unit, bool fetches) {
    wfi_name there = wfi_kept(wfi_of_unit(kind, unit)), at = here(l, kind, unit);
    wfi_extent kept = wfi_moved_extent(l->p, there, l->rank);
    if (kind == WFI_BLOCK_PARAM)
        kept = fetches ? wfi_kept_extent(l->p, WFI_BLOCK_STATE, unit, l->rank)
                       : updated_extent(l, unit);
    int32_t i = l->p->n_instructions;
    if (!wfi_is_offloaded(l->p, kind) || !kept.bytes) return WF_OK;
    if (fetches && kind == WFI_BLOCK_PARAM && at.copy != WFI_COPY_PART && is_gathered(l, unit))
        return WF_OK; /* it is there */
    WF_TRY(wfi_lower_copy(l, fetches ? there : at, fetches ? at : there, kept));
    return fetches ? not_before(l, kind, i) : WF_OK;
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
static wf_status change_updated(wfi_lowering *l, int32_t u) {
    const wf_program *p = l->p;
    int32_t s = wfi_program_stage_of(p, u), i = p->n_instructions;
    if (!wfi_unit_is_on(p, u, l->rank) || !wfi_take_stage(l, s)) return WF_OK;
    WF_TRY(wfi_add_name(l, here(l, WFI_BLOCK_PARAM, u)));
    WF_TRY(wfi_lower_change(l, wfi_stage_shards(p, s, l->rank), p->stages[s].strategy->state,
                            p->stages[s].strategy->parameter, u));
    return not_before(l, WFI_BLOCK_PARAM, i);
}

static wf_status update(wfi_lowering *l, int32_t u) {
    if (updates(l, u)) {
        WF_TRY(emit_update(l, u));
        WF_TRY(bring(l, WFI_BLOCK_STATE, u, false));
    }
    WF_TRY(change_updated(l, u));
    WF_TRY(emit_tied_weights(l, u));
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
