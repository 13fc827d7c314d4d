/* What the passes of lowering share: the rank at hand, blocks, emission. Private to
 * src/program. */
#ifndef WFI_LOWER_H
#define WFI_LOWER_H

#include "program/program.h"

/* What is being lowered: one rank, and one of its stages at a time. */
typedef struct wfi_lowering {
    wf_program *p;
    int32_t rank;
    int32_t stage, replica; /* at hand */
    int32_t first_unit, end_unit;
    const wfi_action_list *actions; /* of the rank */
    const wfi_action *all;          /* [n_all] of all ranks, where units are spread */
    int32_t n_all;
    bool *packed;   /* [n_units * 2 * WFI_N_PARTS] by wfi_packed_depth: the pack exists */
    int32_t *table; /* [n_table] open addressing: block + 1 by its name, 0 = free */
    size_t n_table, n_named;
    int32_t *arrivals; /* [n_arrivals] values that the action at hand receives */
    int32_t n_arrivals;
    size_t arrival_capacity;
    int32_t *finished; /* [n_finished] units whose gradient is complete, in this order */
    int32_t n_finished;
    size_t finished_capacity;
    int64_t n_scattered;  /* rounds whose inputs have been scattered */
    bool adds_state;      /* blocks that are made now live for ever */
    int32_t lookahead[2]; /* compute instructions that began the last two actions */
} wfi_lowering;

/* Takes the stage in hand. Returns whether the rank is on it. */
bool wfi_take_stage(wfi_lowering *l, int32_t stage);

/* The block of that name on this rank; made if it is not there, enlarged if it is smaller. */
wf_status wfi_find_block(wfi_lowering *l, wfi_block_kind kind, int32_t id, int32_t depth,
                         int64_t micro, size_t bytes, int32_t *block_out);

/* Appends an instruction of this rank with room for so many references. */
wf_status wfi_emit(wfi_lowering *l, wfi_instruction instruction, int32_t n_references,
                   int32_t *index_out);
wfi_instruction wfi_make(wfi_instruction_kind kind, wfi_stream stream, int32_t unit, int32_t id,
                         int64_t micro);
/* Fills reference k. */
wf_status wfi_refer(wfi_lowering *l, int32_t instruction, int32_t k, wfi_block_kind kind,
                    int32_t id, int32_t depth, int64_t micro, size_t bytes, int access);
/* Makes it one of a group's. */
void wfi_join(wfi_lowering *l, int32_t instruction, int32_t group);
/* An instruction that touches one block. */
wf_status wfi_emit_one(wfi_lowering *l, wfi_instruction instruction, wfi_block_kind kind,
                       int32_t id, int32_t depth, int64_t micro, size_t bytes, int access);
/* A transfer into memory may begin one action ahead of the one that needs it, not
 * earlier: otherwise every microbatch would want its buffers at the start. */
wf_status wfi_depend_on_lookahead(wfi_lowering *l, int32_t instruction);

/* cross.c: before a unit's segment, what it reads of the host's; before an action, what it
 * reads of other stages'; after a segment, what other stages read of it. */
/* Inputs of other ranks' microbatches: in each round from rank 0 to them. */
wf_status wfi_lower_scatter(wfi_lowering *l, int64_t round);
wf_status wfi_lower_loads(wfi_lowering *l, const wfi_segment *segment, int64_t micro);
wf_status wfi_lower_receives(wfi_lowering *l, wfi_part part, int64_t micro);
wf_status wfi_lower_sends(wfi_lowering *l, const wfi_segment *segment, int64_t micro);
/* The other side of it: what the segment makes on that rank and a stage here reads. */
wf_status wfi_lower_arrivals(wfi_lowering *l, const wfi_segment *segment, int64_t micro,
                             int32_t rank);
bool wfi_segment_reads(const wfi_segment *segment, wfi_block_kind kind, int32_t id);

/* reduce.c: the unit's gradient of this replica is complete; sums them over the replicas. */
wf_status wfi_lower_finished(wfi_lowering *l, int32_t unit);
wf_status wfi_lower_reductions(wfi_lowering *l);

/* Whether a unit of the stage reads those parameters. */
bool wfi_stage_reads_parameters(const wf_program *p, int32_t stage, int32_t unit);
/* root.c: copies of parameters for replicas that hold none; what these give back, beside
 * gradients. */
wf_status wfi_lower_broadcasts(wfi_lowering *l);
wf_status wfi_lower_statistics_to_root(wfi_lowering *l, int32_t unit);

/* finish.c: what follows the microbatches. */
wf_status wfi_lower_finish(wfi_lowering *l);
/* Loss and hits to the host, if the rank has them. */
wf_status wfi_lower_report(wfi_lowering *l);

#endif
