/* Values that cross a border: between stages (send, receive) or from the host (load).
 *
 * A pair of ranks exchanges in the order of its streams, so both sides have to name the
 * values in one order: that in which the graph makes them. A receive may therefore stand
 * before units that do not need its value yet.
 *
 * Where units are spread over ranks, a receive stands where the send does in the order of all
 * ranks' actions. Rank 0 loads all inputs, and sends those of a round of microbatches before it.
 */
#include "program/lower.h"

bool wfi_segment_reads(const wfi_segment *segment, wfi_block_kind kind, int32_t id) {
    for (int32_t s = 0; s < segment->n_slots; s++)
        if (segment->slots[s].kind == kind && segment->slots[s].id == id &&
            segment->slots[s].access & WFI_READ)
            return true;
    return false;
}

static bool stage_reads(const wfi_lowering *l, int32_t stage, wfi_block_kind kind, int32_t value) {
    const wf_program *p = l->p;
    for (int32_t u = p->first_unit[stage]; u < p->first_unit[stage + 1]; u++)
        for (int part = 0; part < WFI_N_PARTS; part++) {
            const wfi_segment *segment = p->code->units[u].part[part];
            if (segment && wfi_segment_reads(segment, kind, value)) return true;
        }
    return false;
}

/* ---- arrivals ---- */

/* What an instruction brings here, unless it is here already. */
static wf_status emit_arrival(wfi_lowering *l, wfi_instruction i, wfi_block_kind kind) {
    wf_program *p = l->p;
    int32_t block, index, n_before = p->n_blocks;
    size_t bytes = wfi_program_code_of(p, i.micro)->place[i.id].bytes;
    WF_TRY(wfi_find_block(l, kind, i.id, 0, i.micro, bytes, &block));
    if (p->n_blocks == n_before) return WF_OK;
    WF_TRY(wfi_emit(l, i, 1, &index));
    p->instructions[index].references[0] = (wfi_reference){block, 0, bytes, WFI_WRITE};
    return wfi_depend_on_lookahead(l, index);
}

wf_status wfi_lower_loads(wfi_lowering *l, const wfi_segment *segment, int64_t micro) {
    for (int32_t s = 0; s < segment->n_slots; s++) {
        const wfi_slot *slot = &segment->slots[s];
        if (slot->kind != WFI_BLOCK_INPUT) continue;
        WF_TRY(emit_arrival(l, wfi_make(WFI_LOAD, WFI_STREAM_COPY, segment->unit, slot->id, micro),
                            slot->kind));
    }
    return WF_OK;
}

/* Adds the values that the segment reads and another stage makes, in the order of making. */
static wf_status collect(wfi_lowering *l, const wfi_segment *segment) {
    const wf_program *p = l->p;
    const wf_graph *g = p->graph;
    for (int32_t s = 0; s < segment->n_slots; s++) {
        const wfi_slot *slot = &segment->slots[s];
        if (slot->kind != WFI_BLOCK_VALUE || !(slot->access & WFI_READ)) continue;
        if (wfi_program_stage_of(p, p->code->place[slot->id].unit) == l->stage) continue;
        WF_TRY(WFI_GROW(p->ctx, l->arrivals, l->n_arrivals, l->arrival_capacity, "lowering"));
        int32_t k = l->n_arrivals++;
        for (; k > 0 && g->values[l->arrivals[k - 1]].node > g->values[slot->id].node; k--)
            l->arrivals[k] = l->arrivals[k - 1];
        l->arrivals[k] = slot->id;
    }
    return WF_OK;
}

wf_status wfi_lower_receives(wfi_lowering *l, wfi_part part, int64_t micro) {
    wf_program *p = l->p;
    const wfi_code *code = wfi_program_code_of(p, micro);
    l->n_arrivals = 0;
    for (int32_t u = l->first_unit; u < l->end_unit; u++)
        if (code->units[u].part[part]) WF_TRY(collect(l, code->units[u].part[part]));
    for (int32_t k = 0; k < l->n_arrivals; k++) {
        int32_t home = code->place[l->arrivals[k]].unit;
        wfi_instruction i = wfi_make(WFI_RECEIVE, WFI_STREAM_RECEIVE, home, l->arrivals[k], micro);
        i.peer = wfi_stage_rank_of(p, wfi_program_stage_of(p, home), micro);
        if (i.peer == l->rank) continue;
        WF_TRY(emit_arrival(l, i, WFI_BLOCK_VALUE));
    }
    return WF_OK;
}

/* ---- departures ---- */

/* Whether an earlier stage of that rank reads the value, too: it is sent once. */
static bool is_sent(const wfi_lowering *l, int32_t stage, wfi_block_kind kind, int32_t value,
                    int64_t micro) {
    int32_t rank = wfi_stage_rank_of(l->p, stage, micro);
    for (int32_t s = 0; s < stage; s++)
        if (wfi_stage_rank_of(l->p, s, micro) == rank && stage_reads(l, s, kind, value))
            return true;
    return false;
}

wf_status wfi_lower_sends(wfi_lowering *l, const wfi_segment *segment, int64_t micro) {
    wf_program *p = l->p;
    for (int32_t s = 0; s < segment->n_slots; s++) {
        const wfi_slot *slot = &segment->slots[s];
        if (slot->kind != WFI_BLOCK_VALUE || !(slot->access & WFI_WRITE)) continue;
        for (int32_t stage = 0; stage < p->n_stages; stage++) {
            wfi_instruction i = wfi_make(WFI_SEND, WFI_STREAM_SEND, segment->unit, slot->id, micro);
            i.peer = wfi_stage_rank_of(p, stage, micro);
            if (i.peer == l->rank || !stage_reads(l, stage, slot->kind, slot->id)) continue;
            if (is_sent(l, stage, slot->kind, slot->id, micro)) continue;
            WF_TRY(wfi_emit_one(l, i, WFI_BLOCK_VALUE, slot->id, 0, micro,
                                wfi_program_code_of(p, micro)->place[slot->id].bytes, WFI_READ));
        }
    }
    return WF_OK;
}

wf_status wfi_lower_arrivals(wfi_lowering *l, const wfi_segment *segment, int64_t micro,
                             int32_t rank) {
    const wf_program *p = l->p;
    for (int32_t s = 0; s < segment->n_slots; s++) {
        const wfi_slot *slot = &segment->slots[s];
        if (slot->kind != WFI_BLOCK_VALUE || !(slot->access & WFI_WRITE)) continue;
        bool is_read = false;
        for (int32_t stage = 0; stage < p->n_stages; stage++)
            is_read |= wfi_stage_rank_of(p, stage, micro) == l->rank &&
                       stage_reads(l, stage, slot->kind, slot->id);
        wfi_instruction i =
            wfi_make(WFI_RECEIVE, WFI_STREAM_RECEIVE, segment->unit, slot->id, micro);
        i.peer = rank;
        if (is_read) WF_TRY(emit_arrival(l, i, WFI_BLOCK_VALUE));
    }
    return WF_OK;
}

/* ---- inputs of other ranks ---- */

/* The stage's part of a round, for one input. */
static wf_status scatter_input(wfi_lowering *l, int32_t stage, int32_t value, int64_t micro) {
    wf_program *p = l->p;
    int32_t rank = wfi_stage_rank_of(p, stage, micro), unit = p->first_unit[stage];
    if (rank == 0 || (l->rank != 0 && l->rank != rank)) return WF_OK;
    if (!stage_reads(l, stage, WFI_BLOCK_INPUT, value)) return WF_OK;
    if (is_sent(l, stage, WFI_BLOCK_INPUT, value, micro)) return WF_OK;
    if (l->rank != 0) {
        wfi_instruction receive = wfi_make(WFI_RECEIVE, WFI_STREAM_RECEIVE, unit, value, micro);
        receive.peer = 0;
        return emit_arrival(l, receive, WFI_BLOCK_INPUT);
    }
    WF_TRY(
        emit_arrival(l, wfi_make(WFI_LOAD, WFI_STREAM_COPY, unit, value, micro), WFI_BLOCK_INPUT));
    wfi_instruction send = wfi_make(WFI_SEND, WFI_STREAM_SEND, unit, value, micro);
    send.peer = rank;
    return wfi_emit_one(l, send, WFI_BLOCK_INPUT, value, 0, micro,
                        wfi_program_code_of(p, micro)->place[value].bytes, WFI_READ);
}

wf_status wfi_lower_scatter(wfi_lowering *l, int64_t round) {
    const wf_program *p = l->p;
    const wf_graph *g = p->graph;
    int64_t n_rounds = p->recipe.n_micro / p->n_replicas;
    for (int32_t s = 0; s < p->n_stages; s++)
        for (int32_t k = 0; k < p->n_replicas; k++)
            for (int32_t v = 0; v < g->n_values; v++)
                if (g->values[v].kind == WFI_VALUE_INPUT)
                    WF_TRY(scatter_input(l, s, v, k * n_rounds + round));
    return WF_OK;
}
