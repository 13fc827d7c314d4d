/* The mover. Between copies on one rank a move is a copy, a fetch or an eviction; between two
 * ranks, a send and a receive; among the ranks of a group, a change of placement
 * (program/change.h): one instruction for all pieces that it moves.
 */
#include "lower/move.h"

wf_status wfi_move_here(wfi_lowering *l, wfi_name from, wfi_name to, wfi_extent extent) {
    bool is_value = wfi_block_types[from.kind].owner == WFI_OWNER_VALUE;
    wfi_instruction_kind how = !wfi_is_offloaded(l->p, from.kind) ? WFI_COPY
                               : from.copy == WFI_COPY_KEPT       ? WFI_FETCH
                                                                  : WFI_EVICT;
    int32_t i, unit = is_value ? l->p->graph->values[from.owner].unit : from.owner;
    WF_TRY(wfi_emit(l, wfi_make(how, unit, is_value ? from.owner : 0, from.micro), 2, &i));
    WF_TRY(wfi_refer(l, i, 0, from, extent, WFI_READ));
    return wfi_refer(l, i, 1, to, extent, WFI_WRITE);
}

/* The unit that an instruction names: that declared the tensor, or makes it. */
static int32_t unit_of(const wf_program *p, wfi_name what) {
    if (what.kind == WFI_BLOCK_TIED) return p->graph->weight_gradients[what.owner].unit;
    if (what.kind == WFI_BLOCK_VALUE) return p->code->place[what.owner].unit;
    return what.kind == WFI_BLOCK_INPUT ? p->graph->values[what.owner].unit : what.owner;
}

/* A transfer of a unit's parameters or gradient is named for the first of its parameters. */
static int32_t id_of(const wf_graph *g, wfi_name what) {
    int32_t v = 0;
    if (wfi_block_types[what.kind].owner != WFI_OWNER_UNIT) return what.owner;
    while (g->values[v].kind != WFI_VALUE_PARAM || g->values[v].unit != what.owner) v++;
    return v;
}

wf_status wfi_move_between(wfi_lowering *l, wfi_name what, int64_t micro, int32_t from,
                           int32_t to) {
    bool sends = from == l->rank;
    if (from == to || (!sends && to != l->rank)) return WF_OK;
    wfi_instruction now = wfi_make(sends ? WFI_SEND : WFI_RECEIVE, unit_of(l->p, what),
                                   id_of(l->p->graph, what), micro);
    now.peer = sends ? to : from;
    return wfi_emit_named(l, now, 1, &what);
}

/* References for the pieces of all tensors that are not empty; without `index`, only counts them.
 */
static wf_status refer_to_pieces(wfi_lowering *l, const wfi_instruction *now, const int32_t *index,
                                 int32_t *n_out) {
    int32_t member = wfi_group_find(&l->p->groups[now->group], l->rank), n = 0;
    for (int32_t t = 0; t < l->n_names; t++) {
        int32_t n_pieces = wfi_count_pieces(l->p, now, l->names[t]);
        for (int32_t k = 0; k < n_pieces; k++) {
            wfi_piece piece = wfi_find_piece(l->p, now, l->names[t], k);
            if (!piece.extent.bytes) continue;
            int access = wfi_piece_access(now, member, &piece);
            if (!access) piece.extent.bytes = 0;
            if (index) WF_TRY(wfi_refer(l, *index, n, l->names[t], piece.extent, access));
            n++;
        }
    }
    *n_out = n;
    return WF_OK;
}

wf_status wfi_move_among(wfi_lowering *l, int32_t group, wfi_placement from, wfi_placement to,
                         int32_t unit) {
    wf_program *p = l->p;
    wfi_instruction now = wfi_make(WFI_CHANGE, unit, 0, -1);
    int32_t n, i;
    now.group = group;
    now.from = from;
    now.to = to;
    if (from == to || p->groups[group].n == 1) l->n_names = 0;
    WF_TRY(refer_to_pieces(l, &now, NULL, &n));
    if (n) {
        bool stages = wfi_change_stages(p, &now);
        WF_TRY(wfi_emit(l, now, n + stages, &i));
        WF_TRY(refer_to_pieces(l, &now, &i, &n));
        if (stages)
            WF_TRY(wfi_refer(l, i, n, wfi_of_unit(WFI_BLOCK_STAGING, unit),
                             wfi_whole(wfi_change_staged_bytes(p, &p->instructions[i])),
                             WFI_WRITE));
    }
    l->n_names = 0;
    return WF_OK;
}

wf_status wfi_move_parameters(wfi_lowering *l, wfi_name name, int32_t stage, wfi_placement from,
                              wfi_placement to) {
    WF_TRY(wfi_add_name(l, name));
    return wfi_move_among(l, wfi_stage_shards(l->p, stage, l->rank), from, to, name.owner);
}
