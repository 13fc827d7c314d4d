/* Lowering: follows each stage's schedule and emits, rank by rank, the instructions
 * of one step and the blocks they work on. The order of emission is a correct
 * order on one thread; depend.c turns it into streams with dependencies.
 */
#include "plan/lanes.h"
#include "program/program.h"

#include <string.h>

/* What is being lowered: one rank. */
typedef struct lowering {
    wf_program *p;
    int32_t rank, stage, replica;
    int32_t first_unit, end_unit;
    bool *packed;         /* [n_units * WFI_N_PARTS] the pack instruction exists */
    int32_t lookahead[2]; /* compute instructions that began the last two actions */
} lowering;

/* ---- blocks ---- */

static bool is_state(wfi_block_kind kind) {
    return kind == WFI_BLOCK_PARAM || kind == WFI_BLOCK_BUFFER || kind == WFI_BLOCK_STATE;
}

static wf_status find_block(lowering *l, wfi_block_kind kind, int32_t id, int32_t depth,
                            int64_t micro, size_t bytes, int32_t *block_out) {
    wf_program *p = l->p;
    for (int32_t b = p->n_blocks - 1; b >= 0 && p->blocks[b].rank == l->rank; b--) {
        wfi_block *block = &p->blocks[b];
        if (block->kind != kind || block->id != id || block->depth != depth ||
            block->micro != micro)
            continue;
        if (bytes > block->bytes) block->bytes = bytes;
        *block_out = b;
        return WF_OK;
    }
    WF_TRY(WFI_GROW(p->ctx, p->blocks, p->n_blocks, p->block_capacity, "blocks"));
    p->blocks[p->n_blocks] = (wfi_block){.rank = l->rank,
                                         .kind = kind,
                                         .id = id,
                                         .depth = depth,
                                         .micro = micro,
                                         .is_state = is_state(kind),
                                         .bytes = bytes};
    *block_out = p->n_blocks++;
    return WF_OK;
}

/* ---- instructions ---- */

static wf_status emit(lowering *l, wfi_instruction instruction, int32_t n_references,
                      int32_t *index_out) {
    wf_program *p = l->p;
    WF_TRY(WFI_GROW(p->ctx, p->instructions, p->n_instructions, p->instruction_capacity,
                    "instructions"));
    instruction.rank = l->rank;
    instruction.references =
        wfi_pool_alloc(&p->pool, (size_t)n_references, sizeof *instruction.references);
    if (!instruction.references) return WF_NO_MEMORY;
    instruction.n_references = n_references;
    p->instructions[p->n_instructions] = instruction;
    *index_out = p->n_instructions++;
    return WF_OK;
}

static wfi_instruction make(wfi_instruction_kind kind, wfi_stream stream, int32_t unit, int32_t id,
                            int64_t micro) {
    return (wfi_instruction){
        .kind = kind, .stream = stream, .unit = unit, .id = id, .micro = micro, .peer = -1};
}

static wf_status refer(lowering *l, int32_t instruction, int32_t k, wfi_block_kind kind, int32_t id,
                       int32_t depth, int64_t micro, size_t bytes, int access) {
    int32_t block;
    WF_TRY(find_block(l, kind, id, depth, micro, bytes, &block));
    l->p->instructions[instruction].references[k] = (wfi_reference){block, 0, bytes, access};
    return WF_OK;
}

/* One instruction that touches one block. */
static wf_status emit_one(lowering *l, wfi_instruction instruction, wfi_block_kind kind, int32_t id,
                          int32_t depth, int64_t micro, size_t bytes, int access) {
    int32_t i;
    WF_TRY(emit(l, instruction, 1, &i));
    return refer(l, i, 0, kind, id, depth, micro, bytes, access);
}

/* A transfer into memory may begin one action ahead of the one that needs it, not
 * earlier: otherwise every microbatch would want its buffers at the start. */
static wf_status depend_on_lookahead(lowering *l, int32_t instruction) {
    wfi_instruction *i = &l->p->instructions[instruction];
    if (l->lookahead[0] < 0) return WF_OK;
    i->depends = wfi_pool_alloc(&l->p->pool, 1, sizeof *i->depends);
    if (!i->depends) return WF_NO_MEMORY;
    i->depends[0] = l->lookahead[0];
    i->n_depends = 1;
    return WF_OK;
}

/* Binds a segment's slots to blocks. */
static wf_status emit_segment(lowering *l, wfi_instruction instruction, const wfi_segment *segment,
                              int32_t depth) {
    int32_t i;
    instruction.segment = segment;
    instruction.part = segment->part;
    WF_TRY(emit(l, instruction, segment->n_slots, &i));
    for (int32_t s = 0; s < segment->n_slots; s++) {
        const wfi_slot *slot = &segment->slots[s];
        int32_t d = 0;
        int64_t micro = instruction.micro;
        int access = slot->access;
        size_t bytes = slot->bytes;
        switch (slot->kind) {
        case WFI_BLOCK_PARAM:
            micro = -1;
            break;
        case WFI_BLOCK_BUFFER:
            micro = -1;
            break;
        case WFI_BLOCK_PACKED:
            micro = -1, d = segment->part;
            break;
        case WFI_BLOCK_GRADIENT:
            micro = -1, d = depth;
            bytes = l->p->code->units[slot->id].gradient_bytes;
            if (instruction.first) access = WFI_WRITE;
            break;
        case WFI_BLOCK_FRAME:
            /* One block an instruction: its index names it. */
            d = i;
            break;
        default:
            break;
        }
        WF_TRY(refer(l, i, s, slot->kind, slot->id, d, micro, bytes, access));
    }
    return WF_OK;
}

static wf_status emit_pack(lowering *l, int32_t unit, wfi_part part) {
    const wfi_segment *pack = l->p->code->units[unit].pack[part];
    bool *done = &l->packed[unit * WFI_N_PARTS + (int)part];
    if (!pack || *done) return WF_OK;
    *done = true;
    return emit_segment(l, make(WFI_PACK, WFI_STREAM_COMPUTE, unit, 0, -1), pack, 0);
}

/* ---- values that cross units, stages or the host's border ---- */

static bool reads(const wfi_segment *segment, wfi_block_kind kind, int32_t id) {
    for (int32_t s = 0; s < segment->n_slots; s++)
        if (segment->slots[s].kind == kind && segment->slots[s].id == id &&
            segment->slots[s].access & WFI_READ)
            return true;
    return false;
}

static bool stage_reads(const lowering *l, int32_t stage, int32_t value) {
    const wf_program *p = l->p;
    for (int32_t u = p->first_unit[stage]; u < p->first_unit[stage + 1]; u++)
        for (int part = 0; part < WFI_N_PARTS; part++) {
            const wfi_segment *segment = p->code->units[u].part[part];
            if (segment && reads(segment, WFI_BLOCK_VALUE, value)) return true;
        }
    return false;
}

/* What a segment needs and this rank does not compute: inputs are loaded, values of
 * other stages received; each once a microbatch. */
static wf_status emit_arrivals(lowering *l, const wfi_segment *segment, int64_t micro) {
    wf_program *p = l->p;
    for (int32_t s = 0; s < segment->n_slots; s++) {
        const wfi_slot *slot = &segment->slots[s];
        bool is_input = slot->kind == WFI_BLOCK_INPUT;
        if (!is_input && slot->kind != WFI_BLOCK_VALUE) continue;
        if (!(slot->access & WFI_READ)) continue;
        int32_t home = is_input ? l->stage : wfi_program_stage_of(p, p->code->place[slot->id].unit);
        if (!is_input && home == l->stage) continue;
        int32_t block;
        int32_t n_before = p->n_blocks;
        WF_TRY(
            find_block(l, slot->kind, slot->id, 0, micro, p->code->place[slot->id].bytes, &block));
        if (p->n_blocks == n_before) continue; /* it is here already */
        wfi_instruction i =
            make(is_input ? WFI_LOAD : WFI_RECEIVE, is_input ? WFI_STREAM_COPY : WFI_STREAM_RECEIVE,
                 segment->unit, slot->id, micro);
        if (!is_input) i.peer = wfi_program_rank_of(p, l->replica, home);
        int32_t index;
        WF_TRY(emit(l, i, 1, &index));
        p->instructions[index].references[0] =
            (wfi_reference){block, 0, p->code->place[slot->id].bytes, WFI_WRITE};
        WF_TRY(depend_on_lookahead(l, index));
    }
    return WF_OK;
}

static wf_status emit_departures(lowering *l, const wfi_segment *segment, int64_t micro) {
    wf_program *p = l->p;
    for (int32_t s = 0; s < segment->n_slots; s++) {
        const wfi_slot *slot = &segment->slots[s];
        if (slot->kind != WFI_BLOCK_VALUE || !(slot->access & WFI_WRITE)) continue;
        for (int32_t stage = 0; stage < p->n_stages; stage++) {
            if (stage == l->stage || !stage_reads(l, stage, slot->id)) continue;
            wfi_instruction i = make(WFI_SEND, WFI_STREAM_SEND, segment->unit, slot->id, micro);
            i.peer = wfi_program_rank_of(p, l->replica, stage);
            WF_TRY(emit_one(l, i, WFI_BLOCK_VALUE, slot->id, 0, micro,
                            p->code->place[slot->id].bytes, WFI_READ));
        }
    }
    return WF_OK;
}

/* ---- one action of the schedule ---- */

static wf_status emit_folds(lowering *l, int32_t unit, int64_t lane, int depth) {
    wf_program *p = l->p;
    size_t bytes = p->code->units[unit].gradient_bytes;
    int ignored, folds = wfi_lane_folds(wfi_program_lanes_per_replica(p), lane, &ignored);
    for (; folds > 0; folds--, depth--) {
        int32_t i;
        WF_TRY(emit(l, make(WFI_FOLD, WFI_STREAM_COMPUTE, unit, depth, -1), 2, &i));
        WF_TRY(
            refer(l, i, 0, WFI_BLOCK_GRADIENT, unit, depth - 1, -1, bytes, WFI_READ | WFI_WRITE));
        WF_TRY(refer(l, i, 1, WFI_BLOCK_GRADIENT, unit, depth, -1, bytes, WFI_READ));
    }
    return WF_OK;
}

static wf_status emit_part(lowering *l, int32_t unit, wfi_part part, int64_t micro) {
    static const wfi_instruction_kind kinds[] = {[WFI_PART_F] = WFI_FORWARD,
                                                 [WFI_PART_B] = WFI_BACKWARD,
                                                 [WFI_PART_W] = WFI_WEIGHT,
                                                 [WFI_PART_BW] = WFI_BACKWARD_WEIGHT};
    wf_program *p = l->p;
    const wfi_segment *segment = p->code->units[unit].part[part];
    if (!segment) return WF_OK;
    WF_TRY(emit_arrivals(l, segment, micro));
    WF_TRY(emit_pack(l, unit, part));
    int64_t per_lane = p->recipe.n_micro / p->recipe.n_lanes;
    int64_t lane = micro / per_lane - l->replica * wfi_program_lanes_per_replica(p);
    int depth = 0;
    wfi_instruction i = make(kinds[part], WFI_STREAM_COMPUTE, unit, 0, micro);
    bool sums = (part == WFI_PART_W || part == WFI_PART_BW) && p->code->units[unit].gradient_bytes;
    if (sums) {
        (void)wfi_lane_folds(wfi_program_lanes_per_replica(p), lane, &depth);
        i.first = micro % per_lane == 0;
        i.id = depth;
    }
    WF_TRY(emit_segment(l, i, segment, depth));
    WF_TRY(emit_departures(l, segment, micro));
    if (sums && (micro + 1) % per_lane == 0) WF_TRY(emit_folds(l, unit, lane, depth));
    return WF_OK;
}

static wf_status emit_action(lowering *l, const wfi_action *action) {
    wf_program *p = l->p;
    int64_t micro = l->replica * wfi_program_micro_per_replica(p) + action->micro;
    static const wfi_part parts[] = {[WFI_ACTION_F] = WFI_PART_F,
                                     [WFI_ACTION_B] = WFI_PART_B,
                                     [WFI_ACTION_W] = WFI_PART_W,
                                     [WFI_ACTION_BW] = WFI_PART_BW};
    int32_t begin = p->n_instructions;
    for (int32_t k = 0; k < l->end_unit - l->first_unit; k++) {
        int32_t unit = action->kind == WFI_ACTION_F ? l->first_unit + k : l->end_unit - 1 - k;
        WF_TRY(emit_part(l, unit, parts[action->kind], micro));
    }
    for (int32_t i = begin; i < p->n_instructions; i++)
        if (p->instructions[i].stream == WFI_STREAM_COMPUTE) {
            l->lookahead[0] = l->lookahead[1];
            l->lookahead[1] = i;
            break;
        }
    return WF_OK;
}

/* ---- the end of the step ---- */

static bool is_tied_owner(const wf_graph *g, const wfi_weight_gradient *w, int32_t unit) {
    return g->values[w->param].unit == unit && w->unit != unit;
}

static wf_status emit_reductions(lowering *l) {
    wf_program *p = l->p;
    for (int32_t u = l->end_unit - 1; u >= l->first_unit && p->n_replicas > 1; u--) {
        size_t bytes = p->code->units[u].gradient_bytes;
        if (!bytes) continue;
        WF_TRY(emit_one(l, make(WFI_ALL_REDUCE, WFI_STREAM_REDUCE, u, 0, -1), WFI_BLOCK_GRADIENT, u,
                        0, -1, bytes, WFI_READ | WFI_WRITE));
    }
    return WF_OK;
}

/* A tied weight's other uses come to its owner, in ascending order of units. */
static wf_status emit_ties(lowering *l) {
    wf_program *p = l->p;
    const wf_graph *g = p->graph;
    for (int32_t i = 0; i < g->n_weight_gradients; i++) {
        const wfi_weight_gradient *w = &g->weight_gradients[i];
        int32_t owner = g->values[w->param].unit;
        if (owner == w->unit) continue;
        int32_t from = wfi_program_stage_of(p, w->unit), to = wfi_program_stage_of(p, owner);
        size_t bytes = p->code->units[w->unit].gradient_bytes;
        int32_t n;
        if (l->stage == from && from != to) {
            wfi_instruction send = make(WFI_SEND, WFI_STREAM_SEND, w->unit, w->value, -1);
            send.peer = wfi_program_rank_of(p, l->replica, to);
            WF_TRY(emit_one(l, send, WFI_BLOCK_GRADIENT, w->unit, 0, -1, bytes, WFI_READ));
        }
        if (l->stage != to) continue;
        if (from != to) {
            wfi_instruction receive = make(WFI_RECEIVE, WFI_STREAM_RECEIVE, w->unit, w->value, -1);
            receive.peer = wfi_program_rank_of(p, l->replica, from);
            WF_TRY(emit(l, receive, 1, &n));
            WF_TRY(refer(l, n, 0, WFI_BLOCK_GRADIENT, w->unit, 0, -1, bytes, WFI_WRITE));
            WF_TRY(depend_on_lookahead(l, n));
        }
        WF_TRY(emit(l, make(WFI_TIE, WFI_STREAM_COMPUTE, owner, i, -1), 2, &n));
        WF_TRY(refer(l, n, 0, WFI_BLOCK_GRADIENT, owner, 0, -1,
                     p->code->units[owner].gradient_bytes, WFI_READ | WFI_WRITE));
        WF_TRY(refer(l, n, 1, WFI_BLOCK_GRADIENT, w->unit, 0, -1, bytes, WFI_READ));
    }
    return WF_OK;
}

size_t wfi_norm_begin(const wf_graph *g, int32_t unit) {
    size_t n = 0;
    for (int32_t u = 0; u < unit; u++)
        n += (g->units[u].param_bytes / sizeof(float) + WFI_NORM_BLOCK_ELEMENTS - 1) /
             WFI_NORM_BLOCK_ELEMENTS;
    return n;
}

/* Each unit writes its own sums of squares: a block of NORM a unit; clipping reads
 * all of them in order of units. */
static size_t norm_bytes(const wf_graph *g, int32_t unit) {
    return (wfi_norm_begin(g, unit + 1) - wfi_norm_begin(g, unit)) * sizeof(double);
}

static wf_status emit_norms(lowering *l) {
    wf_program *p = l->p;
    const wf_graph *g = p->graph;
    if (p->recipe.clip_norm <= 0) return WF_OK;
    int32_t n;
    for (int32_t u = l->first_unit; u < l->end_unit; u++) {
        if (!g->units[u].param_bytes) continue;
        WF_TRY(emit(l, make(WFI_NORM, WFI_STREAM_COMPUTE, u, 0, -1), 2, &n));
        WF_TRY(refer(l, n, 0, WFI_BLOCK_GRADIENT, u, 0, -1, p->code->units[u].gradient_bytes,
                     WFI_READ));
        WF_TRY(refer(l, n, 1, WFI_BLOCK_NORM, u, 0, -1, norm_bytes(g, u), WFI_WRITE));
    }
    if (p->n_stages == 1) return WF_OK;
    WF_TRY(emit(l, make(WFI_GATHER_NORM, WFI_STREAM_REDUCE, -1, 0, -1), g->n_units, &n));
    for (int32_t u = 0; u < g->n_units; u++) {
        bool own = wfi_program_stage_of(p, u) == l->stage;
        WF_TRY(
            refer(l, n, u, WFI_BLOCK_NORM, u, 0, -1, norm_bytes(g, u), own ? WFI_READ : WFI_WRITE));
    }
    return WF_OK;
}

static wf_status emit_updates(lowering *l) {
    wf_program *p = l->p;
    const wf_graph *g = p->graph;
    int n_states = wfi_recipe_n_states(&p->recipe);
    bool clips = p->recipe.clip_norm > 0;
    for (int32_t u = l->first_unit; u < l->end_unit; u++) {
        size_t bytes = g->units[u].param_bytes;
        if (!bytes) continue;
        int32_t i, k = 0;
        WF_TRY(emit(l, make(WFI_UPDATE, WFI_STREAM_COMPUTE, u, 0, -1),
                    2 + (n_states > 0) + (clips ? g->n_units : 0), &i));
        WF_TRY(refer(l, i, k++, WFI_BLOCK_PARAM, u, 0, -1, bytes, WFI_READ | WFI_WRITE));
        WF_TRY(refer(l, i, k++, WFI_BLOCK_GRADIENT, u, 0, -1, p->code->units[u].gradient_bytes,
                     WFI_READ));
        if (n_states)
            WF_TRY(refer(l, i, k++, WFI_BLOCK_STATE, u, 0, -1, bytes * (size_t)n_states,
                         WFI_READ | WFI_WRITE));
        for (int32_t v = 0; clips && v < g->n_units; v++)
            WF_TRY(refer(l, i, k++, WFI_BLOCK_NORM, v, 0, -1, norm_bytes(g, v), WFI_READ));
    }
    return WF_OK;
}

/* The owner's new weights go to the stages that use them too. */
static wf_status emit_tied_weights(lowering *l) {
    wf_program *p = l->p;
    const wf_graph *g = p->graph;
    for (int32_t i = 0; i < g->n_weight_gradients; i++) {
        const wfi_weight_gradient *w = &g->weight_gradients[i];
        int32_t owner = g->values[w->param].unit;
        if (!is_tied_owner(g, w, owner)) continue;
        int32_t from = wfi_program_stage_of(p, owner), to = wfi_program_stage_of(p, w->unit);
        if (from == to || (l->stage != from && l->stage != to)) continue;
        bool sends = l->stage == from;
        wfi_instruction move =
            make(sends ? WFI_SEND : WFI_RECEIVE, sends ? WFI_STREAM_SEND : WFI_STREAM_RECEIVE,
                 owner, w->param, -1);
        move.peer = wfi_program_rank_of(p, l->replica, sends ? to : from);
        WF_TRY(emit_one(l, move, WFI_BLOCK_PARAM, owner, 0, -1, g->units[owner].param_bytes,
                        sends ? WFI_READ : WFI_WRITE));
    }
    return WF_OK;
}

static wf_status emit_statistics(lowering *l) {
    wf_program *p = l->p;
    const wf_graph *g = p->graph;
    int64_t n_micro = wfi_program_n_micro(p), mine = wfi_program_micro_per_replica(p);
    for (int32_t u = l->first_unit; u < l->end_unit; u++) {
        size_t bytes = p->code->units[u].stats_bytes;
        if (!bytes) continue;
        int32_t i;
        if (p->n_replicas > 1) {
            WF_TRY(
                emit(l, make(WFI_GATHER_STATS, WFI_STREAM_REDUCE, u, 0, -1), (int32_t)n_micro, &i));
            for (int64_t m = 0; m < n_micro; m++)
                WF_TRY(refer(l, i, (int32_t)m, WFI_BLOCK_STATS, u, 0, m, bytes,
                             m / mine == l->replica ? WFI_READ : WFI_WRITE));
        }
        WF_TRY(
            emit(l, make(WFI_FOLD_STATS, WFI_STREAM_COMPUTE, u, 0, -1), (int32_t)n_micro + 1, &i));
        WF_TRY(refer(l, i, 0, WFI_BLOCK_BUFFER, u, 0, -1, g->units[u].buffer_bytes,
                     WFI_READ | WFI_WRITE));
        for (int64_t m = 0; m < n_micro; m++)
            WF_TRY(refer(l, i, (int32_t)m + 1, WFI_BLOCK_STATS, u, 0, m, bytes, WFI_READ));
    }
    return WF_OK;
}

static wf_status emit_report(lowering *l) {
    wf_program *p = l->p;
    const wf_graph *g = p->graph;
    if (g->record < 0 || l->end_unit != g->n_units) return WF_OK;
    int64_t mine = wfi_program_micro_per_replica(p);
    int32_t i;
    WF_TRY(emit(l, make(WFI_REPORT, WFI_STREAM_COPY, -1, 0, -1), (int32_t)mine, &i));
    for (int64_t k = 0; k < mine; k++)
        WF_TRY(refer(l, i, (int32_t)k, WFI_BLOCK_RECORD, g->n_units - 1, 0, l->replica * mine + k,
                     p->code->place[g->record].bytes, WFI_READ));
    return WF_OK;
}

static wf_status emit_outputs(lowering *l) {
    wf_program *p = l->p;
    const wf_graph *g = p->graph;
    for (int32_t k = 0; k < g->n_outputs; k++) {
        int32_t v = wfi_value_root(g, g->outputs[k]);
        if (wfi_program_stage_of(p, p->code->place[v].unit) != l->stage) continue;
        WF_TRY(emit_one(l, make(WFI_STORE, WFI_STREAM_COPY, -1, k, 0), WFI_BLOCK_VALUE, v, 0, 0,
                        p->code->place[v].bytes, WFI_READ));
    }
    return WF_OK;
}

/* ---- a rank, all ranks ---- */

/* State comes first and in one order, so that all programs of a trainer agree on it. */
static wf_status add_state_blocks(lowering *l) {
    wf_program *p = l->p;
    const wf_graph *g = p->graph;
    size_t n_states = (size_t)wfi_recipe_n_states(&p->recipe);
    int32_t ignored;
    for (int32_t u = 0; u < g->n_units; u++) {
        bool own = u >= l->first_unit && u < l->end_unit;
        bool borrowed = false; /* a tied weight of another stage */
        for (int32_t k = l->first_unit; k < l->end_unit && !own; k++)
            for (int part = 0; part < WFI_N_PARTS; part++) {
                const wfi_segment *segments[] = {p->code->units[k].part[part],
                                                 p->code->units[k].pack[part]};
                for (int i = 0; i < 2; i++)
                    borrowed |= segments[i] && reads(segments[i], WFI_BLOCK_PARAM, u);
            }
        const wfi_unit *unit = &g->units[u];
        if ((own || borrowed) && unit->param_bytes)
            WF_TRY(find_block(l, WFI_BLOCK_PARAM, u, 0, -1, unit->param_bytes, &ignored));
        if (own && unit->buffer_bytes)
            WF_TRY(find_block(l, WFI_BLOCK_BUFFER, u, 0, -1, unit->buffer_bytes, &ignored));
        if (own && unit->param_bytes && n_states)
            WF_TRY(
                find_block(l, WFI_BLOCK_STATE, u, 0, -1, unit->param_bytes * n_states, &ignored));
    }
    return WF_OK;
}

static wf_status lower_actions(lowering *l) {
    wf_program *p = l->p;
    int n_micro = (int)wfi_program_micro_per_replica(p);
    wfi_action *actions = wfi_alloc(p->ctx, 3 * (size_t)n_micro, sizeof *actions, "a schedule");
    if (!actions) return WF_NO_MEMORY;
    int n = 0;
    if (p->kind == WF_PROGRAM_TRAIN)
        n = p->plan->schedule->make(p->n_stages, l->stage, n_micro, actions);
    else
        for (; n < n_micro; n++) actions[n] = (wfi_action){WFI_ACTION_F, l->stage, 0, n};
    wf_status status = WF_OK;
    for (int k = 0; k < n && status == WF_OK; k++) status = emit_action(l, &actions[k]);
    wfi_free(p->ctx, actions);
    return status;
}

static wf_status lower_rank(lowering *l) {
    wf_program *p = l->p;
    l->lookahead[0] = l->lookahead[1] = -1;
    WF_TRY(add_state_blocks(l));
    WF_TRY(lower_actions(l));
    WF_TRY(emit_report(l));
    if (p->kind == WF_PROGRAM_FORWARD) return emit_outputs(l);
    WF_TRY(emit_reductions(l));
    WF_TRY(emit_ties(l));
    WF_TRY(emit_norms(l));
    WF_TRY(emit_updates(l));
    WF_TRY(emit_tied_weights(l));
    return emit_statistics(l);
}

wf_status wfi_program_lower(wf_program *p) {
    size_t n_units = (size_t)p->graph->n_units;
    wf_status status = WF_OK;
    for (int32_t rank = 0; rank < p->n_ranks && status == WF_OK; rank++) {
        lowering l = {
            .p = p, .rank = rank, .stage = rank % p->n_stages, .replica = rank / p->n_stages};
        l.first_unit = p->first_unit[l.stage];
        l.end_unit = p->first_unit[l.stage + 1];
        p->ranks[rank].stage = l.stage;
        p->ranks[rank].replica = l.replica;
        l.packed = wfi_alloc(p->ctx, n_units * WFI_N_PARTS, sizeof *l.packed, "lowering");
        status = l.packed ? lower_rank(&l) : WF_NO_MEMORY;
        wfi_free(p->ctx, l.packed);
    }
    return status;
}
