/* Emits changes of placement. Private to src/lower. */
#ifndef WFI_LOWER_CHANGE_H
#define WFI_LOWER_CHANGE_H

#include "lower/emit.h"

/* Moves the added tensors from one placement to another; nothing if it is the same, or the group is
 * one rank. `unit`: of the instruction, or -1. */
wf_status wfi_lower_change(wfi_lowering *l, int32_t group, wfi_placement from, wfi_placement to,
                           int32_t unit);

#endif
