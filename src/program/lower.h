/* Shared state of the passes of lowering: the rank at hand, blocks, emission. Private to
 * src/program. */
#ifndef WFI_LOWER_H
#define WFI_LOWER_H

#include "program/passes.h"

/* One order of the begins and ends of all ranks' actions: as they would come if each began as soon
 * as it could. Ranks name their transfers in this order, so that none waits behind a transfer that
 * itself waits for it. */
struct wfi_sequence {
    int32_t **begin, **end; /* [n_ranks][list's n] places in the order */
    /* [n_ranks][list's n + 1] the first instruction of each action, and the one after the last;
     * lowering fills them. */
    int32_t **emitted;
};

/* sequence.c. The arrays are the pool's. */
wf_status wfi_sequence_make(const wf_program *p, wfi_pool *pool, const wfi_action_list *lists,
                            bool is_even, wfi_sequence *sequence_out);

/* The short form of a step: each lane of a replica leaves out a part of its steady phase (fold.c).
 */
struct wfi_fold {
    int64_t n_period;   /* microbatches after which the steady phase repeats; 0: it does not */
    int64_t n_left_out; /* microbatches of each lane: whole periods */
    int32_t n_cuts;     /* lanes of a replica */
    int32_t *cuts;      /* [n_cuts] places in the sequence at which parts are left out, ... */
    int32_t n_places;   /* ... so many */
    wfi_sequence sequence;
    const wfi_action_list *lists;
    wf_program *shorter; /* the program of the short form, and its lists and sequence */
    wfi_action_list *short_lists;
    wfi_sequence short_sequence;
};

/* A value or an input of one microbatch, or a lane of a tied weight, that goes from rank to rank.
 */
typedef struct wfi_transfer {
    wfi_block_kind kind; /* VALUE, INPUT or TIED */
    int32_t value;       /* TIED: weight gradient */
    int64_t micro;
    int32_t from, to;
    int32_t place; /* in the sequence: begin of the first action that reads it */
} wfi_transfer;

/* transfer.c. All of a step, in the order in which each rank names its own; the caller frees them.
 */
wf_status wfi_find_transfers(const wf_program *p, const wfi_action_list *lists,
                             const wfi_sequence *sequence, wfi_transfer **transfers_out,
                             int32_t *n_out);

/* An offloaded or divided tensor: parameters of a unit, or its activations of a microbatch. */
typedef struct wfi_guest {
    wfi_block_kind kind;
    int32_t unit, value; /* the latter: of a VALUE or INPUT, else 0 */
    int64_t micro;
} wfi_guest;

/* A fetch (and an all-gather, if the rank's replica of the stage has a slice) before a use, or an
 * eviction after it. */
typedef struct wfi_gather {
    wfi_guest what;
    int32_t stage, since, use; /* `since`: the use after which it has gone, or -1 */
} wfi_gather;

/* State of the lowering: one rank, and one of its stages at a time. */
typedef struct wfi_lowering {
    wf_program *p;
    int32_t rank;
    int32_t stage, replica; /* at hand */
    int32_t first_unit, end_unit;
    const wfi_action_list *lists; /* [n_ranks] */
    const wfi_sequence *sequence;
    const wfi_transfer *transfers; /* [n_transfers] of all ranks */
    int32_t n_transfers, next_transfer;
    bool *packed;        /* [n_units * WFI_N_PACKED] by wfi_packed_depth: the pack exists */
    wfi_gather *gathers; /* [n_gathers] in order of their uses */
    wfi_gather *evicted; /* [n_evicted] activations, in order of the uses after which they go */
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
    struct wfi_thing *things; /* [n_things] that the next change moves */
    int32_t n_things;
    size_t thing_capacity;
    bool adds_state;      /* blocks that are made now live for ever */
    int32_t lookahead[2]; /* compute instructions that began the last two actions */
} wfi_lowering;

/* A transfer of a unit's parameters or gradient is named for the first of its parameters. */
int32_t wfi_first_parameter(const wf_graph *g, int32_t unit);
/* Takes the stage in hand. Returns whether the rank is on it. */
bool wfi_take_stage(wfi_lowering *l, int32_t stage);

/* The block of that name on this rank; made if it is not there, enlarged if it is smaller. */
wf_status wfi_find_block(wfi_lowering *l, wfi_block_kind kind, int32_t id, int32_t depth,
                         int64_t micro, size_t bytes, int32_t *block_out);

/* Appends an instruction of this rank with room for so many references. */
wf_status wfi_emit(wfi_lowering *l, wfi_instruction instruction, int32_t n_references,
                   int32_t *index_out);
wfi_instruction wfi_make(wfi_instruction_kind kind, int32_t unit, int32_t id, int64_t micro);
/* Fills reference k. */
wf_status wfi_refer(wfi_lowering *l, int32_t instruction, int32_t k, wfi_block_kind kind,
                    int32_t id, int32_t depth, int64_t micro, wfi_extent extent, int access);
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

/* Copies an extent from one depth of a guest, or of a unit's STATE or GRADIENT, to another: an
 * offloaded tensor is fetched or evicted. */
wf_status wfi_lower_copy(wfi_lowering *l, wfi_guest what, int32_t from, int32_t to,
                         wfi_extent extent);
static inline wfi_guest wfi_of_unit(wfi_block_kind kind, int32_t unit) {
    return (wfi_guest){kind, unit, 0, -1};
}
/* An instruction that touches one block. */
wf_status wfi_emit_one(wfi_lowering *l, wfi_instruction instruction, wfi_block_kind kind,
                       int32_t id, int32_t depth, int64_t micro, wfi_extent extent, int access);
/* Makes the instruction wait for an earlier one of the rank, if there is one. */
wf_status wfi_depend_on(wfi_lowering *l, int32_t instruction, int32_t earlier);
/* A transfer into memory may begin one action ahead of the one that needs it, not
 * earlier: otherwise every microbatch would want its buffers at the start. */
wf_status wfi_depend_on_lookahead(wfi_lowering *l, int32_t instruction);

/* The rank's transfers that stand before `end` in the sequence. */
wf_status wfi_lower_transfers(wfi_lowering *l, int32_t end);
/* The inputs that a segment reads and no transfer has brought, from the host. */
wf_status wfi_lower_loads(wfi_lowering *l, const wfi_segment *segment, int64_t micro);

/* Frees the unit's packed parameters; the next use packs them again. */
void wfi_drop_packed(wfi_lowering *l, int32_t unit);

/* gather.c. All of the rank's. */
wf_status wfi_find_gathers(wfi_lowering *l);
/* Emits the gathers for the next use, of that unit, and those ahead of use. */
wf_status wfi_lower_gathers(wfi_lowering *l, int32_t unit);
/* Emits the evictions after the use by that instruction: they wait for earlier evictions. */
wf_status wfi_lower_evicts(wfi_lowering *l, int32_t instruction);
/* In which of its blocks activations are. */
wf_status wfi_find_activation(wfi_lowering *l, wfi_block_kind kind, int32_t id, int64_t micro,
                              int32_t *depth_out);
/* Those that no use of the rank needs: it brings parts to a forward run of another. */
wf_status wfi_lower_last_gathers(wfi_lowering *l);
/* Number k of the units of the stage at hand, in the order of the action. Slices go in their order
 * in all of them, which is that of their sums. */
int32_t wfi_action_unit(const wfi_lowering *l, const wfi_action *action, int32_t k);

static inline bool wfi_action_sums(wfi_action_kind kind) {
    return kind == WFI_ACTION_W || kind == WFI_ACTION_BW;
}

/* tie.c: the unit's summands of a lane are complete; `micro`: the lane's last. */
wf_status wfi_lower_lane(wfi_lowering *l, int32_t unit, int64_t micro);
/* Another rank's use of tied weight i is here, of that lane. */
wf_status wfi_lower_tied(wfi_lowering *l, int32_t i, int64_t micro);

/* slices.c: a slice's summand is complete: summands that are complete are added. */
wf_status wfi_lower_slice(wfi_lowering *l, const wfi_segment *segment, int64_t micro);
/* The same of a lane of its uses of weights that all slices have. */
wf_status wfi_lower_slice_uses(wfi_lowering *l, int32_t unit, int64_t micro);
/* Whether the unit is the last of its rank's slices. */
bool wfi_is_last_slice(const wf_program *p, int32_t unit);

/* reduce.c: the unit's gradient of this replica is complete; sums them over the replicas: those
 * that are freed as soon as their bucket is full. */
wf_status wfi_lower_finished(wfi_lowering *l, int32_t unit);
/* The instruction, which adds to a gradient, waits until earlier ones have been freed: one bucket
 * may be summed beside the one that is filled. */
wf_status wfi_depend_on_freed(wfi_lowering *l, int32_t instruction);
wf_status wfi_lower_reductions(wfi_lowering *l);

/* change.c: a thing that the next change moves; all members name the same ones. */
wf_status wfi_add_thing(wfi_lowering *l, wfi_block_kind kind, int32_t id, int32_t depth,
                        int64_t micro);
/* Moves them from one placement to another; nothing if it is the same, or the group is one rank.
 * `unit`: of the instruction, or -1. */
wf_status wfi_lower_change(wfi_lowering *l, int32_t group, wfi_placement from, wfi_placement to,
                           int32_t unit);

/* update.c: whether the unit is updated as soon as its gradient is summed, so that the gradient and
 * the fetched state are freed early. */
bool wfi_is_updated_early(const wf_program *p, int32_t unit);
/* Those of the finished units before `end`. */
wf_status wfi_lower_early_updates(wfi_lowering *l, int32_t end);
/* All others. */
wf_status wfi_lower_updates(wfi_lowering *l);

/* finish.c: the instructions after the microbatches. */
wf_status wfi_lower_finish(wfi_lowering *l);
/* Loss and hits to the host, if the rank has them. */
wf_status wfi_lower_report(wfi_lowering *l);

#endif
