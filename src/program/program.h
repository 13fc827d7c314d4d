/* The program: blocks of memory, in a device's spaces, and instructions on streams. Private.
 *
 * How it comes about: place.c decides where values live, segment.c compiles each
 * unit's nodes into segments with a workspace (workspace.c); map.c puts stages on ranks; lower.c
 * follows the schedule and emits blocks and instructions; depend.c derives the
 * dependencies from what each instruction reads and writes; order.c finds what
 * happens before what; memory.c gives blocks their offsets. check.c proves the
 * result, without using any of them but order.c; instructions.c says what an instruction
 * touches.
 */
#ifndef WFI_PROGRAM_H
#define WFI_PROGRAM_H

#include "kernel/backend.h"
#include "plan/lanes.h"
#include "plan/part.h"
#include "plan/plan.h"

#include <weft/program.h>
#include <weft/timeline.h>

/* ---- segments: the code of one unit in one part of the step ---- */

/* BW is B and W in one, with nothing kept between them. R, before B or BW, makes again what was
 * not kept of F. */
typedef enum wfi_part {
    WFI_PART_F,
    WFI_PART_B,
    WFI_PART_W,
    WFI_PART_BW,
    WFI_PART_R,
    WFI_N_PARTS
} wfi_part;

/* name, what is in the block */
#define WFI_BLOCK_LIST(X)                                                                          \
    X(PARAM, "param")           /* a unit's parameters, flat */                                    \
    X(BUFFER, "buffer")         /* a unit's buffers (running statistics), flat */                  \
    X(STATE, "state")           /* a unit's optimizer state, flat */                               \
    X(GRADIENT, "grad")         /* a unit's accumulated gradients, flat; one a depth */            \
    X(TIED, "tied")             /* what a use of a tied weight adds to a lane of its gradient */   \
    X(PACKED, "packed")         /* parameters in the kernels' formats */                           \
    X(INPUT, "input")           /* one input of one microbatch */                                  \
    X(VALUE, "value")           /* a value that leaves its unit */                                 \
    X(SAVED, "saved")           /* saved activations, from forward to backward of a unit */        \
    X(SAVED_W, "saved_w")       /* the same, to the weight gradient */                             \
    X(REMADE, "remade")         /* what was not saved and is made again, to the backward */        \
    X(REMADE_W, "remade_w")     /* the same, to the weight gradient */                             \
    X(FOR_WEIGHT, "for_weight") /* from the input gradient to the weight gradient */               \
    X(WORKSPACE, "workspace")   /* temporaries and scratchpads of one instruction */               \
    X(STATS, "stats")           /* batch statistics of one microbatch of a unit */                 \
    X(RECORD, "record")         /* loss and hits of one microbatch */                              \
    X(STAGING, "staging")       /* what an all-reduce copies of other ranks' gradients */          \
    X(NORM, "norm")             /* sums of squares of gradients, by 1,024 elements */

typedef enum wfi_block_kind {
#define ENUM(name, text) WFI_BLOCK_##name,
    WFI_BLOCK_LIST(ENUM)
#undef ENUM
        WFI_N_BLOCK_KINDS
} wfi_block_kind;
const char *wfi_block_kind_name(wfi_block_kind kind);

/* Microbatches of a lane add to it, and its first one assigns. */
static inline bool wfi_is_sum(wfi_block_kind kind) {
    return kind == WFI_BLOCK_GRADIENT || kind == WFI_BLOCK_TIED;
}

/* SPOIL, of a segment's slot: it works there, too, and nobody may read the bytes after it. */
enum { WFI_READ = 1, WFI_WRITE = 2, WFI_SPOIL = 4 };

/* What an instruction must bind for a segment to run. */
typedef struct wfi_slot {
    wfi_block_kind kind;
    int32_t id;   /* value (INPUT, VALUE, a parameter of another unit) or unit */
    int access;   /* READ | WRITE | SPOIL */
    size_t bytes; /* of the part that this segment uses: the block is at least as large */
    /* Of a workspace, whose bytes are the larger: if sums are added to, if they are assigned. */
    size_t workspace_bytes[2];
} wfi_slot;

typedef struct wfi_address {
    int32_t slot; /* -1: absent */
    size_t offset;
} wfi_address;

typedef struct wfi_segment_step {
    wfi_kernel *kernel;
    wfi_kernel *kernel_add; /* of sums, or NULL: for every microbatch of a lane but the first */
    wfi_address operand[WFI_MAX_OPERANDS];
    wfi_address scratch;
    int32_t summand; /* accumulate: the value that it adds, otherwise -1 */
} wfi_segment_step;

typedef struct wfi_segment {
    int32_t unit;
    wfi_part part;
    bool is_pack;    /* packs the parameters that `part` wants packed */
    int32_t variant; /* of which it is */
    wfi_slot *slots;
    wfi_segment_step *steps;
    int32_t n_slots, n_steps;
    size_t slot_capacity, step_capacity;
    double flops;
} wfi_segment;

/* Whether one of its nodes makes the value that owns its bytes, or a summand of it. */
bool wfi_segment_makes(const wfi_segment *segment, const wf_graph *g, int32_t root);

/* How a unit looks to lowering. */
typedef struct wfi_unit_code {
    wfi_segment *part[WFI_N_PARTS]; /* NULL: nothing to do */
    wfi_segment *pack[WFI_N_PARTS];
    size_t saved_bytes, saved_w_bytes, remade_bytes, remade_w_bytes, for_weight_bytes, stats_bytes;
} wfi_unit_code;

/* Where each value is kept. */
typedef struct wfi_place {
    wfi_block_kind kind;
    int32_t unit;
    size_t offset, bytes;
    int32_t home; /* it lies where that value does: itself, if nothing else */
} wfi_place;

typedef struct wfi_code {
    wf_context *ctx;
    const wf_graph *g;
    bool splits_weight;
    size_t gap_bytes;     /* see wf_program */
    int32_t variant;      /* its number */
    wfi_unit_code *units; /* [n_units] */
    wfi_place *place;     /* [n_values], of alias roots */
} wfi_code;

/* The value whose place is that of root v. */
static inline int32_t wfi_place_home(const wfi_code *code, int32_t v) {
    while (code->place[v].home != v) v = code->place[v].home;
    return v;
}

/* Describes a kernel for every node, decides where every value lives. */
wf_status wfi_code_create(wf_context *ctx, const wf_graph *g, bool splits_weight, int32_t variant,
                          size_t gap_bytes, const wfi_kernel_options *options, wfi_code **code_out);
void wfi_code_destroy(wfi_code *code);
/* Errors: BUG; the sentence names the unit and the kernel. */
wf_status wfi_code_check(const wfi_code *code);

/* place.c */
wf_status wfi_code_place_values(wfi_code *code, wfi_kernel *const *kernels);

/* A temporary of a segment: alive from one step to another. */
typedef struct wfi_temporary {
    int32_t value; /* -1: a scratchpad */
    int32_t first, last;
    size_t bytes, offset;
} wfi_temporary;

/* Gives offsets, largest first at the lowest that is free; with a gap, each its own place. */
wf_status wfi_workspace_pack(wf_context *ctx, wfi_temporary *t, int32_t n, size_t gap_bytes,
                             size_t *bytes_out);

/* ---- blocks and instructions ---- */

typedef enum wfi_stream {
    WFI_STREAM_COMPUTE,
    WFI_STREAM_COPY,
    WFI_STREAM_SEND,
    WFI_STREAM_RECEIVE,
    WFI_STREAM_REDUCE,
    WFI_N_STREAMS
} wfi_stream;
const char *wfi_stream_name(wfi_stream stream);

/* What an instruction is: how it is proved, and who takes part in it. */
typedef enum wfi_instruction_class {
    WFI_CLASS_HOST,        /* between a block and the host */
    WFI_CLASS_SEGMENT,     /* runs a unit's kernels */
    WFI_CLASS_ELEMENTWISE, /* each element that it writes is made of those at the same place */
    WFI_CLASS_COPY,        /* its second reference becomes what its first is */
    WFI_CLASS_WHOLE,       /* what it writes is made of all that it reads */
    WFI_CLASS_TRANSFER,    /* from one rank to another */
    WFI_CLASS_CHANGE       /* a collective */
} wfi_instruction_class;

typedef enum wfi_instruction_cost {
    WFI_COST_UNIT,  /* of the unit, for the part */
    WFI_COST_COPY,  /* a copy of its bytes */
    WFI_COST_SPACE, /* the same between spaces */
    WFI_COST_TOUCH  /* arithmetic over its bytes */
} wfi_instruction_cost;

/* What its `unit` is: not looked at, any, or that of its first block; and what its `id` is. */
typedef enum wfi_unit_meaning { WFI_UNIT_NONE, WFI_UNIT_ANY, WFI_UNIT_OWN } wfi_unit_meaning;
typedef enum wfi_id_meaning {
    WFI_ID_NONE,
    WFI_ID_DEPTH,
    WFI_ID_VALUE,
    WFI_ID_OUTPUT,
    WFI_ID_TIED
} wfi_id_meaning;

/* Kind, name, stream, class, span in a timeline, cost, unit, id; then functions of instructions.c:
 * how many references, what each needs, arguments as text. A kind is a row here, what its row
 * names there, and, if it is of one rank, how it runs (run/instructions.c). */
#define WFI_INSTRUCTION_LIST(X)                                                                    \
    X(LOAD, "load", COPY, HOST, HOST, COPY, NONE, VALUE, load, input, input)                       \
    X(PACK, "pack", COMPUTE, SEGMENT, UPDATE, COPY, ANY, NONE, slots, slot, pack)                  \
    X(FORWARD, "forward", COMPUTE, SEGMENT, FORWARD, UNIT, ANY, NONE, slots, slot, none)           \
    X(RECOMPUTE, "recompute", COMPUTE, SEGMENT, RECOMPUTE, UNIT, ANY, NONE, slots, slot, none)     \
    X(BACKWARD, "backward", COMPUTE, SEGMENT, BACKWARD, UNIT, ANY, NONE, slots, slot, none)        \
    X(WEIGHT, "weight", COMPUTE, SEGMENT, WEIGHT, UNIT, ANY, DEPTH, slots, slot, sum)              \
    X(BACKWARD_WEIGHT, "backward+weight", COMPUTE, SEGMENT, BACKWARD_WEIGHT, UNIT, ANY, DEPTH,     \
      slots, slot, sum)                                                                            \
    X(COPY, "copy", COPY, COPY, TRANSFER, COPY, OWN, NONE, two, copy, copy)                        \
    X(FETCH, "fetch", COPY, COPY, TRANSFER, SPACE, ANY, VALUE, two, fetch, moved)                  \
    X(EVICT, "evict", COPY, COPY, TRANSFER, SPACE, ANY, VALUE, two, evict, moved)                  \
    X(FOLD, "fold", COMPUTE, ELEMENTWISE, UPDATE, TOUCH, ANY, DEPTH, two, fold, depth)             \
    X(CHANGE, "change", REDUCE, CHANGE, REDUCE, TOUCH, NONE, NONE, pieces, piece, change)          \
    X(TIE, "tie", COMPUTE, ELEMENTWISE, UPDATE, TOUCH, OWN, TIED, two, tie, none)                  \
    X(NORM, "norm", COMPUTE, ELEMENTWISE, UPDATE, TOUCH, OWN, NONE, two, norm, none)               \
    X(UPDATE, "update", COMPUTE, ELEMENTWISE, UPDATE, TOUCH, OWN, NONE, update, update, none)      \
    X(FOLD_STATS, "fold_stats", COMPUTE, WHOLE, UPDATE, TOUCH, OWN, NONE, stats, stats, none)      \
    X(SEND, "send", SEND, TRANSFER, TRANSFER, COPY, ANY, VALUE, one, transfer, transfer)           \
    X(RECEIVE, "receive", RECEIVE, TRANSFER, TRANSFER, COPY, ANY, VALUE, one, transfer, transfer)  \
    X(REPORT, "report", COPY, HOST, HOST, COPY, NONE, NONE, records, record, none)                 \
    X(STORE, "store", COPY, HOST, HOST, COPY, NONE, OUTPUT, one, output, output)

typedef enum wfi_instruction_kind {
#define ENUM(kind, ...) WFI_##kind,
    WFI_INSTRUCTION_LIST(ENUM)
#undef ENUM
        WFI_N_INSTRUCTION_KINDS
} wfi_instruction_kind;

typedef struct wfi_block {
    int32_t rank;
    wfi_block_kind kind;
    int32_t id;    /* unit or value; TIED: weight gradient */
    int32_t depth; /* GRADIENT: accumulator, or see wfi_summed_depth; PACKED: part; else see
                      wfi_kept_depth */
    int64_t micro; /* global microbatch, -1: of the step; TIED: the last of the lane */
    bool is_state; /* lives for ever */
    wfi_space space;
    size_t bytes, offset; /* the latter in the rank's arena of that space */
    int64_t begin;        /* which byte of what it is named for its first byte is */
} wfi_block;

typedef struct wfi_reference {
    int32_t block;
    size_t offset, bytes;
    int access;
} wfi_reference;

typedef struct wfi_instruction {
    wfi_instruction_kind kind;
    int32_t rank;
    wfi_stream stream;
    int32_t position;       /* in its stream, from 0 */
    int32_t unit;           /* or -1 */
    int32_t id;             /* value, depth, tied weight: by kind */
    int64_t micro;          /* global, or -1 */
    int32_t peer;           /* rank, or -1 */
    int32_t group;          /* CHANGE: who takes part, otherwise -1 */
    wfi_placement from, to; /* CHANGE */
    wfi_part part;
    bool first; /* WEIGHT, BACKWARD_WEIGHT: the first of its lane assigns */
    const wfi_segment *segment;
    wfi_reference *references; /* a segment's slots in their order, or by kind */
    int32_t n_references;
    int32_t *depends; /* instructions of other streams of this rank */
    int32_t n_depends;
} wfi_instruction;

/* What a reference of an instruction has to be. */
typedef struct wfi_need {
    wfi_block_kind kind;
    wfi_extent extent; /* of what the block is named for */
    int access;
    wfi_space space;
} wfi_need;

/* A row of the table of instructions. */
typedef struct wfi_instruction_type {
    const char *name;
    wfi_stream stream;
    wfi_instruction_class class;
    wf_span_kind span;
    wfi_instruction_cost cost;
    wfi_unit_meaning unit;
    wfi_id_meaning id;
    int32_t (*n_references)(const wf_program *p, const wfi_instruction *now);
    wfi_need (*need)(const wf_program *p, const wfi_instruction *now, int32_t k);
    void (*arguments)(const wf_program *p, const wfi_instruction *now, wfi_text *text);
} wfi_instruction_type;
/* [WFI_N_INSTRUCTION_KINDS] */
extern const wfi_instruction_type wfi_instruction_types[];
static inline const wfi_instruction_type *wfi_type_of(const wfi_instruction *now) {
    return &wfi_instruction_types[now->kind];
}

/* Its kind's name, or the collective's; and which of all names that is. */
const char *wfi_instruction_name(const wfi_instruction *now);
static inline int32_t wfi_instruction_name_number(const wfi_instruction *now) {
    int32_t change = (int32_t)now->from * WFI_N_PLACEMENTS + (int32_t)now->to;
    return now->kind == WFI_CHANGE ? WFI_N_INSTRUCTION_KINDS + change : (int32_t)now->kind;
}
enum { WFI_N_INSTRUCTION_NAMES = WFI_N_INSTRUCTION_KINDS + WFI_N_PLACEMENTS * WFI_N_PLACEMENTS };

/* A run of units that are placed alike. Its replicas are ranks of one `pp` coordinate, each with
 * an equal part of the microbatches, in their order. A rank may be on several stages. */
typedef struct wfi_stage {
    const wfi_strategy *strategy;
    int32_t number;       /* of the pipeline's stage that it is, or is a part of */
    int32_t pp, first_dp; /* coordinates of the first replica */
    int32_t n_replicas;
    int32_t n_members; /* ranks that have something of it: replicas, and in a forward run those that
                          keep parts of its parameters, too */
    int32_t n_parts;   /* of what is SHARD: member k has number k % n_parts */
    int32_t first_group; /* if it has fewer parts than members: of runs of members that have all
                            parts, then of members that have the same one; otherwise -1 */
    wfi_lane_sums sums;  /* of a replica's lanes */
} wfi_stage;

/* Ranks that are members of the same collectives. */
typedef struct wfi_group {
    int32_t *ranks; /* ascending */
    int32_t n;
    int32_t n_lowered;     /* of them */
    int32_t stage;         /* of which they are replicas; -1: they share a norm */
    int32_t first, n_each; /* member k stands for n_each replicas from first + k * n_each on */
    int32_t part;          /* which part all of them have; -1: the whole, or each its own */
} wfi_group;

/* What a rank needs of a space. */
typedef struct wfi_arena_plan {
    size_t state_bytes, peak_bytes, bound_bytes;
} wfi_arena_plan;

typedef struct wfi_rank {
    int32_t like;   /* the lowered rank that it follows, with microbatches of its own; or itself */
    int32_t n_like; /* lowered: how many follow it, and itself */
    int32_t row;    /* lowered: its place among those */
    int32_t *stream[WFI_N_STREAMS]; /* instruction indices */
    int32_t n_stream[WFI_N_STREAMS];
    wfi_arena_plan arenas[WFI_N_SPACES];
    size_t sent_bytes, received_bytes;   /* in one step, to and from other ranks */
    size_t fetched_bytes, evicted_bytes; /* and other spaces */
    int32_t peak_instruction;            /* of the device */
} wfi_rank;

/* What a program is made for. Who only looks at it needs one of each class of equal ranks. */
typedef enum wfi_program_use {
    WFI_USE_LOOK,
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

struct wf_program {
    wf_context *ctx;
    wf_program_kind kind;
    wf_recipe recipe; /* resolved */
    wf_plan *plan;
    wf_model *model;                                    /* for programs of other batch sizes */
    wfi_micro_variant variants[WFI_MAX_MICRO_VARIANTS]; /* [n_variants] by their first microbatch */
    int32_t n_variants;
    wf_graph *graph; /* the first variant's, and its code: what sizes do not change is theirs */
    wfi_code *code;
    wfi_pool pool; /* instructions' arrays */

    wfi_mesh mesh;
    int32_t n_ranks, n_stages;
    int32_t n_replicas;  /* of the stage that has most */
    int32_t *first_unit; /* [n_stages + 1] */
    wfi_stage *stages;   /* [n_stages] */
    /* [n_groups] the members of each stage, for each `tp` coordinate; then some of them; then ranks
     * that share the norm; then, if there are several, ranks that divide slices. */
    wfi_group *groups;
    int32_t n_groups, first_norm_group, first_slice_group;
    wfi_lane_sums slice_sums; /* of a rank's slices */
    wf_costs *costs;          /* of the graph's units */
    wfi_rank *ranks;
    int32_t *lowered; /* [n_lowered] ranks that have blocks and instructions, ascending */
    int32_t n_lowered;
    wfi_block *blocks;
    wfi_instruction *instructions;
    int32_t n_blocks, n_instructions;
    size_t block_capacity, instruction_capacity;
    wfi_program_use use;
    /* > 0, for tests: no two blocks or temporaries share bytes, and so many lie between them, which
     * nobody may write (run/gaps.h). */
    size_t gap_bytes;

    /* order.c: clock[i * n_clocks + row * WFI_N_STREAMS + stream] = how many
     * instructions of that rank's stream happen before (or are) instruction i. */
    int32_t *clock;
    int32_t *order; /* a legal order of all instructions */
    int32_t n_clocks;
};

static inline int32_t wfi_program_stage_of(const wf_program *p, int32_t unit) {
    int32_t s = 0;
    while (p->first_unit[s + 1] <= unit) s++;
    return s;
}
static inline int32_t wfi_program_rank_of(const wf_program *p, int32_t replica, int32_t stage,
                                          int32_t tp) {
    const wfi_stage *s = &p->stages[stage];
    return wfi_mesh_rank(p->mesh, tp, s->pp, s->first_dp + replica);
}
/* Microbatches of one step and of one replica. */
static inline int64_t wfi_program_n_micro(const wf_program *p) {
    return p->recipe.n_micro;
}
static inline int64_t wfi_stage_n_micro(const wf_program *p, int32_t stage) {
    return p->recipe.n_micro / p->stages[stage].n_replicas;
}
static inline int32_t wfi_stage_replica_of(const wf_program *p, int32_t stage, int64_t micro) {
    return (int32_t)(micro / wfi_stage_n_micro(p, stage));
}
/* Where the stage is done for a microbatch. */
static inline int32_t wfi_stage_rank_of(const wf_program *p, int32_t stage, int64_t micro,
                                        int32_t tp) {
    return wfi_program_rank_of(p, wfi_stage_replica_of(p, stage, micro), stage, tp);
}
/* Slices of a `tp` coordinate are neighbours; what is no slice, all ranks of a stage have. */
static inline int32_t wfi_tp_of(const wf_program *p, int32_t unit) {
    const wfi_unit *u = &p->graph->units[unit];
    return u->is_slice ? u->slice / (p->graph->n_slices / p->mesh.tp) : 0;
}
static inline bool wfi_unit_is_on(const wf_program *p, int32_t unit, int32_t rank) {
    return !p->graph->units[unit].is_slice || wfi_tp_of(p, unit) == wfi_mesh_tp(p->mesh, rank);
}
/* Whether a value is the sum of what slices give. */
bool wfi_is_slice_sum(const wf_graph *g, int32_t value);
/* Whether that is what the slot of a slice's segment gives a summand of. */
static inline bool wfi_gives_summand(const wf_program *p, const wfi_segment *segment,
                                     const wfi_slot *slot) {
    return p->graph->units[segment->unit].is_slice && slot->kind == WFI_BLOCK_VALUE &&
           slot->access & WFI_WRITE && !(slot->access & WFI_SPOIL) &&
           wfi_is_slice_sum(p->graph, slot->id);
}
/* Which of its rank's slices a unit is. */
static inline int32_t wfi_local_slice(const wf_program *p, int32_t unit) {
    return p->graph->units[unit].slice % (p->graph->n_slices / p->mesh.tp);
}
static inline bool wfi_rank_is_lowered(const wf_program *p, int32_t rank) {
    return p->ranks[rank].like == rank;
}
/* Which microbatch a rank has where the one that it follows has `micro`. */
static inline int64_t wfi_rank_micro(const wf_program *p, int32_t rank, int64_t micro) {
    int32_t apart = wfi_mesh_dp(p->mesh, rank) - wfi_mesh_dp(p->mesh, p->ranks[rank].like);
    return micro < 0 ? micro : micro + apart * (p->recipe.n_micro / p->mesh.dp);
}
/* Which member of the stage the rank is, and which replica; -1: none. */
int32_t wfi_stage_member_on(const wf_program *p, int32_t stage, int32_t rank);
int32_t wfi_stage_replica_on(const wf_program *p, int32_t stage, int32_t rank);
/* The group of the rank, a member of the stage: of all members; that in which all parts are once;
 * and that of members with the same part, or -1: it has one alone. */
int32_t wfi_stage_members(const wf_program *p, int32_t stage, int32_t rank);
int32_t wfi_stage_shards(const wf_program *p, int32_t stage, int32_t rank);
int32_t wfi_stage_copies(const wf_program *p, int32_t stage, int32_t rank);
/* Whether the rank updates what the stage has, or a part of it. */
bool wfi_stage_is_updated(const wf_program *p, int32_t stage, int32_t rank);
/* What of the unit's flat buffer the rank has in a PARAM, BUFFER or STATE between steps. STATE is
 * counted in parameters: it has as many for each of the optimizer's states, one after the other. */
wfi_extent wfi_kept_extent(const wf_program *p, wfi_block_kind kind, int32_t unit, int32_t rank);
/* What of that is trained. */
static inline wfi_extent wfi_trained_extent(const wf_program *p, int32_t unit, wfi_extent extent) {
    return wfi_extent_intersect(extent, (wfi_extent){0, p->graph->units[unit].trained_bytes});
}
/* What a fetch or an evict moves: of a PARAM or STATE of the unit, what the rank keeps; of
 * activations of a microbatch, all (`value`: of a VALUE or INPUT). */
wfi_extent wfi_moved_extent(const wf_program *p, wfi_block_kind kind, int32_t unit, int32_t value,
                            int64_t micro, int32_t rank);
/* Which PARAM or STATE of a unit ranks keep: 0, the one that they compute with, or
 * WFI_KEPT_DEPTH, a slice, or what is kept in another space; then those to compute with are there
 * for a while, and are of WFI_GATHERED_DEPTH and on; a slice that is updated while it is not where
 * it is kept is of WFI_SLICE_DEPTH. */
int32_t wfi_kept_depth(const wf_program *p, wfi_block_kind kind, int32_t unit);
enum { WFI_SLICE_DEPTH = -1, WFI_KEPT_DEPTH = 1, WFI_GATHERED_DEPTH = 2 };
/* What forward leaves for backward, of one microbatch. */
static inline bool wfi_is_activation(wfi_block_kind kind) {
    return kind == WFI_BLOCK_SAVED || kind == WFI_BLOCK_SAVED_W || kind == WFI_BLOCK_VALUE ||
           kind == WFI_BLOCK_INPUT;
}
/* In which space blocks of the kind and of WFI_KEPT_DEPTH lie. */
wfi_space wfi_kept_space(const wf_program *p, wfi_block_kind kind);
/* Whether a unit of the stage reads those parameters. */
bool wfi_stage_reads_parameters(const wf_program *p, int32_t stage, int32_t unit);
/* The place of the rank in the group; -1: none. */
int32_t wfi_group_find(const wfi_group *group, int32_t rank);
/* Ranks are different threads, and a kernel is bound to one: ranks on the same stage have kernels
 * of different sets. */
static inline int32_t wfi_program_kernel_set(const wf_program *p, int32_t rank) {
    return wfi_mesh_dp(p->mesh, rank) * p->mesh.tp + wfi_mesh_tp(p->mesh, rank);
}
/* Whose weight a weight gradient is, and whether it is tied: used by another unit, too. */
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
    return (int32_t)(micro % wfi_stage_n_micro(p, stage) / (p->recipe.n_micro / p->recipe.n_lanes));
}
/* Whether its gradients are summed over replicas in another order than the recipe's tree. */
static inline bool wfi_stage_rotates(const wf_program *p, int32_t stage) {
    const wfi_stage *s = &p->stages[stage];
    return p->plan->allreduce->rotates && s->strategy->gradient == WFI_REPLICATE &&
           s->n_replicas > 2;
}
/* The sums of squares of a part of a unit's gradient, among all of the unit's. */
wfi_extent wfi_norm_extent(wfi_extent gradient);
/* What of a unit's gradient the rank has once it is summed over replicas, of those that update. */
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
/* An all-reduce has an algorithm; NULL: who gets a piece reads it from whom has it, or has
 * summands of it. */
static inline const wfi_allreduce *wfi_change_algorithm(const wf_program *p,
                                                        const wfi_instruction *now) {
    return wfi_is_reduction(now) && now->to == WFI_REPLICATE ? p->plan->allreduce : NULL;
}
/* How many pieces it moves: its references but the staging, which is the last. */
static inline int32_t wfi_n_moved(const wf_program *p, const wfi_instruction *now) {
    const wfi_allreduce *how = wfi_change_algorithm(p, now);
    return now->n_references - (how && how->n_staged);
}
int32_t wfi_change_n_phases(const wf_program *p, const wfi_instruction *now);
/* What member `own` does about piece r of a change in a phase; `now` is its instruction, or any
 * member's of an all-reduce.
 * Elements are of 4 bytes. Fills steps [at most as many as members] and returns how many. */
int32_t wfi_change_steps(const wf_program *p, const wfi_instruction *now, int32_t own, int32_t r,
                         int32_t phase, wfi_reduce_step *steps);
/* Bytes that a member stages of others' pieces: of one after the other, so the largest counts. */
size_t wfi_change_staged_bytes(const wf_program *p, const wfi_instruction *now);

/* Of a thing that a change moves: some of its bytes, and the member whose part they are. */
typedef struct wfi_piece {
    wfi_extent extent;
    int32_t owner;
} wfi_piece;
/* Of a PARAM, GRADIENT, STATS or NORM; pieces may be empty. */
int32_t wfi_n_pieces(const wf_program *p, const wfi_instruction *now, wfi_block_kind kind,
                     int32_t id);
wfi_piece wfi_find_piece(const wf_program *p, const wfi_instruction *now, wfi_block_kind kind,
                         int32_t id, int64_t micro, int32_t k);
/* That of a reference. Owner -1: it is none. */
wfi_piece wfi_named_piece(const wf_program *p, const wfi_instruction *now, int32_t r);
/* What of the unit's gradient the rank measures for the group. */
wfi_extent wfi_measured_extent(const wf_program *p, const wfi_group *group, int32_t unit,
                               int32_t rank);
/* How the member of that number accesses a piece; 0: it has no part in it. */
int wfi_piece_access(const wfi_instruction *now, int32_t member, const wfi_piece *piece);

/* How many references; -1: it is no instruction that could be run. */
int32_t wfi_n_references_needed(const wf_program *p, const wfi_instruction *now);
/* What reference k, of as many, needs. False: the instruction names what is not there. */
bool wfi_reference_needs(const wf_program *p, const wfi_instruction *now, int32_t k,
                         wfi_need *need_out);
/* Bytes of a rank's PARAM, BUFFER or STATE of a unit. */
size_t wfi_state_bytes(const wf_program *p, wfi_block_kind kind, int32_t unit, int32_t rank);

/* Which byte of what its block is named for a reference begins with. */
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
    return wfi_type_of(now)->cost == WFI_COST_COPY ? WFI_RATE_COPY : WFI_RATE_UPDATE;
}
/* That an instruction reads or writes. */
static inline size_t wfi_instruction_bytes(const wfi_instruction *i) {
    size_t bytes = 0;
    for (int32_t r = 0; r < i->n_references; r++) bytes += i->references[r].bytes;
    return bytes;
}

/* ---- passes ---- */

/* map.c: which units are a stage, which rank is on which, and in which group. `like`: see
 * wfi_program_begin. */
wf_status wfi_program_map(wf_program *p, const wf_program *like);
/* classes.c: which ranks are lowered, and which ones follow them. */
wf_status wfi_program_find_classes(wf_program *p);
/* Those that follow get what has been found for the lowered ones. */
void wfi_program_share(wf_program *p);
/* The actions of each rank [n_ranks], microbatches counted in the step; free with
 * wfi_schedule_free. */
wf_status wfi_program_schedule(const wf_program *p, wfi_action_list **lists_out);
/* What a microbatch takes on a stage, and a message between stages (of the slowest pair), in us;
 * the stages begin with first_unit[n_stages + 1]. */
void wfi_program_stage_times(const wf_program *p, const int32_t *first_unit, int32_t stage,
                             wfi_stage_times *times_out);
double wfi_program_transfer_time(const wf_program *p, const int32_t *first_unit, int32_t n_stages);
/* Bytes that a part of a unit reads of what units made in forward, beside what the unit saved. */
size_t wfi_program_read_bytes(const wf_program *p, int32_t unit, wfi_part part);
/* What the plan's schedule is made for, its stages being those; the arrays are the pool's. Needs
 * nothing of the program but its graph, costs and code. */
wf_status wfi_program_request(const wf_program *p, const int32_t *first_unit, wfi_pool *pool,
                              wfi_schedule_request *request_out);
/* choose.c: schedule=auto that leaves it open how many stages each rank has becomes the plan whose
 * step is shortest. */
wf_status wfi_program_choose_chunks(const wf_program *p);
/* rounds.c: the same where the replicas are no pipelines of their own. */
wf_status wfi_program_rounds(const wf_program *p, wfi_action_list **lists_out);
/* recompute.c: the program of a plan that leaves it to us what is computed again, and computes
 * nothing again, becomes one that fits into the plan's memory, if there is any. */
wf_status wfi_program_choose_recompute(wf_program **program);
/* That each rank's actions are those of a step on its stages: F, B and W (or BW) of each microbatch
 * once and in this order, gradients of a lane in ascending order. What ranks do to each other is
 * left to order.c. Errors: BUG; the sentence names the stage and the action. */
wf_status wfi_program_check_actions(const wf_program *p, const wfi_action_list *lists);
wf_status wfi_program_lower(wf_program *p, const wfi_action_list *lists);
/* Reads and writes -> dependencies; drops those that others imply. */
wf_status wfi_program_depend(wf_program *p);
/* Fills clock and order. Errors: BUG: a deadlock; the sentence names who waits. */
wf_status wfi_program_order(wf_program *p);
wf_status wfi_program_place(wf_program *p);
/* Bytes that each rank sends and receives. */
wf_status wfi_program_count_traffic(wf_program *p);

/* Whether b is a's part on another rank: they do the same to blocks of the same names. */
bool wfi_same_collective(const wf_program *p, const wfi_instruction *a, const wfi_instruction *b);

/* How many of each stream of the rank happen before instruction i, or are it. */
static inline const int32_t *wfi_clock_of(const wf_program *p, int32_t i, int32_t rank) {
    return p->clock + (size_t)i * (size_t)p->n_clocks + (size_t)p->ranks[rank].row * WFI_N_STREAMS;
}
static inline bool wfi_happens_before(const wf_program *p, int32_t a, int32_t b) {
    const wfi_instruction *i = &p->instructions[a];
    return a != b && wfi_clock_of(p, b, i->rank)[i->stream] > i->position;
}

/* The units that it is about, joined by "+"; nothing if there are none. */
void wfi_units_text(const wf_program *p, const wfi_instruction *now, wfi_text *text);
/* One instruction as text, without its newline. */
void wfi_instruction_text(const wf_program *p, int32_t i, wfi_text *text);

/* Of a job, whichever processes they live in. */
#define WFI_MAX_RANKS 1024

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
/* Of a microbatch, counted in the global batch. */
static inline int64_t wfi_program_first_sample(const wf_program *p, int64_t micro) {
    return wfi_first_sample(p->recipe.batch, p->recipe.n_micro, micro);
}
/* Which PACKED block of its unit a segment reads or packs (R reads what is packed for F); where
 * parameters are gathered, of each time, so many apart. */
enum { WFI_N_PACKED = WFI_MAX_MICRO_VARIANTS * WFI_N_PARTS };
static inline int32_t wfi_packed_depth(const wfi_segment *segment) {
    wfi_part part = segment->part == WFI_PART_R ? WFI_PART_F : segment->part;
    return (int32_t)part + segment->variant * WFI_N_PARTS;
}

/* What comes before the schedule: the recipe is resolved, the graph is made, stages are cut,
 * kernels are described. Nothing else of the program may be used yet. `like`: a program whose
 * stages it takes, because both will work on the same state; NULL: it finds its own. */
wf_status wfi_program_begin(wf_context *ctx, const wf_model *model, const wf_recipe *recipe,
                            const wf_plan *plan, wf_program_kind kind, wfi_program_use use,
                            const wf_program *like, wf_program **program_out);
/* The passes from lowering to the proof. Errors: BUG: the actions do not make a step. */
wf_status wfi_program_compile(wf_program *p, const wfi_action_list *lists);

/* Like wf_program_create, for a trainer. */
wf_status wfi_program_create(wf_context *ctx, const wf_model *model, const wf_recipe *recipe,
                             const wf_plan *plan, wf_program_kind kind, wfi_program_use use,
                             const wf_program *like, wf_program **program_out);

#endif
