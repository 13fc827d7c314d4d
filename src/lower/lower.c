/* Lowering: follows each rank's schedule and emits, rank by rank, the instructions
 * of one step and the blocks they work on. The order of emission is a correct
 * order on one thread; depend.c turns it into streams with dependencies.
 */
#include "lower/lower.h"
#include "lower/finish.h"
#include "lower/gather.h"
#include "lower/move.h"
#include "lower/reduce.h"
#include "lower/sums.h"
#include "lower/transfer.h"

#include <string.h>

/* The copy of a value or of saved activations that a segment works on. */
static wf_status name_slot(wfi_lowering *l, const wfi_segment *segment, const wfi_slot *slot,
                           wfi_name *name) {
    const wf_program *p = l->p;
    if (wfi_is_activation(slot->kind)) WF_TRY(wfi_find_activation(l, name));
    if (wfi_gives_part(p, segment, slot) && wfi_is_slice_sum(p->graph, slot->id))
        name->accumulator =
            wfi_slice_sums(p, segment->unit)->accumulator[wfi_local_slice(p, segment->unit)];
    return WF_OK;
}

/* Binds a segment's slots to blocks. */
static wf_status emit_segment(wfi_lowering *l, wfi_instruction instruction,
                              const wfi_segment *segment, int32_t accumulator) {
    instruction.segment = segment;
    instruction.part = segment->part;
    for (int32_t s = 0; s < segment->n_slots; s++) {
        const wfi_slot *slot = &segment->slots[s];
        wfi_name name = wfi_named(slot->kind, slot->id, instruction.micro);
        switch (slot->kind) {
        case WFI_BLOCK_PARAM:
            name.micro = -1;
            if (wfi_is_kept_apart(l->p, WFI_BLOCK_PARAM, slot->id)) name.turn = l->in_use[slot->id];
            break;
        case WFI_BLOCK_BUFFER:
            name.micro = -1;
            break;
        case WFI_BLOCK_PACKED:
            name.micro = -1;
            name.part = wfi_packed_part(segment);
            name.turn = l->n_packs[slot->id];
            break;
        case WFI_BLOCK_GRADIENT:
            name.micro = -1;
            name.accumulator = accumulator;
            break;
        case WFI_BLOCK_TIED:
            name.micro = wfi_last_of_lane(l->p, instruction.micro);
            name.owner = wfi_use_of(l->p->graph, slot->id);
            name.accumulator = wfi_local_use(l->p, slot->id);
            break;
        case WFI_BLOCK_WORKSPACE:
            name.turn = l->p->n_instructions;
            break;
        default:
            WF_TRY(name_slot(l, segment, slot, &name));
            break;
        }
        WF_TRY(wfi_add_name(l, name));
    }
    return wfi_emit_added(l, instruction);
}

static wf_status emit_pack(wfi_lowering *l, int32_t unit, wfi_part part, int64_t micro) {
    const wfi_segment *pack = wfi_program_code_of(l->p, micro)->units[unit].pack[part];
    if (!pack) return WF_OK;
    bool *done = &l->packed[WFI_N_PACKED * unit + (int32_t)wfi_packed_part(pack)];
    if (*done) return WF_OK;
    *done = true;
    return emit_segment(l, wfi_make(WFI_PACK, unit, 0, -1), pack, 0);
}

/* ---- one action of the schedule ---- */

/* Recomputes the values of its forward that the unit did not keep; all that it reads is still
 * there. Where all microbatches went forward before, parameters packed for the forward are not kept
 * either. */
static wf_status emit_recompute(wfi_lowering *l, int32_t unit, wfi_part part, int64_t micro) {
    const wfi_segment *segment = wfi_program_code_of(l->p, micro)->units[unit].part[WFI_PART_R];
    l->n_forward[unit] += part == WFI_PART_F;
    if (!segment || (part != WFI_PART_B && part != WFI_PART_BW)) return WF_OK;
    const wfi_instruction *last = &l->p->instructions[l->last_compute]; /* there is its forward */
    bool follows = last->kind == WFI_FORWARD && last->unit == unit, is_packed = false;
    for (int32_t s = 0; s < segment->n_slots; s++)
        is_packed |= segment->slots[s].kind == WFI_BLOCK_PACKED;
    if (l->n_forward[unit] == wfi_replica_n_micro(l->p, l->stage, l->replica) && !follows)
        wfi_drop_packed(l, unit);
    l->n_forward[unit] = INT32_MIN;
    if (is_packed) WF_TRY(emit_pack(l, unit, WFI_PART_F, micro));
    return emit_segment(l, wfi_make(WFI_RECOMPUTE, unit, 0, micro), segment, 0);
}

static wf_status emit_part(wfi_lowering *l, int32_t unit, wfi_part part, int64_t micro) {
    static const wfi_instruction_kind kinds[] = {[WFI_PART_F] = WFI_FORWARD,
                                                 [WFI_PART_B] = WFI_BACKWARD,
                                                 [WFI_PART_W] = WFI_WEIGHT,
                                                 [WFI_PART_BW] = WFI_BACKWARD_WEIGHT};
    wf_program *p = l->p;
    const wfi_segment *segment = wfi_program_code_of(p, micro)->units[unit].part[part];
    WF_TRY(wfi_lower_gathers(l, unit));
    WF_TRY(emit_recompute(l, unit, part, micro));
    if (!segment) return WF_OK;
    WF_TRY(wfi_lower_loads(l, segment, micro));
    WF_TRY(emit_pack(l, unit, part, micro));
    int32_t number = p->n_instructions;
    wfi_instruction i = wfi_make(kinds[part], unit, 0, micro);
    bool sums = part == WFI_PART_W || part == WFI_PART_BW;
    bool is_last = sums && micro == wfi_last_of_lane(p, micro);
    if (sums) {
        i.first = micro % (p->recipe.n_micro / p->recipe.n_lanes) == 0;
        if (!i.first && !wfi_segment_adds(segment))
            return is_last ? wfi_lower_lane(l, unit, micro) : WF_OK;
        i.id =
            wfi_stage_sums(p, l->stage, l->replica)->accumulator[wfi_lane_of(p, l->stage, micro)];
    }
    WF_TRY(emit_segment(l, i, segment, i.id));
    if (sums) WF_TRY(wfi_depend_on_freed(l, number));
    WF_TRY(wfi_lower_evicts(l, number));
    WF_TRY(wfi_lower_slice(l, segment, micro));
    return is_last ? wfi_lower_lane(l, unit, micro) : WF_OK;
}

/* Number k of the rank's. */
static wf_status emit_action(wfi_lowering *l, int32_t k) {
    wf_program *p = l->p;
    const wfi_action *action = &l->lists[l->rank].actions[k];
    int32_t begin = p->n_instructions;
    l->sequence->emitted[l->rank][k] = begin;
    /* Values that another rank reads before this action ends were made by an earlier action. */
    WF_TRY(wfi_lower_transfers(l, l->sequence->end[l->rank][k]));
    (void)wfi_take_stage(l, action->stage);
    for (int32_t u = 0; u < l->end_unit - l->first_unit; u++) {
        int32_t unit = wfi_action_unit(l, action, u);
        if (wfi_unit_is_on(p, unit, l->rank))
            WF_TRY(emit_part(l, unit, wfi_part_of(action->kind), action->micro));
    }
    for (int32_t i = begin; i < p->n_instructions; i++)
        if (p->instructions[i].stream == WFI_STREAM_COMPUTE) {
            l->lookahead[0] = l->lookahead[1];
            l->lookahead[1] = i;
            break;
        }
    return WF_OK;
}

/* ---- a rank, all ranks ---- */

static wf_status emit_outputs(wfi_lowering *l) {
    wf_program *p = l->p;
    const wf_graph *g = p->graph;
    for (int32_t k = 0; k < g->n_outputs; k++) {
        int32_t v = wfi_value_root(g, g->outputs[k]);
        if (!wfi_mesh_reports(&p->mesh, l->rank)) continue;
        if (!wfi_take_stage(l, wfi_program_stage_of(p, p->code->place[v].unit))) continue;
        wfi_name name = wfi_named(WFI_BLOCK_VALUE, v, 0);
        WF_TRY(wfi_emit_named(l, wfi_make(WFI_STORE, -1, k, 0), 1, &name));
    }
    return WF_OK;
}

/* State comes first and in one order, so that all programs of a trainer agree on it. */
static wf_status add_state_blocks(wfi_lowering *l) {
    static const wfi_block_kind kinds[] = {WFI_BLOCK_PARAM, WFI_BLOCK_BUFFER, WFI_BLOCK_STATE};
    wf_program *p = l->p;
    for (int32_t u = 0; u < p->graph->n_units; u++)
        for (size_t k = 0; k < WFI_COUNT(kinds); k++) {
            wfi_name name = wfi_of_unit(kinds[k], u);
            size_t bytes = wfi_moved_extent(p, name, l->rank).bytes;
            int32_t block;
            if (!bytes) continue;
            if (wfi_is_kept_apart(p, kinds[k], u)) name.copy = WFI_COPY_KEPT;
            WF_TRY(wfi_find_block(l, name, bytes, &block));
            if (kinds[k] == WFI_BLOCK_PARAM)
                p->blocks[block].begin = (int64_t)wfi_kept_extent(p, kinds[k], u, l->rank).offset;
        }
    return WF_OK;
}

/* For each hidden state of the rank's microbatches: a block of state if `adds`, else the block of
 * its next value. */
static wf_status each_hidden(wfi_lowering *l, bool adds) {
    wf_program *p = l->p;
    for (int32_t s = 0; s < p->n_stages; s++) {
        bool is_here = wfi_take_stage(l, s);
        int64_t m = is_here ? wfi_first_micro(p, s, l->replica) : 0;
        int64_t end = is_here ? wfi_first_micro(p, s, l->replica + 1) : m;
        for (; m < end; m++)
            for (int32_t u = l->first_unit; u < l->end_unit; u++) {
                wfi_extent all =
                    wfi_whole(wfi_program_code_of(p, m)->units[u].bytes[WFI_BLOCK_HIDDEN]);
                int32_t i;
                if (!all.bytes || !wfi_unit_is_on(p, u, l->rank)) continue;
                wfi_name hidden = wfi_named(WFI_BLOCK_HIDDEN, u, m);
                WF_TRY(
                    adds ? wfi_find_block(l, hidden, all.bytes, &i)
                         : wfi_copy_tensor(l, wfi_named(WFI_BLOCK_NEXT_HIDDEN, u, m), hidden, all));
            }
    }
    return WF_OK;
}

/* Replicas compute with all of a unit's parameters. Those that are divided are gathered for each
 * use, others come at the begin of a step. */
static wf_status change_parameters(wfi_lowering *l) {
    wf_program *p = l->p;
    for (int32_t s = 0; s < p->n_stages; s++) {
        bool moves = wfi_take_stage(l, s) && p->stages[s].strategy->parameter != WFI_REPLICATE;
        for (int32_t u = 0; moves && u < p->graph->n_units; u++) {
            if (!p->graph->units[u].param_bytes || wfi_is_kept_apart(p, WFI_BLOCK_PARAM, u) ||
                !wfi_stage_reads_parameters(p, s, u))
                continue;
            WF_TRY(wfi_move(l, wfi_of_unit(WFI_BLOCK_PARAM, u), s, WFI_KEPT, WFI_USED));
        }
    }
    return WF_OK;
}

static wf_status lower_rank(wfi_lowering *l) {
    wf_program *p = l->p;
    l->lookahead[0] = l->lookahead[1] = -1;
    l->last_compute = -1;
    l->last_evict[0] = l->last_evict[1] = -1;
    memset(l->freed, -1, sizeof l->freed);
    l->adds_state = true;
    WF_TRY(add_state_blocks(l));
    WF_TRY(each_hidden(l, true));
    l->adds_state = false;
    WF_TRY(change_parameters(l));
    WF_TRY(wfi_find_gathers(l));
    for (int32_t k = 0; k < l->lists[l->rank].n; k++) WF_TRY(emit_action(l, k));
    l->sequence->emitted[l->rank][l->lists[l->rank].n] = p->n_instructions;
    WF_TRY(wfi_lower_last_gathers(l));
    WF_TRY(wfi_lower_transfers(l, INT32_MAX));
    WF_TRY(wfi_lower_report(l));
    WF_TRY(each_hidden(l, false));
    return wfi_differentiates(p) ? wfi_lower_finish(l) : emit_outputs(l);
}

wf_status wfi_program_lower(wf_program *p, const wfi_action_list *lists,
                            const wfi_sequence *sequence) {
    size_t n_units = (size_t)p->graph->n_units;
    wfi_transfer *transfers = NULL;
    int32_t n_transfers = 0;
    wf_status status = wfi_find_transfers(p, lists, sequence, &transfers, &n_transfers);
    for (int32_t k = 0; k < p->n_lowered && status == WF_OK; k++) {
        WFI_PROGRESS(p->ctx, "lowering rank %d of %d", k + 1, p->n_lowered);
        wfi_lowering l = {.p = p,
                          .rank = p->lowered[k],
                          .lists = lists,
                          .sequence = sequence,
                          .transfers = transfers,
                          .n_transfers = n_transfers};
        wfi_pool rank_pool;
        wfi_pool_init(&rank_pool, p->ctx);
        l.packed = wfi_pool_alloc(&rank_pool, WFI_N_PACKED * n_units, sizeof *l.packed);
        l.n_gathered = wfi_pool_alloc(&rank_pool, n_units, sizeof *l.n_gathered);
        l.in_use = wfi_pool_alloc(&rank_pool, n_units, sizeof *l.in_use);
        l.last_read = wfi_pool_alloc(&rank_pool, n_units, sizeof *l.last_read);
        l.n_packs = wfi_pool_alloc(&rank_pool, n_units, sizeof *l.n_packs);
        l.n_added =
            wfi_pool_alloc(&rank_pool, n_units * (size_t)p->recipe.n_lanes, sizeof *l.n_added);
        l.n_forward = wfi_pool_alloc(&rank_pool, n_units, sizeof *l.n_forward);
        bool ok = l.packed && l.n_gathered && l.in_use && l.last_read && l.n_packs && l.n_added &&
                  l.n_forward;
        p->ranks[l.rank].first_block = p->n_blocks;
        status = ok ? lower_rank(&l) : WF_NO_MEMORY;
        p->ranks[l.rank].end_block = p->n_blocks;
        wfi_pool_release(&rank_pool);
        wfi_free(p->ctx, l.gathers);
        wfi_free(p->ctx, l.evicted);
        wfi_free(p->ctx, l.table);
        wfi_free(p->ctx, l.finished);
        wfi_free(p->ctx, l.names);
    }
    wfi_free(p->ctx, transfers);
    return status;
}
