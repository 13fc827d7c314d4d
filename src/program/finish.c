/* The end of a step: gradients are reduced, measured and applied;
 * statistics are folded; the loss is reported. */
#include "program/lower.h"

/* Takes the stage in hand. Returns whether the rank updates something of it. */
static bool take_updated(wfi_lowering *l, int32_t stage) {
    return wfi_take_stage(l, stage) && wfi_stage_is_updated(l->p, stage, l->rank);
}

/* ---- tied weights ---- */

/* Which rank of stage `from` has for replica `replica` of another stage what all its replicas
 * have: the one beside it, or the first. */
static int32_t source_of(const wf_program *p, int32_t from, int32_t replica, int32_t tp) {
    int32_t beside = wfi_program_rank_of(p, replica, from, tp);
    return wfi_stage_is_updated(p, from, beside) ? beside : wfi_program_rank_of(p, 0, from, tp);
}

/* What of a unit's parameters is sent is called by the first of them. */
static int32_t first_parameter(const wf_graph *g, int32_t unit) {
    int32_t v = 0;
    while (g->values[v].kind != WFI_VALUE_PARAM || g->values[v].unit != unit) v++;
    return v;
}

/* Whether what is computing right now has read the unit's parameters. */
static bool is_gathered(const wfi_lowering *l, int32_t unit) {
    return l->last_read[unit] >= 0 && l->last_read[unit] == l->n_uses - 1;
}

/* In which of the unit's blocks a PARAM or STATE is while it is updated: where it is kept, or, if
 * that is in another space, in a block for a while. */
static int32_t here(const wfi_lowering *l, wfi_block_kind kind, int32_t unit) {
    const wf_program *p = l->p;
    const wfi_stage *stage = &p->stages[wfi_program_stage_of(p, unit)];
    if (wfi_kept_space(p, kind) == WFI_SPACE_DEVICE) return wfi_kept_depth(p, kind, unit);
    bool is_slice = stage->strategy->parameter == WFI_SHARD && stage->n_parts > 1;
    if (kind != WFI_BLOCK_PARAM) return WFI_GATHERED_DEPTH;
    if (is_slice) return WFI_SLICE_DEPTH;
    return WFI_GATHERED_DEPTH + l->n_gathered[unit] - is_gathered(l, unit);
}

/* What is elsewhere meanwhile comes for a while, not before the rank has computed what is before.
 */
static wf_status not_before(wfi_lowering *l, wfi_block_kind kind, int32_t instruction) {
    bool is_away = wfi_kept_space(l->p, kind) != WFI_SPACE_DEVICE;
    bool exists = instruction < l->p->n_instructions;
    return is_away && exists ? wfi_depend_on(l, instruction, l->last_compute) : WF_OK;
}

/* What the rank keeps of the unit's parameters, and is new after a step. */
static wfi_extent updated_extent(const wfi_lowering *l, int32_t unit) {
    return wfi_trained_extent(l->p, unit, wfi_kept_extent(l->p, WFI_BLOCK_PARAM, unit, l->rank));
}

/* What the rank keeps of the unit's new parameters, to every rank that updates the stage and lacks
 * them. */
static wf_status emit_sends(wfi_lowering *l, int32_t from, int32_t to, wfi_instruction send) {
    const wf_program *p = l->p;
    int32_t tp = wfi_mesh_tp(p->mesh, l->rank);
    for (int32_t k = 0; k < p->stages[to].n_replicas; k++) {
        send.peer = wfi_program_rank_of(p, k, to, tp);
        bool wants =
            wfi_stage_is_updated(p, to, send.peer) && !wfi_stage_is_updated(p, from, send.peer);
        if (!wants || source_of(p, from, k, tp) != l->rank) continue;
        WF_TRY(wfi_emit_one(l, send, WFI_BLOCK_PARAM, send.unit,
                            here(l, WFI_BLOCK_PARAM, send.unit), -1, updated_extent(l, send.unit),
                            WFI_READ));
    }
    return WF_OK;
}

/* The owner's new parameters go to the stages that read some of them too, once to each. */
static wf_status emit_tied_weights(wfi_lowering *l, int32_t owner) {
    wf_program *p = l->p;
    wfi_extent kept = updated_extent(l, owner);
    int32_t from = wfi_program_stage_of(p, owner);
    for (int32_t to = 0; to < p->n_stages && kept.bytes; to++) {
        if (to == from || !wfi_stage_reads_parameters(p, to, owner)) continue;
        bool is_here = take_updated(l, from);
        int32_t id = first_parameter(p->graph, owner);
        if (is_here) WF_TRY(emit_sends(l, from, to, wfi_make(WFI_SEND, owner, id, -1)));
        if (is_here || !take_updated(l, to)) continue;
        wfi_instruction receive = wfi_make(WFI_RECEIVE, owner, id, -1);
        receive.peer = source_of(p, from, l->replica, wfi_mesh_tp(p->mesh, l->rank));
        int32_t number = p->n_instructions;
        WF_TRY(wfi_emit_one(l, receive, WFI_BLOCK_PARAM, owner, here(l, WFI_BLOCK_PARAM, owner), -1,
                            kept, WFI_WRITE));
        WF_TRY(not_before(l, WFI_BLOCK_PARAM, number));
    }
    return WF_OK;
}

/* ---- norms and updates ---- */

/* The ranks that share the norm with this one; itself, if it is alone. NULL: it updates nothing. */
static const wfi_group *find_norm_group(const wfi_lowering *l) {
    const wf_program *p = l->p;
    for (int32_t k = p->first_norm_group; k < p->first_slice_group; k++)
        if (wfi_group_find(&p->groups[k], l->rank) >= 0) return &p->groups[k];
    return NULL;
}

/* What gradients are clipped by: the sum over all units' blocks of NORM, in order of units. */
static wf_status emit_total_norm(wfi_lowering *l) {
    const wf_graph *g = l->p->graph;
    int32_t i;
    WF_TRY(wfi_emit(l, wfi_make(WFI_TOTAL_NORM, -1, 0, -1), 1 + g->n_units, &i));
    WF_TRY(
        wfi_refer(l, i, 0, WFI_BLOCK_TOTAL_NORM, 0, 0, -1, wfi_whole(sizeof(double)), WFI_WRITE));
    for (int32_t u = 0; u < g->n_units; u++)
        WF_TRY(wfi_refer(l, i, 1 + u, WFI_BLOCK_NORM, u, 0, -1,
                         wfi_norm_extent(wfi_whole(g->units[u].trained_bytes)), WFI_READ));
    return WF_OK;
}

/* Each unit has a block of NORM; what a rank has not measured it gets from the others. */
static wf_status emit_norms(wfi_lowering *l) {
    wf_program *p = l->p;
    const wf_graph *g = p->graph;
    const wfi_group *group = find_norm_group(l);
    if (p->recipe.clip_norm <= 0 || !group) return WF_OK;
    for (int32_t u = 0; u < g->n_units; u++) {
        if (!g->units[u].trained_bytes) continue;
        WF_TRY(wfi_add_thing(l, WFI_BLOCK_NORM, u, 0, -1));
        wfi_extent own = wfi_measured_extent(p, group, u, l->rank);
        int32_t n;
        if (!own.bytes) continue;
        WF_TRY(wfi_emit(l, wfi_make(WFI_NORM, u, 0, -1), 2, &n));
        WF_TRY(
            wfi_refer(l, n, 0, WFI_BLOCK_GRADIENT, u, wfi_summed_depth(p, u), -1, own, WFI_READ));
        WF_TRY(wfi_refer(l, n, 1, WFI_BLOCK_NORM, u, 0, -1, wfi_norm_extent(own), WFI_WRITE));
    }
    WF_TRY(wfi_lower_change(l, (int32_t)(group - p->groups), WFI_SHARD, WFI_REPLICATE, -1));
    return emit_total_norm(l);
}

/* What of the unit is kept in another space comes to where it is updated, or goes back. */
static wf_status bring(wfi_lowering *l, wfi_block_kind kind, int32_t unit, bool fetches) {
    wfi_extent kept = wfi_moved_extent(l->p, kind, unit, 0, -1, l->rank);
    if (kind == WFI_BLOCK_PARAM)
        kept = fetches ? wfi_kept_extent(l->p, WFI_BLOCK_STATE, unit, l->rank)
                       : updated_extent(l, unit);
    int32_t at = here(l, kind, unit), from = fetches ? WFI_KEPT_DEPTH : at;
    int32_t i = l->p->n_instructions;
    if (wfi_kept_space(l->p, kind) == WFI_SPACE_DEVICE || !kept.bytes) return WF_OK;
    if (fetches && kind == WFI_BLOCK_PARAM && at != WFI_SLICE_DEPTH && is_gathered(l, unit))
        return WF_OK; /* it is there */
    WF_TRY(wfi_lower_copy(l, wfi_of_unit(kind, unit), from, WFI_KEPT_DEPTH + at - from, kept));
    return fetches ? not_before(l, kind, i) : WF_OK;
}

static bool updates(const wfi_lowering *l, int32_t unit) {
    return wfi_kept_extent(l->p, WFI_BLOCK_STATE, unit, l->rank).bytes > 0;
}

static wf_status emit_update(wfi_lowering *l, int32_t u) {
    wf_program *p = l->p;
    int n_states = wfi_recipe_n_states(&p->recipe);
    bool clips = p->recipe.clip_norm > 0;
    wfi_extent own = wfi_kept_extent(p, WFI_BLOCK_STATE, u, l->rank);
    int32_t i, k = 0;
    WF_TRY(wfi_emit(l, wfi_make(WFI_UPDATE, u, 0, -1), 2 + (n_states > 0) + clips, &i));
    WF_TRY(wfi_refer(l, i, k++, WFI_BLOCK_PARAM, u, here(l, WFI_BLOCK_PARAM, u), -1, own,
                     WFI_READ | WFI_WRITE));
    WF_TRY(wfi_refer(l, i, k++, WFI_BLOCK_GRADIENT, u, wfi_summed_depth(p, u), -1, own, WFI_READ));
    if (n_states)
        WF_TRY(wfi_refer(l, i, k++, WFI_BLOCK_STATE, u, here(l, WFI_BLOCK_STATE, u), -1,
                         wfi_whole(own.bytes * (size_t)n_states), WFI_READ | WFI_WRITE));
    if (clips)
        WF_TRY(wfi_refer(l, i, k++, WFI_BLOCK_TOTAL_NORM, 0, 0, -1, wfi_whole(sizeof(double)),
                         WFI_READ));
    return WF_OK;
}

/* New parameters go from who has made them to where they are kept. */
static wf_status change_updated(wfi_lowering *l, int32_t u) {
    const wf_program *p = l->p;
    int32_t s = wfi_program_stage_of(p, u), i = p->n_instructions;
    if (!wfi_unit_is_on(p, u, l->rank) || !wfi_take_stage(l, s)) return WF_OK;
    WF_TRY(wfi_add_thing(l, WFI_BLOCK_PARAM, u, here(l, WFI_BLOCK_PARAM, u), -1));
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

/* It needs no norm of all gradients, and no other stage waits for what is new of its parameters. */
bool wfi_is_updated_early(const wf_program *p, int32_t unit) {
    int32_t stage = wfi_program_stage_of(p, unit);
    if (p->recipe.clip_norm > 0 || wfi_kept_space(p, WFI_BLOCK_STATE) == WFI_SPACE_DEVICE)
        return false;
    for (int32_t s = 0; s < p->n_stages; s++)
        if (s != stage && wfi_stage_reads_parameters(p, s, unit)) return false;
    return true;
}

/* What is fetched ahead for them is found with the gathers. They may be of another stage of the
 * rank than the action that goes on after them, so that one is taken in hand again. */
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

/* What is kept elsewhere is fetched while earlier units are updated, so many ahead as the plan
 * says, and evicted after. */
static wf_status emit_updates(wfi_lowering *l) {
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

/* ---- statistics ---- */

/* The microbatches' statistics of a unit, of all replicas, are folded in their order. */
static wf_status emit_statistics(wfi_lowering *l) {
    wf_program *p = l->p;
    int64_t n_micro = wfi_program_n_micro(p);
    for (int32_t u = 0; u < p->graph->n_units; u++) {
        int32_t s = wfi_program_stage_of(p, u), i;
        size_t kept = wfi_kept_extent(p, WFI_BLOCK_BUFFER, u, l->rank).bytes;
        if (!p->code->units[u].stats_bytes || !wfi_take_stage(l, s)) continue;
        for (int64_t m = 0; m < n_micro; m++) WF_TRY(wfi_add_thing(l, WFI_BLOCK_STATS, u, 0, m));
        WF_TRY(wfi_lower_change(l, wfi_stage_members(p, s, l->rank), WFI_SHARD,
                                p->stages[s].strategy->buffer, u));
        if (!kept) continue;
        WF_TRY(wfi_emit(l, wfi_make(WFI_FOLD_STATS, u, 0, -1), (int32_t)n_micro + 1, &i));
        WF_TRY(
            wfi_refer(l, i, 0, WFI_BLOCK_BUFFER, u, 0, -1, wfi_whole(kept), WFI_READ | WFI_WRITE));
        for (int64_t m = 0; m < n_micro; m++)
            WF_TRY(wfi_refer(l, i, (int32_t)m + 1, WFI_BLOCK_STATS, u, 0, m,
                             wfi_whole(wfi_program_code_of(p, m)->units[u].stats_bytes), WFI_READ));
    }
    return WF_OK;
}

/* ---- the end ---- */

wf_status wfi_lower_report(wfi_lowering *l) {
    wf_program *p = l->p;
    const wf_graph *g = p->graph;
    int32_t last = p->n_stages - 1;
    bool reports = g->record >= 0 && !wfi_mesh_tp(p->mesh, l->rank);
    if (!reports || !wfi_take_stage(l, last)) return WF_OK;
    int64_t mine = wfi_stage_n_micro(p, last);
    int32_t i;
    WF_TRY(wfi_emit(l, wfi_make(WFI_REPORT, -1, 0, -1), (int32_t)mine, &i));
    for (int64_t k = 0; k < mine; k++)
        WF_TRY(wfi_refer(l, i, (int32_t)k, WFI_BLOCK_RECORD, g->n_units - 1, 0,
                         l->replica * mine + k, wfi_whole(p->code->place[g->record].bytes),
                         WFI_READ));
    return WF_OK;
}

wf_status wfi_lower_finish(wfi_lowering *l) {
    WF_TRY(wfi_lower_reductions(l));
    WF_TRY(wfi_lower_early_updates(l, l->n_finished));
    WF_TRY(emit_norms(l));
    WF_TRY(emit_updates(l));
    return emit_statistics(l);
}
