/* Moves tensors: between copies on a rank, between ranks, and among the ranks of a group. Private
 * to src/lower. */
#ifndef WFI_LOWER_MOVE_H
#define WFI_LOWER_MOVE_H

#include "lower/emit.h"

/* Moves an extent of a tensor from one of the rank's copies to another. This is a fetch or an
 * eviction if the tensor is offloaded. */
wf_status wfi_move_here(wfi_lowering *l, wfi_name from, wfi_name to, wfi_extent extent);
/* Moves a tensor from one rank to another: emits the send or the receive if this rank is one of
 * them. `micro`: the microbatch that the instruction names. */
wf_status wfi_move_between(wfi_lowering *l, wfi_name what, int64_t micro, int32_t from, int32_t to);
/* Moves the added tensors from one placement over a group to another; nothing if it is the same, or
 * the group is one rank. `unit`: of the instruction, or -1. */
wf_status wfi_move_among(wfi_lowering *l, int32_t group, wfi_placement from, wfi_placement to,
                         int32_t unit);
/* The same for one tensor of a unit, over the ranks of a stage that have each part once. */
wf_status wfi_move_parameters(wfi_lowering *l, wfi_name name, int32_t stage, wfi_placement from,
                              wfi_placement to);

#endif
