/* State that the files of lowering share: the rank at hand, its blocks, emission. Private to
 * src/lower.
 */
#pragma once

#include "lower/sequence.h"
#include "program/change.h"

struct wfi_transfer;
struct wfi_gather;

/* State of the lowering: one rank, and one of its stages at a time. */
typedef struct wfi_lowering {
    wf_program *p;
    int32_t rank;
    int32_t stage, replica; /* at hand */
    int32_t first_unit, end_unit;
    const wfi_action_list *lists; /* [n_ranks] */
    const wfi_sequence *sequence;
    const struct wfi_transfer *transfers; /* [n_transfers] of all ranks */
    int32_t n_transfers, next_transfer;
    bool *packed;               /* [n_units * WFI_N_PACKED] by wfi_packed_part: the pack exists */
    struct wfi_gather *gathers; /* [n_gathers] in order of their uses */
    struct wfi_gather
        *evicted; /* [n_evicted] activations, in order of the uses after which they go */
    int32_t n_gathers, n_evicted, next_evicted;
    size_t gather_capacity, evicted_capacity;
    int32_t last_evict[2];        /* of the last two uses, or -1 */
    int32_t n_uses;               /* so far */
    int32_t n_emitted, n_reached; /* emitted gathers, and gathers whose use has begun */
    int32_t *n_gathered, *in_use; /* [n_units] how often its parameters are gathered, and used */
    int32_t *last_read; /* [n_units] the last use that reads its parameters, if they are gathered */
    int32_t *n_packs;   /* [n_units] how often its packed copies were dropped */
    int32_t *n_forward; /* [n_units] microbatches, until one is recomputed; then below 0 */
    int32_t *n_added;   /* [n_units * n_lanes] how many uses of its weights are in each lane */
    int32_t last_compute; /* the last instruction on that stream, or -1 */
    int32_t *table;       /* [n_table] open addressing: block + 1 by its name, 0 = free */
    size_t n_table, n_named;
    int32_t *finished;             /* [n_finished] units with complete gradients, in this order */
    int32_t n_finished, n_reduced; /* so many of them have been summed, in buckets */
    int32_t n_updated;             /* so many of those are updated, where that is early */
    int32_t freed[2][2]; /* the change and the last copy of each of the last two buckets with freed
                            gradients, or -1 */
    size_t finished_capacity;
    wfi_name *names; /* [n_names] of the next instruction's blocks */
    int32_t n_names;
    size_t name_capacity;
    bool adds_state;      /* blocks that are made now live for ever */
    int32_t lookahead[2]; /* compute instructions that began the last two actions */
} wfi_lowering;

/* Takes the stage in hand. Returns whether the rank is on it. */
bool wfi_take_stage(wfi_lowering *l, int32_t stage);

/* The block of that name on this rank; made if it is not there, enlarged if it is smaller. */
wf_status wfi_find_block(wfi_lowering *l, wfi_name name, size_t bytes, int32_t *block_out);

/* One more tensor for the next instruction. All members of a change name the same ones. */
wf_status wfi_add_name(wfi_lowering *l, wfi_name name);
/* Appends an instruction of this rank with references to those tensors. The table of instructions
 * gives the bytes and the access of each. */
wf_status wfi_emit_named(wfi_lowering *l, wfi_instruction instruction, int32_t n,
                         const wfi_name *names);
/* The same with the names that were added. */
wf_status wfi_emit_added(wfi_lowering *l, wfi_instruction instruction);
/* Appends one with room for so many references. */
wf_status wfi_emit(wfi_lowering *l, wfi_instruction instruction, int32_t n_references,
                   int32_t *index_out);
wfi_instruction wfi_make(wfi_instruction_kind kind, int32_t unit, int32_t id, int64_t micro);
/* Fills reference k. */
wf_status wfi_refer(wfi_lowering *l, int32_t instruction, int32_t k, wfi_name name,
                    wfi_extent extent, int access);
static inline wfi_extent wfi_whole(size_t bytes) {
    return (wfi_extent){0, bytes};
}
/* The segment of a unit that an action runs. */
static inline wfi_part wfi_part_of(wfi_action_kind kind) {
    static const wfi_part parts[] = {[WFI_ACTION_F] = WFI_PART_F,
                                     [WFI_ACTION_B] = WFI_PART_B,
                                     [WFI_ACTION_W] = WFI_PART_W,
                                     [WFI_ACTION_BW] = WFI_PART_BW};
    return parts[kind];
}

/* Makes the instruction wait for an earlier one of the rank, if there is one. */
wf_status wfi_depend_on(wfi_lowering *l, int32_t instruction, int32_t earlier);
/* A transfer into memory may begin one action ahead of the one that needs it, not
 * earlier: otherwise every microbatch would want its buffers at the start. */
wf_status wfi_depend_on_lookahead(wfi_lowering *l, int32_t instruction);

/* Frees the unit's packed parameters; the next use packs them again. */
void wfi_drop_packed(wfi_lowering *l, int32_t unit);

/* Number k of the units of the stage at hand, in the order of the action. Slices go in their order
 * in all of them, which is that of their sums. */
int32_t wfi_action_unit(const wfi_lowering *l, const wfi_action *action, int32_t k);

static inline bool wfi_action_sums(wfi_action_kind kind) {
    return kind == WFI_ACTION_W || kind == WFI_ACTION_BW;
}
