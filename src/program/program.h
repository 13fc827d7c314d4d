/* The program: blocks of memory, in a device's spaces, and instructions on streams. Private.
 *
 * code/code.h and instruction.h define its parts.
 */
#pragma once

#include "kernel/backend.h"
#include "plan/lanes.h"
#include "plan/plan.h"
#include "program/instruction.h"
#include "recipe/recipe.h"

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
    bool is_trained;   /* a unit of it has parameters that are trained */
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
    int32_t n_lowered; /* of them */
    int32_t *runs;     /* [n_runs + 1] members runs[k] to runs[k + 1] - 1: a lowered one, or
                          neighbors that follow one lowered rank and move their pieces at once */
    int32_t n_runs;
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
    size_t optimizer_bytes, copied_bytes; /* these four as wf_rank_summary has them */
    int64_t n_parameters;
    int32_t n_units;
} wfi_rank;

/* The use of a program. Callers that only inspect it need one rank of each class of equal ranks. */
typedef enum wfi_program_use {
    WFI_USE_DRAFT,      /* the search for a plan needs only a time and the bounds of peaks */
    WFI_USE_LOOK_SHORT, /* and needs a steady phase that repeats only once (short_form.c) */
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
    int32_t *size_like;  /* [n_units] the first unit of that size */
    size_t *least_read;  /* [n_units] the fewest bytes of parameters that a segment reads of them */
    wfi_stage *stages;   /* [n_stages] */
    bool rotates_small;  /* replicas keep small divided tensors by turns; else the first has all */
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
    const wf_program *parts; /* of a draft: owns its model, graphs, code and costs */
    const wf_program *like;  /* while it is made: shares these arenas; its state must stay intact */
    /* Forward runs for evaluation: of whole pieces, and of the remainder; NULL: there is none. */
    wf_program *tests[2];
    int64_t n_test, n_at_once; /* samples of all of them; 0: as many as a microbatch */
    /* > 0, for tests: no two blocks or temporaries share bytes; gaps of this size separate them,
     * and writing to a gap is an error (execute/check/gaps.h). */
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
static inline const wf_program *wfi_emitted_of(const wf_program *p) {
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

/* Limit on the ranks of a job, in all its processes. */
#define WFI_MAX_RANKS 1024

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
static inline uint32_t wfi_packed_part(const wfi_segment *segment) {
    wfi_part part = segment->part == WFI_PART_R ? WFI_PART_F : segment->part;
    return (uint32_t)part + (uint32_t)segment->variant * WFI_N_PARTS;
}
