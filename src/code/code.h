/* Code: the kernels of one unit in one part of the step, and the places of their values. Code
 * belongs to one size of microbatches; it knows no rank, schedule or instruction. */
#pragma once

#include "kernel/backend.h"
#include "kernel/descriptions.h"
#include "plan/plan.h"

/* BW is B and W in one, with nothing kept between them. R recomputes, before B or BW, the values of
 * F that were not kept. */
typedef enum wfi_part {
    WFI_PART_F,
    WFI_PART_B,
    WFI_PART_W,
    WFI_PART_BW,
    WFI_PART_R,
    WFI_N_PARTS
} wfi_part;

/* Kinds of blocks: name in texts; owner: a unit, a value or a use of a weight; the part of
 * `offload` that says in which space it is kept. */
#define WFI_BLOCK_LIST(X)                                                                          \
    X(PARAM, "param", UNIT, PARAMS)           /* a unit's parameters, flat */                      \
    X(BUFFER, "buffer", UNIT, NONE)           /* a unit's buffers (running statistics), flat */    \
    X(STATE, "state", UNIT, STATE)            /* a unit's optimizer state, flat */                 \
    X(GRADIENT, "grad", UNIT, NONE)           /* a unit's gradients, flat; by accumulators */      \
    X(TIED, "tied", USE, NONE)                /* a tied use's summand of a lane */                 \
    X(PACKED, "packed", UNIT, NONE)           /* parameters in the kernels' formats; by parts */   \
    X(INPUT, "input", VALUE, ACTIVATIONS)     /* one input of one microbatch */                    \
    X(VALUE, "value", VALUE, ACTIVATIONS)     /* a value that leaves its unit */                   \
    X(SAVED, "saved", UNIT, ACTIVATIONS)      /* activations, from forward to backward */          \
    X(SAVED_W, "saved_w", UNIT, ACTIVATIONS)  /* the same, to the weight gradient */               \
    X(REMADE, "remade", UNIT, NONE)           /* recomputed values, for the backward */            \
    X(REMADE_W, "remade_w", UNIT, NONE)       /* the same, to the weight gradient */               \
    X(FOR_WEIGHT, "for_weight", UNIT, NONE)   /* from the input gradient to the weight's */        \
    X(WORKSPACE, "workspace", UNIT, NONE)     /* temporaries of one instruction */                 \
    X(STATS, "stats", UNIT, NONE)             /* batch statistics of one microbatch */             \
    X(HIDDEN, "hidden", UNIT, NONE)           /* hidden state of one microbatch, before a step */  \
    X(NEXT_HIDDEN, "next_hidden", UNIT, NONE) /* its next hidden state, after the step */          \
    X(RECORD, "record", UNIT, NONE)           /* loss and hits of one microbatch */                \
    X(STAGING, "staging", UNIT, NONE)         /* a collective's copies of others' gradients */     \
    X(NORM, "norm", UNIT, NONE)               /* sums of squares of gradients, by 1,024 */         \
    X(TOTAL_NORM, "total_norm", UNIT, NONE)   /* their sum: the global norm's square */

typedef enum wfi_block_kind {
#define ENUM(name, ...) WFI_BLOCK_##name,
    WFI_BLOCK_LIST(ENUM)
#undef ENUM
        WFI_N_BLOCK_KINDS
} wfi_block_kind;

typedef enum wfi_owner_kind { WFI_OWNER_UNIT, WFI_OWNER_VALUE, WFI_OWNER_USE } wfi_owner_kind;

/* A row of the table of kinds. */
typedef struct wfi_block_type {
    const char *name;
    wfi_owner_kind owner;
    wfi_offload offload; /* WFI_OFFLOAD_NONE: always on the device */
} wfi_block_type;
/* [WFI_N_BLOCK_KINDS] */
extern const wfi_block_type wfi_block_types[];
const char *wfi_block_kind_name(wfi_block_kind kind);

/* Ranks keep it, or a part of it, between steps. */
static inline bool wfi_is_kept(wfi_block_kind kind) {
    return kind == WFI_BLOCK_PARAM || kind == WFI_BLOCK_BUFFER || kind == WFI_BLOCK_STATE;
}
/* Microbatches of a lane add to it, and its first one assigns. */
static inline bool wfi_is_sum(wfi_block_kind kind) {
    return kind == WFI_BLOCK_GRADIENT || kind == WFI_BLOCK_TIED;
}

/* SPOIL, of a segment's slot: kernels also work in it, so no instruction may read the bytes
 * later. */
enum { WFI_READ = 1, WFI_WRITE = 2, WFI_SPOIL = 4 };

/* A block that an instruction must bind to run a segment. */
typedef struct wfi_slot {
    wfi_block_kind kind;
    int32_t id;   /* value (INPUT, VALUE, a parameter of another unit) or unit */
    int access;   /* READ | WRITE | SPOIL */
    size_t begin; /* of the part that this segment uses: not 0 of a VALUE of which it has rows */
    size_t bytes; /* from there on: the block is at least as large */
    /* A workspace has two sizes: if sums are added to, and if they are assigned (larger). */
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

/* Whether a part that sums gradients does more than to begin a sum with zeros, for other units that
 * use the unit's weights. */
static inline bool wfi_segment_adds(const wfi_segment *segment) {
    return segment->n_steps > 0;
}
/* Whether one of its nodes makes the value that owns its bytes, or a summand of it. */
bool wfi_segment_makes(const wfi_segment *segment, const wf_graph *g, int32_t root);

/* How a unit looks to lowering. */
typedef struct wfi_unit_code {
    wfi_segment *part[WFI_N_PARTS]; /* NULL: nothing to do */
    wfi_segment *pack[WFI_N_PARTS];
    size_t bytes[WFI_N_BLOCK_KINDS]; /* of blocks of a microbatch that hold several values */
    size_t given_bytes;              /* of values that forward makes for other units */
    int64_t n_parameters;
} wfi_unit_code;

/* Where each value is kept. */
typedef struct wfi_place {
    wfi_block_kind kind;
    int32_t unit;
    size_t offset, bytes;
    int32_t home;  /* it lies where that value does: itself, if nothing else */
    bool is_split; /* slices read some of its rows each, and no other unit reads it */
} wfi_place;

typedef struct wfi_code {
    wf_context *ctx;
    const wf_graph *g;
    bool splits_weight;
    size_t gap_bytes;               /* see wf_program */
    int32_t variant;                /* its number */
    int32_t n_tuned;                /* kernels that are as the recipe's table says */
    wfi_descriptions *descriptions; /* NULL: each kernel has its own, and can be run */
    wfi_unit_code *units;           /* [n_units] */
    wfi_place *place;               /* [n_values], of alias roots */
} wfi_code;

/* The root value at whose place v lies. */
static inline int32_t wfi_place_home(const wfi_code *code, int32_t v) {
    while (code->place[v].home != v) v = code->place[v].home;
    return v;
}

/* Describes a kernel for every node, or, if it is never run, for every different one; decides where
 * every value lives. `options` [n_units]. */
wf_status wfi_code_create(wf_context *ctx, const wf_graph *g, bool splits_weight, bool is_run,
                          int32_t variant, size_t gap_bytes, const wfi_kernel_options *options,
                          wfi_code **code_out);
void wfi_code_destroy(wfi_code *code);
/* Errors: BUG; the sentence names the unit and the kernel. */
wf_status wfi_code_check(const wfi_code *code);

/* slices.c: whether a value is a sum over slices; whether it is that, or slices have made rows of
 * it each. */
bool wfi_is_slice_sum(const wf_graph *g, int32_t value);
bool wfi_is_made_by_slices(const wf_graph *g, int32_t value);

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
