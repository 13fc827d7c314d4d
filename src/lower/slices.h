/* Sums over slices. Private to src/lower. */
#ifndef WFI_LOWER_SLICES_H
#define WFI_LOWER_SLICES_H

#include "lower/emit.h"

/* Adds accumulator fold.from of a tensor to its accumulator fold.into. */
wf_status wfi_lower_fold(wfi_lowering *l, int32_t unit, wfi_name name, wfi_lane_fold fold);
/* A slice's summand is complete: summands that are complete are added. */
wf_status wfi_lower_slice(wfi_lowering *l, const wfi_segment *segment, int64_t micro);
/* The same of a lane of its uses of weights that all slices have. */
wf_status wfi_lower_slice_uses(wfi_lowering *l, int32_t unit, int64_t micro);
/* Whether the unit is the last of its rank's slices. */
bool wfi_is_last_slice(const wf_program *p, int32_t unit);

#endif
