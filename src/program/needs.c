/* What each reference of an instruction has to be: which kind of block, how many bytes of it,
 * and whether they are read or written. The executor touches what the references say, and nothing
 * else; check_sizes.c compares them with what is said here, which comes from the graph, the
 * compiled units, the recipe and the plan alone.
 */
#include "program/program.h"

size_t wfi_state_bytes(const wf_program *p, wfi_block_kind kind, int32_t unit, int32_t rank) {
    size_t bytes = wfi_kept_extent(p, kind, unit, rank).bytes;
    return kind == WFI_BLOCK_STATE ? bytes * (size_t)wfi_recipe_n_states(&p->recipe) : bytes;
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
    case WFI_CHANGE: /* as many pieces as it names: what it leaves out is missing elsewhere */
        return wfi_n_moved(p, now) > 0 ? now->n_references : -1;
    case WFI_UPDATE:
        return 2 + (wfi_recipe_n_states(&p->recipe) > 0) + (p->recipe.clip_norm > 0) * n_units;
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

static wfi_need need_extent(wfi_block_kind kind, wfi_extent extent, int access) {
    return (wfi_need){kind, extent, access};
}
static wfi_need need(wfi_block_kind kind, size_t bytes, int access) {
    return need_extent(kind, (wfi_extent){0, bytes}, access);
}

/* The first of a lane assigns the gradient, whose gaps between parameters become zero, too. */
static wfi_need need_of_slot(const wf_program *p, const wfi_instruction *now, int32_t k) {
    const wfi_slot *slot = &now->segment->slots[k];
    if (slot->kind != WFI_BLOCK_GRADIENT) return need(slot->kind, slot->bytes, slot->access);
    return need(slot->kind, p->code->units[slot->id].gradient_bytes,
                now->first ? WFI_WRITE : slot->access);
}

/* The piece that begins where the reference does. */
static wfi_need need_of_change(const wf_program *p, const wfi_instruction *now, int32_t k) {
    const wfi_reference *r = &now->references[k];
    const wfi_block *b = &p->blocks[r->block];
    bool moves = b->kind == WFI_BLOCK_PARAM || b->kind == WFI_BLOCK_GRADIENT ||
                 b->kind == WFI_BLOCK_STATS || b->kind == WFI_BLOCK_NORM;
    int32_t member = wfi_group_find(&p->groups[now->group], now->rank);
    if (k == wfi_n_moved(p, now))
        return need(WFI_BLOCK_STAGING, wfi_change_staged_bytes(p, now), WFI_WRITE);
    for (int32_t n = moves ? wfi_n_pieces(p, now, b->kind, b->id) : 0; n-- > 0;) {
        wfi_piece piece = wfi_find_piece(p, now, b->kind, b->id, b->micro, n);
        if (!piece.extent.bytes || piece.extent.offset != wfi_reference_begin(p, r)) continue;
        int access = wfi_piece_access(now, member, &piece);
        if (!access) piece.extent.bytes = 0;
        return need_extent(b->kind, piece.extent, access);
    }
    return need(WFI_BLOCK_GRADIENT, 0, 0);
}

static wfi_need need_of_update(const wf_program *p, const wfi_instruction *now, int32_t k) {
    int has_state = wfi_recipe_n_states(&p->recipe) > 0;
    wfi_extent own = wfi_kept_extent(p, WFI_BLOCK_STATE, now->unit, now->rank);
    if (k == 0) return need_extent(WFI_BLOCK_PARAM, own, WFI_READ | WFI_WRITE);
    if (k == 1) return need_extent(WFI_BLOCK_GRADIENT, own, WFI_READ);
    if (k == 2 && has_state)
        return need(WFI_BLOCK_STATE, wfi_state_bytes(p, WFI_BLOCK_STATE, now->unit, now->rank),
                    WFI_READ | WFI_WRITE);
    size_t bytes = p->graph->units[k - 2 - has_state].param_bytes;
    return need_extent(WFI_BLOCK_NORM, wfi_norm_extent((wfi_extent){0, bytes}), WFI_READ);
}

static wfi_need need_of_norm(const wf_program *p, const wfi_instruction *now, int32_t k) {
    wfi_extent own = wfi_kept_extent(p, WFI_BLOCK_STATE, now->unit, now->rank);
    return k ? need_extent(WFI_BLOCK_NORM, wfi_norm_extent(own), WFI_WRITE)
             : need_extent(WFI_BLOCK_GRADIENT, own, WFI_READ);
}

/* Number of the tied weight whose gradient, or -1. */
static int32_t find_tied(const wf_graph *g, int32_t value) {
    for (int32_t i = 0; i < g->n_weight_gradients; i++)
        if (g->weight_gradients[i].value == value) return i;
    return -1;
}

/* What is sent is all that the rank has of what the block is named for; both sides name it. */
static wfi_need need_of_transfer(const wf_program *p, const wfi_instruction *now) {
    wfi_block_kind kind = p->blocks[now->references[0].block].kind;
    int access = now->kind == WFI_SEND ? WFI_READ : WFI_WRITE;
    int32_t tied = find_tied(p->graph, now->id);
    if (kind == WFI_BLOCK_GRADIENT && tied >= 0)
        return need_extent(kind, wfi_summed_extent(p, now->unit, tied, now->rank), access);
    if (kind == WFI_BLOCK_PARAM)
        return need_extent(kind, wfi_kept_extent(p, kind, now->unit, now->rank), access);
    /* Nothing else is sent. */
    return need(kind == WFI_BLOCK_INPUT ? kind : WFI_BLOCK_VALUE,
                wfi_program_code_of(p, now->micro)->place[now->id].bytes, access);
}

static wfi_need need_of_tie(const wf_program *p, const wfi_instruction *now, int32_t k) {
    int32_t user = p->graph->weight_gradients[now->id].unit;
    if (k)
        return need_extent(WFI_BLOCK_GRADIENT, wfi_summed_extent(p, user, now->id, now->rank),
                           WFI_READ);
    return need_extent(WFI_BLOCK_GRADIENT, wfi_summed_extent(p, now->unit, -1, now->rank),
                       WFI_READ | WFI_WRITE);
}

/* ---- all ---- */

/* Whether what it works on is its unit's. */
static bool is_of_its_unit(const wf_program *p, const wfi_instruction *now) {
    return has_unit(p, now) && p->blocks[now->references[0].block].id == now->unit;
}

/* A sum is of several units, and goes by the first; so is that of norms. */
static bool is_of_one(const wf_program *p, const wfi_instruction *now) {
    wfi_block_kind kind = p->blocks[now->references[0].block].kind;
    return kind == WFI_BLOCK_NORM ? now->unit == -1 : is_of_its_unit(p, now);
}

/* Whether what the instruction names exists. */
static bool is_sound(const wf_program *p, const wfi_instruction *now) {
    const wf_graph *g = p->graph;
    if (now->micro < -1 || now->micro >= p->recipe.n_micro) return false;
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
    case WFI_CHANGE: /* order.c has found its group */
        return wfi_change_name(now->from, now->to) && is_of_one(p, now);
    case WFI_FOLD:
    case WFI_NORM:
    case WFI_UPDATE:
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
    case WFI_CHANGE:
        return need_of_change(p, now, k);
    case WFI_TIE:
        return need_of_tie(p, now, k);
    case WFI_NORM:
        return need_of_norm(p, now, k);
    case WFI_UPDATE:
        return need_of_update(p, now, k);
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
