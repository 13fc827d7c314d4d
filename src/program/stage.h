/* Stages, replicas, slices and lanes of a program: which rank has what, and which part of it.
 * Private. */
#pragma once

#include "program/program.h"

static inline int32_t wfi_program_stage_of(const wf_program *p, int32_t unit) {
    return p->stage_of[unit];
}
/* The rank of the stage's replica with the coordinates of `rank` along all other axes. */
static inline int32_t wfi_program_rank_of(const wf_program *p, int32_t replica, int32_t stage,
                                          int32_t rank) {
    const wfi_stage *s = &p->stages[stage];
    rank = wfi_mesh_move(&p->mesh, WFI_PP, rank, s->pp);
    return wfi_mesh_move(&p->mesh, WFI_DP, rank, s->first_dp + replica);
}
/* How a unit's tensors are divided. */
static inline wfi_division wfi_division_of(const wf_program *p, int32_t unit) {
    bool is_on_disk = p->plan->offload[WFI_OFFLOAD_PARAMS] == WFI_SPACE_DISK;
    return (wfi_division){p->rotates_small ? unit : 0, p->recipe.clip_norm > 0 || is_on_disk};
}
/* Microbatches of one step and of one replica. */
static inline int64_t wfi_program_n_micro(const wf_program *p) {
    return p->recipe.n_micro;
}
static inline int64_t wfi_first_micro(const wf_program *p, int32_t stage, int32_t replica) {
    return p->stages[stage].first_micro[replica];
}
static inline int64_t wfi_replica_n_micro(const wf_program *p, int32_t stage, int32_t replica) {
    return wfi_first_micro(p, stage, replica + 1) - wfi_first_micro(p, stage, replica);
}
static inline int32_t wfi_stage_replica_of(const wf_program *p, int32_t stage, int64_t micro) {
    int32_t n = p->stages[stage].n_replicas;
    if (!p->plan->lanes) return (int32_t)(micro / (p->recipe.n_micro / n));
    int32_t k = 0;
    while (k + 1 < n && micro >= wfi_first_micro(p, stage, k + 1)) k++;
    return k;
}
/* How a replica sums its lanes. */
static inline const wfi_lane_sums *wfi_stage_sums(const wf_program *p, int32_t stage,
                                                  int32_t replica) {
    return &p->stages[stage].sums[p->plan->lanes ? replica : 0];
}
/* wfi_program_rank_of the replica that has the microbatch. */
static inline int32_t wfi_stage_rank_of(const wf_program *p, int32_t stage, int64_t micro,
                                        int32_t rank) {
    return wfi_program_rank_of(p, wfi_stage_replica_of(p, stage, micro), stage, rank);
}
/* Whether the unit is a slice that one rank of `tp` has; all ranks of a stage have other units. */
static inline bool wfi_unit_is_divided(const wf_program *p, int32_t unit) {
    return wfi_plan_divides(p->plan, &p->graph->units[unit]);
}
/* How many of the slices beside the unit a rank has: neighbours. */
static inline int32_t wfi_n_local_slices(const wf_program *p, int32_t unit) {
    return p->graph->n_slices / (wfi_unit_is_divided(p, unit) ? p->mesh.tp : 1);
}
static inline int32_t wfi_tp_of(const wf_program *p, int32_t unit) {
    bool is_divided = wfi_unit_is_divided(p, unit);
    return is_divided ? p->graph->units[unit].slice / wfi_n_local_slices(p, unit) : 0;
}
/* The first rank of a replica that has the unit. */
static inline int32_t wfi_unit_rank_of(const wf_program *p, int32_t replica, int32_t unit) {
    int32_t first = wfi_mesh_move(&p->mesh, WFI_TP, 0, wfi_tp_of(p, unit));
    return wfi_program_rank_of(p, replica, p->stage_of[unit], first);
}
static inline bool wfi_unit_is_on(const wf_program *p, int32_t unit, int32_t rank) {
    return !wfi_unit_is_divided(p, unit) ||
           wfi_tp_of(p, unit) == wfi_mesh_at(&p->mesh, WFI_TP, rank);
}
/* The group of the ranks that divide slices with this one; there are several. */
static inline int32_t wfi_slice_group(const wf_program *p, int32_t rank) {
    return p->first_slice_group + wfi_mesh_group(&p->mesh, WFI_ALONG(WFI_TP), rank);
}
/* Whether the slot of a slice's segment is its part of such a value. */
static inline bool wfi_gives_part(const wf_program *p, const wfi_segment *segment,
                                  const wfi_slot *slot) {
    return p->graph->units[segment->unit].is_slice && slot->kind == WFI_BLOCK_VALUE &&
           slot->access & WFI_WRITE && !(slot->access & WFI_SPOIL) &&
           wfi_is_made_by_slices(p->graph, slot->id);
}
/* Which of its rank's slices a unit is, and over which tree these are summed. */
static inline int32_t wfi_local_slice(const wf_program *p, int32_t unit) {
    return p->graph->units[unit].slice % wfi_n_local_slices(p, unit);
}
/* Which of its rank's slices makes weight gradient i, if slices have that use of a weight. */
static inline int32_t wfi_local_use(const wf_program *p, int32_t i) {
    const wfi_weight_gradient *w = &p->graph->weight_gradients[i];
    return w->slice < 0 ? 0 : w->slice % wfi_n_local_slices(p, w->unit);
}
static inline const wfi_lane_sums *wfi_slice_sums(const wf_program *p, int32_t unit) {
    return &p->slice_sums[wfi_unit_is_divided(p, unit)];
}
/* Whether the name is of a value of which slices read rows, and ranks keep those of their slices.
 */
static inline bool wfi_keeps_own_rows(const wf_program *p, wfi_name name) {
    return p->plan->divides_rows && name.kind == WFI_BLOCK_VALUE &&
           wfi_program_code_of(p, name.micro)->place[name.owner].is_split;
}
static inline bool wfi_rank_is_lowered(const wf_program *p, int32_t rank) {
    return p->ranks[rank].like == rank;
}
/* Which microbatch a rank has where the one that it follows has `micro`. */
static inline int64_t wfi_rank_micro(const wf_program *p, int32_t rank, int64_t micro) {
    int32_t apart =
        wfi_mesh_at(&p->mesh, WFI_DP, rank) - wfi_mesh_at(&p->mesh, WFI_DP, p->ranks[rank].like);
    return micro < 0 ? micro : micro + apart * (p->recipe.n_micro / p->mesh.dp);
}
/* Returns whether a rank has other slices than the rank that it follows. wfi_rank_unit returns its
 * unit at the place of that rank's `unit`. */
bool wfi_rank_has_other_slices(const wf_program *p, int32_t rank);
int32_t wfi_rank_unit(const wf_program *p, int32_t rank, int32_t unit);
/* Whether an instruction moves what all slices make together: all ranks along `tp` name it for one
 * unit. */
bool wfi_moves_all_slices(const wf_program *p, const wfi_instruction *now);
/* The unit that the instruction has on a rank that follows its own. */
int32_t wfi_rank_named_unit(const wf_program *p, int32_t rank, const wfi_instruction *now);
/* Which member of the stage the rank is, and which replica; -1: none. */
int32_t wfi_stage_member_on(const wf_program *p, int32_t stage, int32_t rank);
int32_t wfi_stage_replica_on(const wf_program *p, int32_t stage, int32_t rank);
/* The group of the rank, a member of the stage: of all members; that in which all parts are once;
 * and that of members with the same part, or -1: it has one alone. */
int32_t wfi_stage_members(const wf_program *p, int32_t stage, int32_t rank);
int32_t wfi_stage_shards(const wf_program *p, int32_t stage, int32_t rank);
int32_t wfi_stage_copies(const wf_program *p, int32_t stage, int32_t rank);
/* Whether the rank updates the stage's parameters, or a part of them. */
bool wfi_stage_is_updated(const wf_program *p, int32_t stage, int32_t rank);
/* The trained part of an extent. */
static inline wfi_extent wfi_trained_extent(const wf_program *p, int32_t unit, wfi_extent extent) {
    return wfi_extent_intersect(extent, (wfi_extent){0, p->graph->units[unit].trained_bytes});
}
/* In which space a tensor of the kind is kept. */
static inline wfi_space wfi_kept_space(const wf_program *p, wfi_block_kind kind) {
    wfi_offload offload = wfi_block_types[kind].offload;
    return offload == WFI_OFFLOAD_NONE ? WFI_SPACE_DEVICE : p->plan->offload[offload];
}
static inline bool wfi_is_offloaded(const wf_program *p, wfi_block_kind kind) {
    return wfi_kept_space(p, kind) != WFI_SPACE_DEVICE;
}
static inline bool wfi_is_activation(wfi_block_kind kind) {
    return wfi_block_types[kind].offload == WFI_OFFLOAD_ACTIVATIONS;
}
/* Whether ranks keep the PARAM or STATE of a unit apart from those that kernels use: as a slice, or
 * in another space. The others are then there for a while, one in each turn. */
bool wfi_is_kept_apart(const wf_program *p, wfi_block_kind kind, int32_t unit);
/* Whether a unit of the stage reads those parameters. */
static inline bool wfi_stage_reads_parameters(const wf_program *p, int32_t stage, int32_t unit) {
    int32_t k = p->first_reader[unit], end = p->first_reader[unit + 1];
    while (k < end && p->readers[k] < stage) k++;
    return k < end && p->readers[k] == stage;
}
/* The place of the rank in the group; -1: none. */
int32_t wfi_group_find(const wfi_group *group, int32_t rank);
/* Ranks are different threads, and a kernel is bound to one: ranks on the same stage have kernels
 * of different sets. */
static inline int32_t wfi_program_kernel_set(const wf_program *p, int32_t rank) {
    return wfi_mesh_group(&p->mesh, WFI_ALONG(WFI_PP), rank);
}
/* The last microbatch of the lane. */
static inline int64_t wfi_last_of_lane(const wf_program *p, int64_t micro) {
    int64_t n = p->recipe.n_micro / p->recipe.n_lanes;
    return micro - micro % n + n - 1;
}
/* Which of the lanes of its stage's replica it is in. */
static inline int32_t wfi_lane_of(const wf_program *p, int32_t stage, int64_t micro) {
    int64_t first = wfi_first_micro(p, stage, wfi_stage_replica_of(p, stage, micro));
    return (int32_t)((micro - first) / (p->recipe.n_micro / p->recipe.n_lanes));
}
/* Whether its gradients are summed over replicas in another order than the recipe's tree; -1: no
 * stage, but a sum over slices: false. */
static inline bool wfi_stage_rotates(const wf_program *p, int32_t stage) {
    const wfi_stage *s = stage < 0 ? NULL : &p->stages[stage];
    return s && p->plan->allreduce->rotates && s->strategy->gradient == WFI_REPLICATE &&
           s->n_replicas > 2;
}
/* The sums of squares of a part of a unit's gradient, among all of the unit's. */
wfi_extent wfi_norm_extent(wfi_extent gradient);
/* The name of a unit's gradient that is summed over the replicas: accumulator 0, or a copy of the
 * rank's part of it, if that one is freed. */
wfi_name wfi_summed_name(const wf_program *p, int32_t unit);
/* Whether the block has it. */
static inline bool wfi_is_summed(const wf_program *p, const wfi_block *block) {
    return block->name.kind == WFI_BLOCK_GRADIENT &&
           wfi_same_name(block->name, wfi_summed_name(p, block->name.owner));
}
