/* Changes of placement: the pieces that a collective moves, and its steps. Private. */
#pragma once

#include "program/stage.h"

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

/* A piece of a tensor that a change moves: some of its bytes, and the member that owns them; or
 * n_owners members from that one on own as many bytes each. */
typedef struct wfi_piece {
    wfi_extent extent;
    int32_t owner, n_owners;
} wfi_piece;
/* Piece k of a PARAM, BUFFER, GRADIENT, STATS, NORM, TIED or VALUE, and how many there are; pieces
 * may be empty. */
int32_t wfi_count_pieces(const wf_program *p, const wfi_instruction *now, wfi_name name);
wfi_piece wfi_find_piece(const wf_program *p, const wfi_instruction *now, wfi_name name, int32_t k);
/* That of a reference. Owner -1: it is none. */
wfi_piece wfi_named_piece(const wf_program *p, const wfi_instruction *now, int32_t r);
/* The part of the unit's gradient that the rank measures for the group. */
wfi_extent wfi_measured_extent(const wf_program *p, const wfi_group *group, int32_t unit,
                               int32_t rank);
/* How the member of that number accesses a piece; 0: it has no part in it. */
int wfi_piece_access(const wfi_instruction *now, int32_t member, const wfi_piece *piece);
