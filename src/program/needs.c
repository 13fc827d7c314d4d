/* What each reference of an instruction has to be: which kind of block, how many bytes of it,
 * and whether they are read or written. The executor touches what the references say, and nothing
 * else; check_sizes.c compares them with what is said here, which comes from the graph, the
 * compiled units, the recipe and the plan alone.
 */
#include "program/program.h"

size_t wfi_norm_bytes(const wf_graph *g, int32_t unit) {
    size_t n_elem = g->units[unit].param_bytes / sizeof(float);
    return (n_elem + WFI_NORM_BLOCK_ELEMENTS - 1) / WFI_NORM_BLOCK_ELEMENTS * sizeof(double);
}

bool wfi_group_measures(const wf_program *p, const wfi_group *group, int32_t rank, int32_t unit) {
    int32_t stage = wfi_program_stage_of(p, unit);
    for (int32_t k = 0; k < group->n; k++)
        if (wfi_stage_is_held(p, stage, group->ranks[k])) return group->ranks[k] == rank;
    return false;
}

size_t wfi_state_bytes(const wf_program *p, wfi_block_kind kind, int32_t unit) {
    const wfi_unit *u = &p->graph->units[unit];
    if (kind == WFI_BLOCK_PARAM) return u->param_bytes;
    if (kind == WFI_BLOCK_BUFFER) return u->buffer_bytes;
    return kind == WFI_BLOCK_STATE ? u->param_bytes * (size_t)wfi_recipe_n_states(&p->recipe) : 0;
}

static bool has_unit(const wf_program *p, const wfi_instruction *now) {
    return now->unit >= 0 && now->unit < p->graph->n_units;
}

/* The executor finds the kernels by unit and part. */
static bool has_own_segment(const wf_program *p, const wfi_instruction *now) {
    const wfi_segment *s = now->segment;
    if (!s || !has_unit(p, now) || now->part >= WFI_N_PARTS) return false;
    const wfi_unit_code *unit = &(s->is_rest ? p->rest_code : p->code)->units[now->unit];
    return s == (s->is_pack ? unit->pack : unit->part)[now->part];
}

int32_t wfi_n_references_needed(const wf_program *p, const wfi_instruction *now) {
    int32_t n_units = p->graph->n_units, n_micro = (int32_t)p->recipe.n_micro;
    switch (now->kind) {
    case WFI_LOAD:
    case WFI_BROADCAST:
    case WFI_SEND:
    case WFI_RECEIVE:
    case WFI_STORE:
        return 1;
    case WFI_PACK:
    case WFI_FORWARD:
    case WFI_BACKWARD:
    case WFI_WEIGHT:
    case WFI_BACKWARD_WEIGHT:
        return has_own_segment(p, now) ? now->segment->n_slots : -1;
    case WFI_FOLD:
    case WFI_TIE:
    case WFI_NORM:
        return 2;
    case WFI_ALL_REDUCE:
    case WFI_REDUCE: /* as many units as the bucket has */
        return wfi_n_reduced(p, now) > 0 ? now->n_references : -1;
    case WFI_GATHER_NORM:
        return n_units;
    case WFI_UPDATE:
        return 2 + (wfi_recipe_n_states(&p->recipe) > 0) + (p->recipe.clip_norm > 0) * n_units;
    case WFI_GATHER_STATS:
        return n_micro;
    case WFI_FOLD_STATS:
        return n_micro + 1;
    case WFI_REPORT:
        return (int32_t)wfi_stage_n_micro(p, p->n_stages - 1);
    case WFI_N_INSTRUCTION_KINDS:
        break;
    }
    return -1;
}

/* ---- by kind ---- */

static wfi_need need(wfi_block_kind kind, size_t bytes, int access) {
    return (wfi_need){kind, bytes, access};
}

/* The first of a lane assigns the gradient, whose gaps between parameters become zero, too. */
static wfi_need need_of_slot(const wf_program *p, const wfi_instruction *now, int32_t k) {
    const wfi_slot *slot = &now->segment->slots[k];
    if (slot->kind != WFI_BLOCK_GRADIENT) return need(slot->kind, slot->bytes, slot->access);
    return need(slot->kind, p->code->units[slot->id].gradient_bytes,
                now->first ? WFI_WRITE : slot->access);
}

/* Of the unit whose gradient reference k of a reduction is; 0: it is none. */
static size_t reduced_bytes(const wf_program *p, const wfi_instruction *now, int32_t k) {
    const wfi_block *b = &p->blocks[now->references[k].block];
    return b->kind == WFI_BLOCK_GRADIENT ? p->code->units[b->id].gradient_bytes : 0;
}

/* Slices of other ranks' gradients: one unit after the other, so the largest counts. */
static size_t staged_bytes(const wf_program *p, const wfi_instruction *now) {
    const wfi_allreduce *how = wfi_reduction_of(p, now);
    const wfi_group *group = &p->groups[now->group];
    int32_t own = wfi_group_find(group, now->rank);
    int64_t most = 0;
    for (int32_t k = 0; k < wfi_n_reduced(p, now); k++) {
        int64_t n_elem = (int64_t)(reduced_bytes(p, now, k) / sizeof(float));
        most = wfi_max_i64(most, how->n_staged(group->n, own, n_elem));
    }
    return (size_t)most * sizeof(float);
}

static wfi_need need_of_reduction(const wf_program *p, const wfi_instruction *now, int32_t k) {
    if (k == wfi_n_reduced(p, now)) return need(WFI_BLOCK_STAGING, staged_bytes(p, now), WFI_WRITE);
    bool only_gives =
        now->kind == WFI_REDUCE && wfi_group_find(&p->groups[now->group], now->rank) > 0;
    return need(WFI_BLOCK_GRADIENT, reduced_bytes(p, now, k),
                only_gives ? WFI_READ : WFI_READ | WFI_WRITE);
}

static wfi_need need_of_update(const wf_program *p, const wfi_instruction *now, int32_t k) {
    int has_state = wfi_recipe_n_states(&p->recipe) > 0;
    size_t bytes = p->graph->units[now->unit].param_bytes;
    if (k == 0) return need(WFI_BLOCK_PARAM, bytes, WFI_READ | WFI_WRITE);
    if (k == 1) return need(WFI_BLOCK_GRADIENT, bytes, WFI_READ);
    if (k == 2 && has_state)
        return need(WFI_BLOCK_STATE, wfi_state_bytes(p, WFI_BLOCK_STATE, now->unit),
                    WFI_READ | WFI_WRITE);
    return need(WFI_BLOCK_NORM, wfi_norm_bytes(p->graph, k - 2 - has_state), WFI_READ);
}

/* What is sent is all of what the block is named for; both sides name it. */
static wfi_need need_of_transfer(const wf_program *p, const wfi_instruction *now) {
    wfi_block_kind kind = p->blocks[now->references[0].block].kind;
    const wfi_code *code = wfi_program_code_of(p, now->micro);
    size_t bytes = 0;
    if (kind == WFI_BLOCK_VALUE || kind == WFI_BLOCK_INPUT)
        bytes = code->place[now->id].bytes;
    else if (kind == WFI_BLOCK_GRADIENT)
        bytes = code->units[now->unit].gradient_bytes;
    else if (kind == WFI_BLOCK_STATS)
        bytes = code->units[now->unit].stats_bytes;
    else if (kind == WFI_BLOCK_PARAM)
        bytes = p->graph->units[now->unit].param_bytes;
    else
        kind = WFI_BLOCK_VALUE; /* nothing else is sent */
    return need(kind, bytes, now->kind == WFI_SEND ? WFI_READ : WFI_WRITE);
}

static wfi_need need_of_gather(const wf_program *p, const wfi_instruction *now, int32_t k) {
    if (now->kind == WFI_GATHER_NORM)
        return need(WFI_BLOCK_NORM, wfi_norm_bytes(p->graph, k),
                    wfi_group_measures(p, &p->groups[now->group], now->rank, k) ? WFI_READ
                                                                                : WFI_WRITE);
    int32_t stage = wfi_program_stage_of(p, now->unit);
    bool is_here = wfi_stage_rank_of(p, stage, k) == now->rank;
    return need(WFI_BLOCK_STATS, wfi_program_code_of(p, k)->units[now->unit].stats_bytes,
                is_here ? WFI_READ : WFI_WRITE);
}

/* ---- all ---- */

/* Whether what it works on is its unit's. */
static bool is_of_its_unit(const wf_program *p, const wfi_instruction *now) {
    return has_unit(p, now) && p->blocks[now->references[0].block].id == now->unit;
}

/* Whether what the instruction names exists. */
static bool is_sound(const wf_program *p, const wfi_instruction *now) {
    const wf_graph *g = p->graph;
    if (now->micro < -1 || now->micro >= p->recipe.n_micro) return false;
    bool is_collective = now->stream == WFI_STREAM_REDUCE;
    if (is_collective && (now->group < 0 || now->group >= p->n_groups)) return false;
    switch (now->kind) {
    case WFI_LOAD:
        return now->id >= 0 && now->id < g->n_values && now->micro >= 0;
    case WFI_SEND:
    case WFI_RECEIVE:
        return has_unit(p, now) && now->id >= 0 && now->id < g->n_values;
    case WFI_STORE:
        return now->id >= 0 && now->id < g->n_outputs;
    case WFI_TIE:
        return is_of_its_unit(p, now) && now->id >= 0 && now->id < g->n_weight_gradients;
    case WFI_REPORT:
        return g->record >= 0;
    case WFI_GATHER_NORM:
        return true;
    case WFI_FOLD:
    case WFI_BROADCAST:
    case WFI_NORM:
    case WFI_UPDATE:
    case WFI_GATHER_STATS:
    case WFI_FOLD_STATS:
        return is_of_its_unit(p, now);
    default:
        return has_unit(p, now);
    }
}

static wfi_need find_need(const wf_program *p, const wfi_instruction *now, int32_t k) {
    const wf_graph *g = p->graph;
    const wfi_code *code = wfi_program_code_of(p, now->micro);
    const int update = WFI_READ | WFI_WRITE;
    int32_t unit = now->unit;
    switch (now->kind) {
    case WFI_LOAD:
        return need(WFI_BLOCK_INPUT, code->place[now->id].bytes, WFI_WRITE);
    case WFI_FOLD:
        return need(WFI_BLOCK_GRADIENT, code->units[unit].gradient_bytes, k ? WFI_READ : update);
    case WFI_BROADCAST:
        return need(WFI_BLOCK_PARAM, g->units[unit].param_bytes,
                    wfi_group_find(&p->groups[now->group], now->rank) ? WFI_WRITE : WFI_READ);
    case WFI_ALL_REDUCE:
    case WFI_REDUCE:
        return need_of_reduction(p, now, k);
    case WFI_TIE:
        if (k) unit = g->weight_gradients[now->id].unit;
        return need(WFI_BLOCK_GRADIENT, code->units[unit].gradient_bytes, k ? WFI_READ : update);
    case WFI_NORM:
        return k ? need(WFI_BLOCK_NORM, wfi_norm_bytes(g, unit), WFI_WRITE)
                 : need(WFI_BLOCK_GRADIENT, g->units[unit].param_bytes, WFI_READ);
    case WFI_UPDATE:
        return need_of_update(p, now, k);
    case WFI_GATHER_NORM:
    case WFI_GATHER_STATS:
        return need_of_gather(p, now, k);
    case WFI_FOLD_STATS:
        return k ? need(WFI_BLOCK_STATS, wfi_program_code_of(p, k - 1)->units[unit].stats_bytes,
                        WFI_READ)
                 : need(WFI_BLOCK_BUFFER, g->units[unit].buffer_bytes, update);
    case WFI_SEND:
    case WFI_RECEIVE:
        return need_of_transfer(p, now);
    case WFI_REPORT:
        return need(WFI_BLOCK_RECORD, code->place[g->record].bytes, WFI_READ);
    case WFI_STORE:
        return need(WFI_BLOCK_VALUE, code->place[wfi_value_root(g, g->outputs[now->id])].bytes,
                    WFI_READ);
    default:
        return need_of_slot(p, now, k);
    }
}

bool wfi_reference_needs(const wf_program *p, const wfi_instruction *now, int32_t k,
                         wfi_need *need_out) {
    if (!is_sound(p, now)) return false;
    *need_out = find_need(p, now, k);
    return true;
}
