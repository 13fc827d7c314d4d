/* Blocks of memory and instructions, and the table of all kinds of instructions. */
#pragma once

#include "code/code.h"

#include <weft/program.h>
#include <weft/timeline.h>

#include <string.h>

typedef enum wfi_stream {
    WFI_STREAM_COMPUTE,
    WFI_STREAM_COPY,
    WFI_STREAM_SEND,
    WFI_STREAM_RECEIVE,
    WFI_STREAM_REDUCE,
    WFI_N_STREAMS
} wfi_stream;
const char *wfi_stream_name(wfi_stream stream);

/* The class of an instruction determines its proof and its participants. */
typedef enum wfi_instruction_class {
    WFI_CLASS_HOST,        /* between a block and the host */
    WFI_CLASS_SEGMENT,     /* runs a unit's kernels */
    WFI_CLASS_ELEMENTWISE, /* each element that it writes is made of those at the same place */
    WFI_CLASS_COPY,        /* its second reference becomes a copy of its first */
    WFI_CLASS_WHOLE,       /* each byte that it writes depends on all that it reads */
    WFI_CLASS_TRANSFER,    /* from one rank to another */
    WFI_CLASS_CHANGE       /* a collective */
} wfi_instruction_class;

typedef enum wfi_instruction_cost {
    WFI_COST_UNIT,  /* of the unit, for the part */
    WFI_COST_COPY,  /* a copy of its bytes */
    WFI_COST_SPACE, /* the same between spaces */
    WFI_COST_TOUCH  /* arithmetic over its bytes */
} wfi_instruction_cost;

/* The meaning of its `unit` (unused, any, or that of its first block) and of its `id`. */
typedef enum wfi_unit_meaning { WFI_UNIT_NONE, WFI_UNIT_ANY, WFI_UNIT_OWN } wfi_unit_meaning;
typedef enum wfi_id_meaning {
    WFI_ID_NONE,
    WFI_ID_ACCUMULATOR,
    WFI_ID_VALUE,
    WFI_ID_OUTPUT,
    WFI_ID_TIED
} wfi_id_meaning;

/* Kind, name, stream, class, span in a timeline, cost, unit, id; then functions of instructions.c:
 * the number of references, the need of each, arguments as text. A kind needs a row here, the
 * functions that its row names and, if it is of one rank, a runner (execute/instructions.c). */
#define WFI_INSTRUCTION_LIST(X)                                                                    \
    X(LOAD, "load", COPY, HOST, HOST, COPY, NONE, VALUE, load, input, input)                       \
    X(PACK, "pack", COMPUTE, SEGMENT, UPDATE, COPY, ANY, NONE, slots, slot, pack)                  \
    X(FORWARD, "forward", COMPUTE, SEGMENT, FORWARD, UNIT, ANY, NONE, slots, slot, none)           \
    X(RECOMPUTE, "recompute", COMPUTE, SEGMENT, RECOMPUTE, UNIT, ANY, NONE, slots, slot, none)     \
    X(BACKWARD, "backward", COMPUTE, SEGMENT, BACKWARD, UNIT, ANY, NONE, slots, slot, none)        \
    X(WEIGHT, "weight", COMPUTE, SEGMENT, WEIGHT, UNIT, ANY, ACCUMULATOR, slots, slot, sum)        \
    X(BACKWARD_WEIGHT, "backward+weight", COMPUTE, SEGMENT, BACKWARD_WEIGHT, UNIT, ANY,            \
      ACCUMULATOR, slots, slot, sum)                                                               \
    X(COPY, "copy", COPY, COPY, TRANSFER, COPY, OWN, NONE, two, copy, copy)                        \
    X(FETCH, "fetch", COPY, COPY, TRANSFER, SPACE, ANY, VALUE, two, fetch, moved)                  \
    X(EVICT, "evict", COPY, COPY, TRANSFER, SPACE, ANY, VALUE, two, evict, moved)                  \
    X(FOLD, "fold", COMPUTE, ELEMENTWISE, UPDATE, TOUCH, ANY, ACCUMULATOR, two, fold, accumulator) \
    X(CHANGE, "change", REDUCE, CHANGE, REDUCE, TOUCH, NONE, NONE, pieces, piece, change)          \
    X(TIE, "tie", COMPUTE, ELEMENTWISE, UPDATE, TOUCH, OWN, TIED, two, tie, none)                  \
    X(NORM, "norm", COMPUTE, ELEMENTWISE, UPDATE, TOUCH, OWN, NONE, two, norm, none)               \
    X(TOTAL_NORM, "total_norm", COMPUTE, WHOLE, UPDATE, TOUCH, NONE, NONE, norms, total_norm,      \
      none)                                                                                        \
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

/* Which copy of a tensor. */
typedef enum wfi_copy {
    WFI_COPY_USED, /* that kernels use */
    WFI_COPY_KEPT, /* between uses, if that is another: a part, or in another space */
    WFI_COPY_PART  /* of the rank: of a GRADIENT whose whole is freed; of a PARAM during its update,
                      if it is divided and kept in another space */
} wfi_copy;

/* The name of a tensor on a rank, which has one block for each. */
typedef struct wfi_name {
    wfi_block_kind kind : 8;
    wfi_copy copy : 8;
    uint32_t part : 16;  /* PACKED: see wfi_packed_part */
    int32_t owner;       /* unit, value, or use of a weight (weight gradient), by its kind */
    int32_t accumulator; /* GRADIENT: over lanes; VALUE and TIED: over slices */
    int32_t turn;        /* used copies that are there for a while: which time, from 1 on; of
                            WORKSPACE: the instruction */
    int64_t micro;       /* global microbatch, -1: of the step; TIED: the last of the lane */
} wfi_name;
_Static_assert(sizeof(wfi_name) == 24, "names have gaps");
static inline bool wfi_same_name(wfi_name a, wfi_name b) {
    return !memcmp(&a, &b, sizeof a);
}
static inline wfi_name wfi_named(wfi_block_kind kind, int32_t owner, int64_t micro) {
    return (wfi_name){.kind = kind, .owner = owner, .micro = micro};
}
static inline wfi_name wfi_of_unit(wfi_block_kind kind, int32_t unit) {
    return wfi_named(kind, unit, -1);
}
static inline wfi_name wfi_kept(wfi_name name) {
    name.copy = WFI_COPY_KEPT;
    return name;
}
static inline wfi_name wfi_in_turn(wfi_name name, int32_t turn) {
    name.turn = turn;
    return name;
}
static inline wfi_name wfi_in_accumulator(wfi_name name, int32_t accumulator) {
    name.accumulator = accumulator;
    return name;
}

typedef struct wfi_block {
    int32_t rank;
    wfi_space space;
    wfi_name name;
    bool is_state;        /* lives for ever */
    size_t bytes, offset; /* the latter in the rank's arena of that space */
    int64_t begin;        /* offset of its first byte in the tensor that it is named for */
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
    int32_t id;             /* value, accumulator, tied weight: by kind */
    int64_t micro;          /* global, or -1 */
    int32_t peer;           /* rank, or -1 */
    int32_t group;          /* CHANGE: the participants, otherwise -1 */
    wfi_placement from, to; /* CHANGE */
    wfi_part part;
    bool first; /* WEIGHT, BACKWARD_WEIGHT: the first of its lane assigns */
    const wfi_segment *segment;
    wfi_reference *references; /* a segment's slots in their order, or by kind */
    int32_t n_references;
    int32_t *depends; /* instructions of other streams of this rank */
    int32_t n_depends;
} wfi_instruction;

/* The requirements for a reference of an instruction. */
typedef struct wfi_need {
    wfi_block_kind kind;
    wfi_extent extent; /* in the tensor that the block is named for */
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
