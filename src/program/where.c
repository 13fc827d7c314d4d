/* The table of placements: each kind of tensor, in each role, along each axis. */
#include "program/where.h"
#include "program/need.h"

int32_t wfi_unit_of(const wf_program *p, wfi_name name) {
    switch (wfi_block_types[name.kind].owner) {
    case WFI_OWNER_USE:
        return p->graph->weight_gradients[name.owner].unit;
    case WFI_OWNER_VALUE:
        return name.kind == WFI_BLOCK_VALUE ? p->code->place[name.owner].unit
                                            : p->graph->values[name.owner].unit;
    case WFI_OWNER_UNIT:
        break;
    }
    return name.owner;
}

/* ---- along each axis ---- */

static wfi_placement along_dp(wfi_block_kind kind, const wfi_stage *stage, wfi_role role) {
    const wfi_strategy *row = stage->strategy;
    switch (kind) {
    case WFI_BLOCK_PARAM: /* only one replica computes in a forward run */
        if (role == WFI_USED) return stage->n_members > stage->n_replicas ? WFI_AT : WFI_REPLICATE;
        return role == WFI_UPDATED ? row->state : row->parameter;
    case WFI_BLOCK_STATE:
        return row->state;
    case WFI_BLOCK_BUFFER:
        return row->buffer;
    case WFI_BLOCK_GRADIENT:
        return role == WFI_MADE ? WFI_PARTIAL : row->gradient;
    default:
        return WFI_AT;
    }
}

static wfi_placement along_tp(const wf_program *p, wfi_name name, int32_t unit, wfi_role role) {
    const wf_graph *g = p->graph;
    bool is_made = role == WFI_MADE;
    switch (name.kind) {
    case WFI_BLOCK_VALUE:
        if (is_made && wfi_is_made_by_slices(g, name.owner))
            return wfi_is_slice_sum(g, name.owner) ? WFI_PARTIAL : WFI_SHARD;
        return wfi_keeps_own_rows(p, name) ? WFI_SHARD : WFI_REPLICATE;
    case WFI_BLOCK_TIED:
        return is_made && wfi_is_slices_use(g, name.owner) ? WFI_PARTIAL : WFI_REPLICATE;
    case WFI_BLOCK_INPUT:
        return WFI_REPLICATE;
    default:
        return wfi_unit_is_divided(p, unit) ? WFI_AT : WFI_REPLICATE;
    }
}

/* ---- all axes ---- */

/* Ranks keep a tensor apart from the copy that kernels use if it is divided or in another space. */
static void choose_copy(const wf_program *p, wfi_name name, int32_t unit, wfi_role role,
                        wfi_where *where) {
    if (role == WFI_KEPT && name.kind == WFI_BLOCK_GRADIENT) name = wfi_summed_name(p, unit);
    where->copy = name.copy;
    where->turn = name.turn;
    if (role == WFI_KEPT && wfi_is_kept_apart(p, name.kind, unit)) where->copy = WFI_COPY_KEPT;
    if (where->copy == WFI_COPY_KEPT) {
        where->turn = 0;
        where->space = wfi_kept_space(p, name.kind);
    }
}

wfi_where wfi_where_on(const wf_program *p, wfi_name name, int32_t stage, wfi_role role) {
    const wfi_stage *s = &p->stages[stage];
    int32_t unit = wfi_unit_of(p, name);
    wfi_where where = {.stage = stage, .space = WFI_SPACE_DEVICE};
    bool is_at_root =
        role == WFI_MADE && name.kind == WFI_BLOCK_INPUT && wf_plan_loads_at_root(p->plan);
    int32_t replica = name.micro < 0 ? 0 : wfi_stage_replica_of(p, stage, name.micro);
    where.along[WFI_TP] = along_tp(p, name, unit, role);
    where.along[WFI_PP] = WFI_AT;
    where.along[WFI_DP] = along_dp(name.kind, s, role);
    where.at[WFI_TP] = wfi_tp_of(p, unit);
    where.at[WFI_PP] = s->pp;
    where.at[WFI_DP] = s->first_dp + replica;
    for (int a = 0; a < WFI_N_AXES && is_at_root; a++) {
        where.along[a] = WFI_AT;
        where.at[a] = 0;
    }
    bool is_changed = role == WFI_UPDATED || role == WFI_RENEWED;
    where.is_trained = name.kind == WFI_BLOCK_STATE || name.kind == WFI_BLOCK_GRADIENT ||
                       (name.kind == WFI_BLOCK_PARAM && is_changed);
    choose_copy(p, name, unit, role, &where);
    return where;
}

wfi_where wfi_where_is(const wf_program *p, wfi_name name, wfi_role role) {
    return wfi_where_on(p, name, wfi_program_stage_of(p, wfi_unit_of(p, name)), role);
}

int32_t wfi_rank_with(const wf_program *p, const wfi_where *where, int32_t rank) {
    for (int a = 0; a < WFI_N_AXES; a++)
        if (where->along[a] == WFI_AT)
            rank = wfi_mesh_move(&p->mesh, (wfi_axis)a, rank, where->at[a]);
    return rank;
}

bool wfi_is_at(const wf_program *p, const wfi_where *where, int32_t rank) {
    return wfi_rank_with(p, where, rank) == rank && wfi_stage_member_on(p, where->stage, rank) >= 0;
}

wfi_extent wfi_extent_at(const wf_program *p, wfi_name name, const wfi_where *where, int32_t rank) {
    bool is_flat = wfi_block_types[name.kind].owner == WFI_OWNER_UNIT;
    wfi_extent own = {0, where->is_trained ? p->graph->units[name.owner].param_bytes
                                           : wfi_tensor_bytes(p, name)};
    if (is_flat && where->along[WFI_DP] == WFI_SHARD) {
        int32_t n_parts = p->stages[where->stage].n_parts;
        own = wfi_placement_extent(WFI_SHARD, own.bytes, n_parts,
                                   wfi_stage_member_on(p, where->stage, rank) % n_parts,
                                   wfi_division_of(p, name.owner));
    }
    if (where->along[WFI_TP] == WFI_SHARD) { /* rows of slices are equal parts */
        own.bytes /= (size_t)p->mesh.tp;
        own.offset = own.bytes * (size_t)wfi_mesh_at(&p->mesh, WFI_TP, rank);
    }
    return where->is_trained ? wfi_trained_extent(p, name.owner, own) : own;
}

/* ---- those that ranks keep ---- */

wfi_where wfi_where_kept(const wf_program *p, wfi_block_kind kind, int32_t unit, int32_t rank) {
    wfi_name name = wfi_of_unit(kind, unit);
    wfi_where where = wfi_where_is(p, name, WFI_KEPT);
    int32_t end = kind == WFI_BLOCK_PARAM ? p->first_reader[unit + 1] : 0;
    for (int32_t k = p->first_reader[unit]; k < end && !wfi_is_at(p, &where, rank); k++)
        where = wfi_where_on(p, name, p->readers[k], WFI_KEPT);
    return where;
}

wfi_extent wfi_kept_extent(const wf_program *p, wfi_block_kind kind, int32_t unit, int32_t rank) {
    if (!wfi_unit_is_on(p, unit, rank)) return (wfi_extent){0, 0}; /* most units of slices */
    wfi_where where = wfi_where_kept(p, kind, unit, rank);
    return wfi_is_at(p, &where, rank) ? wfi_extent_at(p, wfi_of_unit(kind, unit), &where, rank)
                                      : (wfi_extent){0, 0};
}

wfi_extent wfi_moved_extent(const wf_program *p, wfi_name name, int32_t rank) {
    if (wfi_is_kept(name.kind)) {
        wfi_extent kept = wfi_kept_extent(p, name.kind, name.owner, rank);
        size_t n_states = (size_t)wfi_recipe_n_states(&p->recipe);
        return name.kind == WFI_BLOCK_STATE ? (wfi_extent){0, kept.bytes * n_states} : kept;
    }
    wfi_where where = wfi_where_is(p, name, name.kind == WFI_BLOCK_GRADIENT ? WFI_MADE : WFI_KEPT);
    return wfi_extent_at(p, name, &where, rank);
}
