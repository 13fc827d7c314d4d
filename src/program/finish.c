/* The end of a step: gradients are reduced, tied, measured and applied;
 * statistics are folded; the loss is reported. */
#include "program/lower.h"

static bool is_tied_owner(const wf_graph *g, const wfi_weight_gradient *w, int32_t unit) {
    return g->values[w->param].unit == unit && w->unit != unit;
}

/* Takes the stage in hand. Returns whether the rank holds its state and sums. */
static bool take_held(wfi_lowering *l, int32_t stage) {
    return wfi_take_stage(l, stage) && wfi_stage_is_held(l->p, stage, l->rank);
}

/* Which rank of stage `from` has for replica `replica` of another stage what all its replicas
 * have: the one beside it, or the first. */
static int32_t source_of(const wf_program *p, int32_t from, int32_t replica) {
    int32_t beside = wfi_program_rank_of(p, replica, from);
    return wfi_stage_is_held(p, from, beside) ? beside : wfi_program_rank_of(p, 0, from);
}

/* From stage `from` to every rank that holds stage `to` and lacks it. */
static wf_status emit_sends(wfi_lowering *l, int32_t from, int32_t to, wfi_instruction send,
                            wfi_block_kind kind, size_t bytes) {
    const wf_program *p = l->p;
    for (int32_t k = 0; k < p->stages[to].n_replicas; k++) {
        send.peer = wfi_program_rank_of(p, k, to);
        bool wants = wfi_stage_is_held(p, to, send.peer) && !wfi_stage_is_held(p, from, send.peer);
        if (!wants || source_of(p, from, k) != l->rank) continue;
        WF_TRY(wfi_emit_one(l, send, kind, send.unit, 0, -1, bytes, WFI_READ));
    }
    return WF_OK;
}

/* A tied weight's other uses come to its owner, in ascending order of units. */
static wf_status emit_ties(wfi_lowering *l) {
    wf_program *p = l->p;
    const wf_graph *g = p->graph;
    for (int32_t i = 0; i < g->n_weight_gradients; i++) {
        const wfi_weight_gradient *w = &g->weight_gradients[i];
        int32_t owner = g->values[w->param].unit;
        if (owner == w->unit) continue;
        int32_t from = wfi_program_stage_of(p, w->unit), to = wfi_program_stage_of(p, owner);
        size_t bytes = p->code->units[w->unit].gradient_bytes;
        int32_t n;
        bool is_here = take_held(l, from);
        if (is_here)
            WF_TRY(emit_sends(l, from, to,
                              wfi_make(WFI_SEND, WFI_STREAM_SEND, w->unit, w->value, -1),
                              WFI_BLOCK_GRADIENT, bytes));
        if (!take_held(l, to)) continue;
        if (!is_here) {
            wfi_instruction receive =
                wfi_make(WFI_RECEIVE, WFI_STREAM_RECEIVE, w->unit, w->value, -1);
            receive.peer = source_of(p, from, l->replica);
            WF_TRY(wfi_emit(l, receive, 1, &n));
            WF_TRY(wfi_refer(l, n, 0, WFI_BLOCK_GRADIENT, w->unit, 0, -1, bytes, WFI_WRITE));
            WF_TRY(wfi_depend_on_lookahead(l, n));
        }
        WF_TRY(wfi_emit(l, wfi_make(WFI_TIE, WFI_STREAM_COMPUTE, owner, i, -1), 2, &n));
        WF_TRY(wfi_refer(l, n, 0, WFI_BLOCK_GRADIENT, owner, 0, -1,
                         p->code->units[owner].gradient_bytes, WFI_READ | WFI_WRITE));
        WF_TRY(wfi_refer(l, n, 1, WFI_BLOCK_GRADIENT, w->unit, 0, -1, bytes, WFI_READ));
    }
    return WF_OK;
}

/* Each unit writes its own sums of squares: a block of NORM a unit; clipping reads
 * all of them in order of units. */
static bool has_unit(wfi_lowering *l, int32_t unit) {
    return take_held(l, wfi_program_stage_of(l->p, unit));
}

/* The ranks that share the norm with this one; NULL: it is alone, or needs none. */
static const wfi_group *find_norm_group(const wfi_lowering *l) {
    const wf_program *p = l->p;
    for (int32_t k = p->n_stages; k < p->n_groups; k++)
        if (wfi_group_find(&p->groups[k], l->rank) >= 0)
            return p->groups[k].n > 1 ? &p->groups[k] : NULL;
    return NULL;
}

static bool measures_unit(wfi_lowering *l, const wfi_group *group, int32_t unit) {
    return group ? wfi_group_measures(l->p, group, l->rank, unit) : has_unit(l, unit);
}

static wf_status emit_norms(wfi_lowering *l) {
    wf_program *p = l->p;
    const wf_graph *g = p->graph;
    const wfi_group *group = find_norm_group(l);
    if (p->recipe.clip_norm <= 0) return WF_OK;
    int32_t n;
    for (int32_t u = 0; u < g->n_units; u++) {
        if (!g->units[u].param_bytes || !measures_unit(l, group, u)) continue;
        WF_TRY(wfi_emit(l, wfi_make(WFI_NORM, WFI_STREAM_COMPUTE, u, 0, -1), 2, &n));
        WF_TRY(wfi_refer(l, n, 0, WFI_BLOCK_GRADIENT, u, 0, -1, g->units[u].param_bytes, WFI_READ));
        WF_TRY(wfi_refer(l, n, 1, WFI_BLOCK_NORM, u, 0, -1, wfi_norm_bytes(g, u), WFI_WRITE));
    }
    if (!group) return WF_OK;
    WF_TRY(wfi_emit(l, wfi_make(WFI_GATHER_NORM, WFI_STREAM_REDUCE, -1, 0, -1), g->n_units, &n));
    wfi_join(l, n, (int32_t)(group - p->groups));
    for (int32_t u = 0; u < g->n_units; u++)
        WF_TRY(wfi_refer(l, n, u, WFI_BLOCK_NORM, u, 0, -1, wfi_norm_bytes(g, u),
                         measures_unit(l, group, u) ? WFI_READ : WFI_WRITE));
    return WF_OK;
}

static wf_status emit_updates(wfi_lowering *l) {
    wf_program *p = l->p;
    const wf_graph *g = p->graph;
    int n_states = wfi_recipe_n_states(&p->recipe);
    bool clips = p->recipe.clip_norm > 0;
    for (int32_t u = 0; u < g->n_units; u++) {
        size_t bytes = g->units[u].param_bytes;
        if (!bytes || !has_unit(l, u)) continue;
        int32_t i, k = 0;
        WF_TRY(wfi_emit(l, wfi_make(WFI_UPDATE, WFI_STREAM_COMPUTE, u, 0, -1),
                        2 + (n_states > 0) + (clips ? g->n_units : 0), &i));
        WF_TRY(wfi_refer(l, i, k++, WFI_BLOCK_PARAM, u, 0, -1, bytes, WFI_READ | WFI_WRITE));
        WF_TRY(wfi_refer(l, i, k++, WFI_BLOCK_GRADIENT, u, 0, -1, bytes, WFI_READ));
        if (n_states)
            WF_TRY(wfi_refer(l, i, k++, WFI_BLOCK_STATE, u, 0, -1, bytes * (size_t)n_states,
                             WFI_READ | WFI_WRITE));
        for (int32_t v = 0; clips && v < g->n_units; v++)
            WF_TRY(wfi_refer(l, i, k++, WFI_BLOCK_NORM, v, 0, -1, wfi_norm_bytes(g, v), WFI_READ));
    }
    return WF_OK;
}

/* The owner's new weights go to the stages that use them too. */
static wf_status emit_tied_weights(wfi_lowering *l) {
    wf_program *p = l->p;
    const wf_graph *g = p->graph;
    for (int32_t i = 0; i < g->n_weight_gradients; i++) {
        const wfi_weight_gradient *w = &g->weight_gradients[i];
        int32_t owner = g->values[w->param].unit;
        if (!is_tied_owner(g, w, owner)) continue;
        int32_t from = wfi_program_stage_of(p, owner), to = wfi_program_stage_of(p, w->unit);
        size_t bytes = g->units[owner].param_bytes;
        bool is_here = take_held(l, from);
        if (is_here)
            WF_TRY(emit_sends(l, from, to, wfi_make(WFI_SEND, WFI_STREAM_SEND, owner, w->param, -1),
                              WFI_BLOCK_PARAM, bytes));
        if (is_here || !take_held(l, to)) continue;
        wfi_instruction receive = wfi_make(WFI_RECEIVE, WFI_STREAM_RECEIVE, owner, w->param, -1);
        receive.peer = source_of(p, from, l->replica);
        WF_TRY(wfi_emit_one(l, receive, WFI_BLOCK_PARAM, owner, 0, -1, bytes, WFI_WRITE));
    }
    return WF_OK;
}

/* The other replicas' statistics of the unit. */
static wf_status gather_statistics(wfi_lowering *l, int32_t unit) {
    wf_program *p = l->p;
    int64_t n_micro = wfi_program_n_micro(p);
    int32_t i;
    if (p->stages[l->stage].n_replicas == 1) return WF_OK;
    if (p->stages[l->stage].strategy->state == WFI_ROOT)
        return wfi_lower_statistics_to_root(l, unit);
    WF_TRY(wfi_emit(l, wfi_make(WFI_GATHER_STATS, WFI_STREAM_REDUCE, unit, 0, -1), (int32_t)n_micro,
                    &i));
    wfi_join(l, i, l->stage);
    for (int64_t m = 0; m < n_micro; m++)
        WF_TRY(
            wfi_refer(l, i, (int32_t)m, WFI_BLOCK_STATS, unit, 0, m,
                      wfi_program_code_of(p, m)->units[unit].stats_bytes,
                      wfi_stage_replica_of(p, l->stage, m) == l->replica ? WFI_READ : WFI_WRITE));
    return WF_OK;
}

static wf_status emit_statistics(wfi_lowering *l) {
    wf_program *p = l->p;
    const wf_graph *g = p->graph;
    int64_t n_micro = wfi_program_n_micro(p);
    for (int32_t u = 0; u < g->n_units; u++) {
        if (!p->code->units[u].stats_bytes || !wfi_take_stage(l, wfi_program_stage_of(p, u)))
            continue;
        int32_t i;
        WF_TRY(gather_statistics(l, u));
        if (!has_unit(l, u)) continue;
        WF_TRY(wfi_emit(l, wfi_make(WFI_FOLD_STATS, WFI_STREAM_COMPUTE, u, 0, -1),
                        (int32_t)n_micro + 1, &i));
        WF_TRY(wfi_refer(l, i, 0, WFI_BLOCK_BUFFER, u, 0, -1, g->units[u].buffer_bytes,
                         WFI_READ | WFI_WRITE));
        for (int64_t m = 0; m < n_micro; m++)
            WF_TRY(wfi_refer(l, i, (int32_t)m + 1, WFI_BLOCK_STATS, u, 0, m,
                             wfi_program_code_of(p, m)->units[u].stats_bytes, WFI_READ));
    }
    return WF_OK;
}

wf_status wfi_lower_report(wfi_lowering *l) {
    wf_program *p = l->p;
    const wf_graph *g = p->graph;
    int32_t last = p->n_stages - 1;
    if (g->record < 0 || !wfi_take_stage(l, last)) return WF_OK;
    int64_t mine = wfi_stage_n_micro(p, last);
    int32_t i;
    WF_TRY(wfi_emit(l, wfi_make(WFI_REPORT, WFI_STREAM_COPY, -1, 0, -1), (int32_t)mine, &i));
    for (int64_t k = 0; k < mine; k++)
        WF_TRY(wfi_refer(l, i, (int32_t)k, WFI_BLOCK_RECORD, g->n_units - 1, 0,
                         l->replica * mine + k, p->code->place[g->record].bytes, WFI_READ));
    return WF_OK;
}

wf_status wfi_lower_finish(wfi_lowering *l) {
    WF_TRY(wfi_lower_reductions(l));
    WF_TRY(emit_ties(l));
    WF_TRY(emit_norms(l));
    WF_TRY(emit_updates(l));
    WF_TRY(emit_tied_weights(l));
    return emit_statistics(l);
}
