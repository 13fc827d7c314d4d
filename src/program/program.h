/* The program: blocks of memory, in a device's spaces, and instructions on streams. Private.
 *
 * code.h and instruction.h define its parts; passes.h lists the passes that make it.
 */
#ifndef WFI_PROGRAM_H
#define WFI_PROGRAM_H

#include "kernel/backend.h"
#include "plan/lanes.h"
#include "plan/part.h"
#include "plan/plan.h"
#include "program/instruction.h"

#include <weft/program.h>
#include <weft/timeline.h>

/* A run of units that are placed alike. Its replicas are ranks of one `pp` coordinate, each with
 * an equal part of the microbatches, in their order. A rank may be on several stages. */
typedef struct wfi_stage {
    const wfi_strategy *strategy;
    int32_t number;       /* of the pipeline's stage that it is, or is a part of */
    int32_t pp, first_dp; /* coordinates of the first replica */
    int32_t n_replicas;
    int32_t n_members; /* ranks that have something of it: replicas, and in a forward run those that
                          keep parts of its parameters, too */
    int32_t n_parts;   /* divides SHARD tensors: member k has number k % n_parts */
    int32_t first_group;  /* if it has fewer parts than members: of runs of members that have all
                             parts, then of members that have the same one; otherwise -1 */
    int64_t *first_micro; /* [n_replicas + 1] replica k has those to first_micro[k + 1] - 1 */
    wfi_lane_shares shares;
    wfi_lane_sums *sums; /* of a replica's lanes: [n_replicas] if shares are uneven, else one */
} wfi_stage;

/* Ranks that are members of the same collectives. */
typedef struct wfi_group {
    int32_t *ranks; /* ascending */
    int32_t n;
    int32_t n_lowered;     /* of them */
    int32_t stage;         /* of which they are replicas; -1: they share a norm */
    int32_t first, n_each; /* member k stands for n_each replicas from first + k * n_each on */
    int32_t part;          /* which part all of them have; -1: the whole, or each its own */
    bool is_near;          /* the kernels of each reach the memory of all */
} wfi_group;

/* Memory that a rank needs in a space. */
typedef struct wfi_arena_plan {
    size_t state_bytes, peak_bytes, bound_bytes;
} wfi_arena_plan;

typedef struct wfi_rank {
    int32_t like;   /* the lowered rank that it follows, with microbatches or slices of its own; or
                       itself */
    int32_t n_like; /* lowered: how many follow it, and itself */
    int32_t row;    /* lowered: its place among those */
    int32_t first_block, end_block; /* of the rank, or of the one that it follows */
    int32_t *stream[WFI_N_STREAMS]; /* instruction indices */
    int32_t n_stream[WFI_N_STREAMS];
    int64_t n_repeated; /* instructions that the short form leaves out */
    wfi_arena_plan arenas[WFI_N_SPACES];
    size_t sent_bytes, received_bytes;    /* in one step, to and from other ranks */
    size_t fetched_bytes, evicted_bytes;  /* and other spaces */
    int32_t peak_instruction;             /* of the device */
    size_t optimizer_bytes, copied_bytes; /* as wf_rank_summary has them */
} wfi_rank;

/* The use of a program. Callers that only inspect it need one rank of each class of equal ranks. */
typedef enum wfi_program_use {
    WFI_USE_LOOK_SHORT, /* and needs a steady phase that repeats only once (fold.c) */
    WFI_USE_LOOK,
    WFI_USE_LOOK_AT_ALL, /* every rank is a class of its own */
    WFI_USE_RUN,
    WFI_USE_RUN_AND_KEEP /* gradients, until the next step */
} wfi_program_use;

/* The graph of microbatches of one size, and its code. If the batch is no multiple of the
 * microbatches, the last ones are a sample smaller. */
typedef struct wfi_micro_variant {
    wf_graph *graph;
    wfi_code *code;
    int64_t first_micro;
} wfi_micro_variant;
#define WFI_MAX_MICRO_VARIANTS 2

/* In a short form: instructions [begin, end) of a rank are a period, and [end, after) the next one.
 */
typedef struct wfi_repeat {
    int32_t begin, end, after;
} wfi_repeat;

/* Places for n microbatches in turn that no other blocks use: of blocks that have one name but for
 * their microbatch, on one rank. */
typedef struct wfi_ring {
    size_t begin, stride;
    int64_t n;
} wfi_ring;

struct wf_program {
    wf_context *ctx;
    wf_program_kind kind;
    wf_recipe recipe; /* resolved */
    wf_plan *plan;
    wf_model *model;                                    /* for programs of other batch sizes */
    wfi_micro_variant variants[WFI_MAX_MICRO_VARIANTS]; /* [n_variants] by their first microbatch */
    int32_t n_variants;
    wf_graph *graph; /* the first variant's, and its code: for properties without sizes */
    wfi_code *code;
    wfi_pool pool; /* instructions' arrays */

    wfi_mesh mesh;
    int32_t n_ranks, n_stages;
    int32_t n_replicas;  /* of the stage that has most */
    int32_t *first_unit; /* [n_stages + 1] */
    int32_t *stage_of;   /* [n_units] */
    wfi_stage *stages;   /* [n_stages] */
    /* Stages that read a unit's parameters, ascending: from readers[first_reader[unit]] on. */
    int32_t *readers, *first_reader; /* of the latter [n_units + 1] */
    /* [n_groups] the members of each stage, for each `tp` coordinate; then some of them; then ranks
     * that share the norm; then, if there are several, ranks that divide slices. */
    wfi_group *groups;
    int32_t n_groups, first_norm_group, first_slice_group;
    wfi_reduce_step *steps;      /* room for those of a member of any group, while it is made */
    wfi_lane_sums slice_sums[2]; /* of a rank's slices: if it has all, and if ranks divide them */
    wf_costs *costs;             /* of the graph's units */
    wfi_rank *ranks;
    int32_t *lowered; /* [n_lowered] ranks that have blocks and instructions, ascending */
    int32_t n_lowered;
    wfi_block *blocks;
    wfi_instruction *instructions;
    int32_t n_blocks, n_instructions;
    size_t block_capacity, instruction_capacity;
    const wfi_backend *backend;        /* whose kernels, ... */
    const wfi_backend **unit_backends; /* ... or [n_units] of each unit; NULL: all the same */
    wfi_program_use use;
    const wf_program *like; /* while it is made: shares these arenas; its state must stay intact */
    /* Forward runs for evaluation: of whole pieces, and of the remainder; NULL: there is none. */
    wf_program *tests[2];
    int64_t n_test, n_at_once; /* samples of all of them; 0: as many as a microbatch */
    /* > 0, for tests: no two blocks or temporaries share bytes; gaps of this size separate them,
     * and writing to a gap is an error (run/gaps.h). */
    size_t gap_bytes;

    /* order.c: clock[i * WFI_N_STREAMS + stream] = how many instructions of that stream of the same
     * rank happen before (or are) instruction i. */
    int32_t *clock;
    int32_t *order; /* a legal order of all instructions */

    /* The program of the short form, if that has all instructions and blocks; else NULL. */
    wf_program *shorter;
    /* The repeats of a short form [n_lowered][n_cuts]; NULL: it is none. In the whole step, n_times
     * more periods, of n_period microbatches each, come between a period and the next one. */
    wfi_repeat *repeats;
    int32_t n_cuts;
    int64_t n_times, n_period;
    wfi_ring *rings;  /* [n_rings] of a short form, by rank */
    int32_t *ring_of; /* [n_blocks] 1 + the ring of a block, or 0; NULL: it is no short form */
    int32_t n_rings;
    size_t ring_capacity;
};

/* The program that has the instructions. */
static inline const wf_program *wfi_code_of(const wf_program *p) {
    return p->shorter ? p->shorter : p;
}
/* Where a block of the rank's ring is; first_micro: the rank's. */
static inline size_t wfi_ring_offset(const wfi_ring *ring, int64_t micro, int64_t first_micro) {
    return ring->begin + (size_t)((micro - first_micro) % ring->n) * ring->stride;
}
/* For how many instructions of the whole step instruction i stands. */
static inline int64_t wfi_times_of(const wf_program *p, int32_t i) {
    int64_t n = 1;
    int32_t row = p->repeats ? p->ranks[p->instructions[i].rank].row * p->n_cuts : 0;
    for (int32_t k = 0; p->repeats && k < p->n_cuts; k++)
        if (i >= p->repeats[row + k].begin && i < p->repeats[row + k].end) n += p->n_times;
    return n;
}

/* Properties of the programs of a kind. */
typedef struct wfi_kind_properties {
    bool differentiates; /* runs backward, sums gradients and folds statistics */
    bool updates;        /* parameters and optimizer state */
    bool keeps;          /* gradients, until the next run */
    bool stores;         /* outputs */
} wfi_kind_properties;

static inline wfi_kind_properties wfi_properties_of(wf_program_kind kind) {
    static const wfi_kind_properties rows[] = {
        [WF_PROGRAM_TRAIN] = {.differentiates = true, .updates = true},
        [WF_PROGRAM_FORWARD] = {.stores = true},
        [WF_PROGRAM_GRADIENT] = {.differentiates = true, .keeps = true},
    };
    return rows[kind];
}
static inline bool wfi_differentiates(const wf_program *p) {
    return wfi_properties_of(p->kind).differentiates;
}
static inline bool wfi_updates(const wf_program *p) {
    return wfi_properties_of(p->kind).updates;
}
static inline bool wfi_keeps_gradients(const wf_program *p) {
    return p->use == WFI_USE_RUN_AND_KEEP || wfi_properties_of(p->kind).keeps;
}

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
/* Whether a value is a sum over slices; whether it is that, or slices have made rows of it each. */
bool wfi_is_slice_sum(const wf_graph *g, int32_t value);
bool wfi_is_made_by_slices(const wf_graph *g, int32_t value);
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
static inline const wfi_lane_sums *wfi_slice_sums(const wf_program *p, int32_t unit) {
    return &p->slice_sums[wfi_unit_is_divided(p, unit)];
}
/* The part of a value that ranks have once it is made: all, or the rows of the rank's slices, if
 * slices read its rows. */
wfi_extent wfi_value_extent(const wf_program *p, int32_t value, int64_t micro, int32_t rank);
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
/* The part of the unit's flat buffer that the rank keeps in a PARAM, BUFFER or STATE between steps.
 * STATE is counted in parameters: it has as many for each of the optimizer's states, one after the
 * other. */
wfi_extent wfi_kept_extent(const wf_program *p, wfi_block_kind kind, int32_t unit, int32_t rank);
/* The trained part of an extent. */
static inline wfi_extent wfi_trained_extent(const wf_program *p, int32_t unit, wfi_extent extent) {
    return wfi_extent_intersect(extent, (wfi_extent){0, p->graph->units[unit].trained_bytes});
}
/* The bytes that a fetch or an evict moves: the part of a PARAM or STATE of the unit that the rank
 * keeps; of activations of a microbatch, all (`value`: of a VALUE or INPUT). */
wfi_extent wfi_moved_extent(const wf_program *p, wfi_block_kind kind, int32_t unit, int32_t value,
                            int64_t micro, int32_t rank);
/* Which PARAM or STATE of a unit ranks keep: 0, the one that they compute with, or WFI_KEPT_DEPTH,
 * a slice, or an offloaded tensor; then those to compute with are there for a while, and are of
 * WFI_GATHERED_DEPTH and on; a slice that is updated while it is not where it is kept is of
 * WFI_SLICE_DEPTH. */
int32_t wfi_kept_depth(const wf_program *p, wfi_block_kind kind, int32_t unit);
enum { WFI_SLICE_DEPTH = -1, WFI_KEPT_DEPTH = 1, WFI_GATHERED_DEPTH = 2 };
/* Whether the forward leaves blocks of that kind for the backward, of one microbatch. */
static inline bool wfi_is_activation(wfi_block_kind kind) {
    return kind == WFI_BLOCK_SAVED || kind == WFI_BLOCK_SAVED_W || kind == WFI_BLOCK_VALUE ||
           kind == WFI_BLOCK_INPUT;
}
/* In which space blocks of the kind and of WFI_KEPT_DEPTH lie. */
wfi_space wfi_kept_space(const wf_program *p, wfi_block_kind kind);
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
/* The unit that owns the weight of a weight gradient, and whether it is tied: used by another unit,
 * too. */
static inline int32_t wfi_owner_of(const wf_graph *g, int32_t i) {
    return g->values[g->weight_gradients[i].param].unit;
}
static inline bool wfi_is_tied(const wf_graph *g, int32_t i) {
    return g->weight_gradients[i].unit != wfi_owner_of(g, i);
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
/* The part of a unit's gradient that the rank keeps once it is summed over the replicas that
 * update. */
wfi_extent wfi_summed_extent(const wf_program *p, int32_t unit, int32_t rank);
/* In which GRADIENT of the unit that is: accumulator 0, or, where that one is freed, a slice of its
 * own, below 0. */
int32_t wfi_summed_depth(const wf_program *p, int32_t unit);
/* Whether the block has the unit's own. */
static inline bool wfi_is_summed(const wf_program *p, const wfi_block *block) {
    return block->kind == WFI_BLOCK_GRADIENT && block->depth == wfi_summed_depth(p, block->id);
}

/* ---- change.c: changes of placement ---- */

static inline bool wfi_is_reduction(const wfi_instruction *now) {
    return now->kind == WFI_CHANGE && now->from == WFI_PARTIAL;
}
/* The algorithm of an all-reduce. NULL: a receiver reads a piece from its owner, or from all
 * members with summands of it. */
static inline const wfi_allreduce *wfi_change_algorithm(const wf_program *p,
                                                        const wfi_instruction *now) {
    return wfi_is_reduction(now) && now->to == WFI_REPLICATE ? p->plan->allreduce : NULL;
}
/* Whether members stage their operands: because the algorithm does, or because their kernels do not
 * reach the memory of all others. */
bool wfi_change_stages(const wf_program *p, const wfi_instruction *now);
/* How many pieces it moves: its references but the staging, which is the last. */
static inline int32_t wfi_n_moved(const wf_program *p, const wfi_instruction *now) {
    return now->n_references - wfi_change_stages(p, now);
}
int32_t wfi_change_n_phases(const wf_program *p, const wfi_instruction *now);
/* The steps of member `own` for piece r of a change in a phase; `now` is its instruction, or any
 * member's of an all-reduce. Elements are of 4 bytes. Fills steps [WFI_STEPS_A_MEMBER for each
 * member, some of which it works in] and returns how many. */
enum { WFI_STEPS_A_MEMBER = 3 };
int32_t wfi_change_steps(const wf_program *p, const wfi_instruction *now, int32_t own, int32_t r,
                         int32_t phase, wfi_reduce_step *steps);
/* Bytes that a member stages of others' pieces: of one step after the other, so the largest counts,
 * unless the plan stages a phase's at once. */
size_t wfi_change_staged_bytes(const wf_program *p, const wfi_instruction *now);
/* So many elements later than for steps[k] the staging begins for the step behind it. */
int64_t wfi_change_staged_by(const wf_program *p, const wfi_reduce_step *steps, int32_t k);

/* A piece of a tensor that a change moves: some of its bytes, and the member that owns them. */
typedef struct wfi_piece {
    wfi_extent extent;
    int32_t owner;
} wfi_piece;
/* That of a reference. Owner -1: it is none. */
wfi_piece wfi_named_piece(const wf_program *p, const wfi_instruction *now, int32_t r);
/* The part of the unit's gradient that the rank measures for the group. */
wfi_extent wfi_measured_extent(const wf_program *p, const wfi_group *group, int32_t unit,
                               int32_t rank);
/* How the member of that number accesses a piece; 0: it has no part in it. */
int wfi_piece_access(const wfi_instruction *now, int32_t member, const wfi_piece *piece);

/* How many references; -1: it is no instruction that could be run. */
int32_t wfi_n_references_needed(const wf_program *p, const wfi_instruction *now);
/* The needs of reference k, of all references. False: the instruction names an object that does not
 * exist. */
bool wfi_reference_needs(const wf_program *p, const wfi_instruction *now, int32_t k,
                         wfi_need *need_out);
/* Bytes of a TIED, and of a rank's PARAM, BUFFER or STATE of a unit. */
size_t wfi_tied_bytes(const wf_program *p, int32_t i);
size_t wfi_state_bytes(const wf_program *p, wfi_block_kind kind, int32_t unit, int32_t rank);

/* The offset of a reference in the tensor that its block is named for. */
static inline size_t wfi_reference_begin(const wf_program *p, const wfi_reference *r) {
    return r->offset + (size_t)p->blocks[r->block].begin;
}
/* How many instructions run together from place k of the program's order on, where the first of
 * them stands. */
static inline int32_t wfi_n_together(const wf_program *p, int32_t k) {
    const wfi_instruction *now = &p->instructions[p->order[k]];
    if (wfi_type_of(now)->class == WFI_CLASS_TRANSFER) return 2;
    return wfi_type_of(now)->class == WFI_CLASS_CHANGE ? p->groups[now->group].n_lowered : 1;
}
/* The other space of a fetch or an evict. */
static inline wfi_space wfi_moved_space(const wf_program *p, const wfi_instruction *now) {
    return p->blocks[now->references[now->kind == WFI_EVICT].block].space;
}
/* By which rate it takes time, if not as long as its unit. */
static inline wfi_rate wfi_instruction_rate(const wf_program *p, const wfi_instruction *now) {
    if (wfi_type_of(now)->cost == WFI_COST_SPACE)
        return wfi_moved_space(p, now) == WFI_SPACE_DISK ? WFI_RATE_DISK : WFI_RATE_HOST;
    if (now->kind == WFI_PACK) return WFI_RATE_PACK;
    if (now->kind == WFI_CHANGE) return WFI_RATE_REDUCE;
    if (now->kind == WFI_FOLD || now->kind == WFI_TIE) return WFI_RATE_SUM;
    return wfi_type_of(now)->cost == WFI_COST_COPY ? WFI_RATE_COPY : WFI_RATE_UPDATE;
}
/* Returns the bytes that an instruction takes time for: those of its references, but a copy's once.
 * A member of an all-reduce of n bytes reads and writes n; of n ranks, the share of these that
 * another change moves. */
static inline double wfi_instruction_bytes(const wf_program *p, const wfi_instruction *i) {
    bool is_copy = i->kind == WFI_COPY || wfi_type_of(i)->cost == WFI_COST_SPACE;
    double bytes = 0, n = i->kind == WFI_CHANGE ? p->groups[i->group].n : 1;
    for (int32_t r = 0; r < (is_copy ? 1 : i->n_references); r++)
        bytes += (double)i->references[r].bytes;
    if (i->kind != WFI_CHANGE) return bytes;
    if (i->from != WFI_PARTIAL) return bytes * (1 - 1 / n);
    return i->to == WFI_REPLICATE ? bytes : bytes * (1 + 1 / n) / 2;
}

/* Whether b is a's part on another rank: they do the same to blocks of the same names. */
bool wfi_same_collective(const wf_program *p, const wfi_instruction *a, const wfi_instruction *b);

/* How many of each stream of its rank happen before instruction i, or are it. */
static inline const int32_t *wfi_clock_of(const wf_program *p, int32_t i) {
    return p->clock + (size_t)i * WFI_N_STREAMS;
}
/* Compares two instructions of one rank. */
static inline bool wfi_happens_before(const wf_program *p, int32_t a, int32_t b) {
    const wfi_instruction *i = &p->instructions[a];
    return a != b && wfi_clock_of(p, b)[i->stream] > i->position;
}

/* Adds the instruction's units, joined by "+", as they are on `rank`: its own rank, or one that
 * follows it. Adds nothing if there are none. */
void wfi_units_text(const wf_program *p, const wfi_instruction *now, int32_t rank, wfi_text *text);
/* One instruction as text, without its newline. */
void wfi_instruction_text(const wf_program *p, int32_t i, wfi_text *text);

/* Limit on the ranks of a job, in all its processes. */
#define WFI_MAX_RANKS 1024

/* How the recipe has nodes of a unit computed; borrows the program. */
wfi_kernel_options wfi_program_kernel_options(const wf_program *p, int32_t unit);
/* The same code once more, for a replica that needs kernels of its own. */
wf_status wfi_program_copy_code(const wf_program *p, int32_t variant, wfi_code **code_out);

/* Of a microbatch; -1: the first. */
static inline const wfi_micro_variant *wfi_program_variant(const wf_program *p, int64_t micro) {
    const wfi_micro_variant *v = &p->variants[p->n_variants - 1];
    while (v > p->variants && v->first_micro > micro) v--;
    return v;
}
static inline const wf_graph *wfi_program_graph_of(const wf_program *p, int64_t micro) {
    return wfi_program_variant(p, micro)->graph;
}
static inline const wfi_code *wfi_program_code_of(const wf_program *p, int64_t micro) {
    return wfi_program_variant(p, micro)->code;
}
/* The first sample of a microbatch, counted in the global batch. */
static inline int64_t wfi_program_first_sample(const wf_program *p, int64_t micro) {
    return wfi_first_sample(p->recipe.batch, p->recipe.n_micro, micro);
}
/* The PACKED block of its unit that a segment reads or packs (R reads the one packed for F); where
 * parameters are gathered, of each time, so many apart. */
enum { WFI_N_PACKED = WFI_MAX_MICRO_VARIANTS * WFI_N_PARTS };
static inline int32_t wfi_packed_depth(const wfi_segment *segment) {
    wfi_part part = segment->part == WFI_PART_R ? WFI_PART_F : segment->part;
    return (int32_t)part + segment->variant * WFI_N_PARTS;
}

/* The steps before scheduling: the recipe is resolved, the graph is made, stages are cut, kernels
 * are described. Nothing else of the program may be used yet. `like`: a program that passes on its
 * stages, because both will work on the same state; NULL: it finds its own. */
wf_status wfi_program_begin(wf_context *ctx, const wf_model *model, const wf_recipe *recipe,
                            const wf_plan *plan, const wfi_backend *backend, wf_program_kind kind,
                            wfi_program_use use, const wf_program *like, wf_program **program_out);
/* The passes from lowering to the proof. Errors: BUG: the actions do not make a step. */
wf_status wfi_program_compile(wf_program *p, const wfi_action_list *lists);

/* Which of the program and its tests needs most on the rank. */
const wf_program *wfi_program_largest(const wf_program *p, wfi_space space, int32_t rank);

/* Like wf_program_create, for a trainer, of that backend's kernels. Errors: UNSUPPORTED: it has
 * none for an op. */
wf_status wfi_program_create(wf_context *ctx, const wf_model *model, const wf_recipe *recipe,
                             const wf_plan *plan, const wfi_backend *backend, wf_program_kind kind,
                             wfi_program_use use, const wf_program *like, wf_program **program_out);

#endif
