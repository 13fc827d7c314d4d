/* The mover: brings tensors from one placement to another. Private to src/lower. */
#pragma once

#include "lower/emit.h"
#include "program/where.h"

/* Moves a tensor from its placement in one role on a stage to that in another. Emits this rank's
 * part:
 * - between copies on a rank: a copy, or between spaces a fetch or an eviction;
 * - along an axis: the collective from one placement to the other. */
wf_status wfi_move(wfi_lowering *l, wfi_name name, int32_t stage, wfi_role from, wfi_role to);
/* The same for the added tensors, on the stage of their unit: one instruction for all of them. */
wf_status wfi_move_added(wfi_lowering *l, wfi_role from, wfi_role to);
/* Moves a tensor from one rank to another: a send or a receive, which names the microbatch. */
wf_status wfi_move_between(wfi_lowering *l, wfi_name what, int64_t micro, int32_t from, int32_t to);
/* Changes the placement of the added tensors over a group that lies along no axis. */
wf_status wfi_move_among(wfi_lowering *l, int32_t group, wfi_placement from, wfi_placement to);
/* Copies a tensor to another on the same rank. */
wf_status wfi_copy_tensor(wfi_lowering *l, wfi_name from, wfi_name to, wfi_extent extent);
