#include "lower/move.h"

/* A transfer of a unit's parameters or gradient is named for the first of its parameters. */
static int32_t id_of(const wf_graph *g, wfi_name what) {
    int32_t v = 0;
    if (wfi_block_types[what.kind].owner != WFI_OWNER_UNIT) return what.owner;
    while (g->values[v].kind != WFI_VALUE_PARAM || g->values[v].unit != what.owner) v++;
    return v;
}

/* ---- from rank to rank ---- */

wf_status wfi_move_between(wfi_lowering *l, wfi_name what, int64_t micro, int32_t from,
                           int32_t to) {
    bool sends = from == l->rank;
    if (from == to || (!sends && to != l->rank)) return WF_OK;
    wfi_instruction now = wfi_make(sends ? WFI_SEND : WFI_RECEIVE, wfi_unit_of(l->p, what),
                                   id_of(l->p->graph, what), micro);
    now.peer = sends ? to : from;
    return wfi_emit_named(l, now, 1, &what);
}

/* ---- from copy to copy ---- */

static wf_status copy(wfi_lowering *l, wfi_instruction_kind how, wfi_name from, wfi_name to,
                      wfi_extent extent) {
    int32_t i, unit = wfi_unit_of(l->p, from);
    bool is_value = wfi_block_types[from.kind].owner == WFI_OWNER_VALUE;
    WF_TRY(wfi_emit(l, wfi_make(how, unit, is_value ? from.owner : 0, from.micro), 2, &i));
    WF_TRY(wfi_refer(l, i, 0, from, extent, WFI_READ));
    return wfi_refer(l, i, 1, to, extent, WFI_WRITE);
}

wf_status wfi_copy_tensor(wfi_lowering *l, wfi_name from, wfi_name to, wfi_extent extent) {
    return copy(l, WFI_COPY, from, to, extent);
}

static wfi_name named_at(wfi_name name, const wfi_where *where) {
    name.copy = where->copy;
    return wfi_in_turn(name, where->turn);
}

/* The bytes that a copy on this rank brings: of the part that the rank keeps, those that the other
 * placement has, too. */
static wfi_extent find_copied(const wfi_lowering *l, wfi_name name, const wfi_where *kept,
                              const wfi_where *other) {
    if (!wfi_is_at(l->p, kept, l->rank)) return (wfi_extent){0, 0};
    wfi_extent own = wfi_extent_intersect(wfi_extent_at(l->p, name, kept, l->rank),
                                          wfi_extent_at(l->p, name, other, l->rank));
    size_t n_states = (size_t)wfi_recipe_n_states(&l->p->recipe);
    return name.kind == WFI_BLOCK_STATE ? wfi_whole(own.bytes * n_states) : own;
}

static wf_status copy_here(wfi_lowering *l, const wfi_where *from, const wfi_where *to,
                           bool comes) {
    wfi_instruction_kind how = from->space == to->space          ? WFI_COPY
                               : from->space != WFI_SPACE_DEVICE ? WFI_FETCH
                                                                 : WFI_EVICT;
    for (int32_t k = 0; k < l->n_names && from->copy != to->copy; k++) {
        wfi_name name = l->names[k];
        wfi_extent own = find_copied(l, name, comes ? from : to, comes ? to : from);
        if (own.bytes) WF_TRY(copy(l, how, named_at(name, from), named_at(name, to), own));
    }
    return WF_OK;
}

/* ---- along an axis ---- */

/* A value of slices belongs to all of them: it is named for the first one. */
static int32_t unit_of_piece(const wf_program *p, wfi_name name) {
    int32_t unit = wfi_unit_of(p, name);
    if (name.kind == WFI_BLOCK_NORM) return -1;
    return wfi_block_types[name.kind].owner == WFI_OWNER_UNIT ? unit
                                                              : unit - p->graph->units[unit].slice;
}

/* References for the pieces of all tensors that are not empty; without `index`, only counts them,
 * and names the unit of the first one. */
static wf_status refer_to_pieces(wfi_lowering *l, wfi_instruction *now, const int32_t *index,
                                 int32_t *n_out) {
    int32_t member = wfi_group_find(&l->p->groups[now->group], l->rank), n = 0;
    for (int32_t t = 0; t < l->n_names; t++) {
        wfi_name name = l->names[t];
        int32_t n_pieces = wfi_count_pieces(l->p, now, name);
        for (int32_t k = 0; k < n_pieces; k++) {
            wfi_piece piece = wfi_find_piece(l->p, now, name, k);
            if (!piece.extent.bytes) continue;
            int access = wfi_piece_access(now, member, &piece);
            if (!access) piece.extent.bytes = 0;
            if (index) WF_TRY(wfi_refer(l, *index, n, name, piece.extent, access));
            if (n++ == 0) now->unit = unit_of_piece(l->p, name);
        }
    }
    *n_out = n;
    return WF_OK;
}

/* One instruction for all pieces that move. */
static wf_status change(wfi_lowering *l, int32_t group, wfi_placement from, wfi_placement to) {
    wf_program *p = l->p;
    wfi_instruction now = wfi_make(WFI_CHANGE, -1, 0, -1);
    int32_t n, i;
    now.group = group;
    now.from = from;
    now.to = to;
    if (from == to || p->groups[group].n == 1 || !wfi_change_name(from, to)) return WF_OK;
    WF_TRY(refer_to_pieces(l, &now, NULL, &n));
    if (!n) return WF_OK;
    bool stages = wfi_change_stages(p, &now);
    WF_TRY(wfi_emit(l, now, n + stages, &i));
    WF_TRY(refer_to_pieces(l, &now, &i, &n));
    return stages ? wfi_refer(l, i, n, wfi_of_unit(WFI_BLOCK_STAGING, now.unit),
                              wfi_whole(wfi_change_staged_bytes(p, &p->instructions[i])), WFI_WRITE)
                  : WF_OK;
}

/* Replicas sum the parts in each group that has all of them, then each part in all groups. */
static wf_status change_along(wfi_lowering *l, const wfi_where *from, const wfi_where *to) {
    const wf_program *p = l->p;
    bool is_sum = from->along[WFI_DP] == WFI_PARTIAL;
    WF_TRY(change(l, wfi_slice_group(p, l->rank), from->along[WFI_TP], to->along[WFI_TP]));
    WF_TRY(change(l, wfi_stage_shards(p, from->stage, l->rank), from->along[WFI_DP],
                  to->along[WFI_DP]));
    int32_t copies = is_sum ? wfi_stage_copies(p, from->stage, l->rank) : -1;
    return copies < 0 ? WF_OK : change(l, copies, WFI_PARTIAL, WFI_REPLICATE);
}

wf_status wfi_move_among(wfi_lowering *l, int32_t group, wfi_placement from, wfi_placement to) {
    wf_status status = change(l, group, from, to);
    l->n_names = 0;
    return status;
}

/* ---- both ---- */

/* A copy from where a tensor is kept comes before the collective; any other copy comes after it. */
static wf_status move(wfi_lowering *l, int32_t stage, wfi_role begin, wfi_role end) {
    wfi_where from = wfi_where_on(l->p, l->names[0], stage, begin);
    wfi_where to = wfi_where_on(l->p, l->names[0], stage, end);
    bool comes = from.copy == WFI_COPY_KEPT;
    if (!wfi_is_at(l->p, &from, l->rank) && !wfi_is_at(l->p, &to, l->rank)) return WF_OK;
    if (comes) WF_TRY(copy_here(l, &from, &to, true));
    for (int32_t k = 0; k < l->n_names; k++)
        l->names[k] = named_at(l->names[k], comes ? &to : &from);
    WF_TRY(change_along(l, &from, &to));
    return comes ? WF_OK : copy_here(l, &from, &to, false);
}

wf_status wfi_move(wfi_lowering *l, wfi_name name, int32_t stage, wfi_role from, wfi_role to) {
    WF_TRY(wfi_add_name(l, name));
    wf_status status = move(l, stage, from, to);
    l->n_names = 0;
    return status;
}

wf_status wfi_move_added(wfi_lowering *l, wfi_role from, wfi_role to) {
    if (!l->n_names) return WF_OK;
    int32_t unit = wfi_unit_of(l->p, l->names[0]);
    wf_status status = move(l, wfi_program_stage_of(l->p, unit), from, to);
    l->n_names = 0;
    return status;
}
