/* Sums over slices, over uses of a weight and over lanes. Private to src/lower. */
#pragma once

#include "lower/emit.h"

/* A slice's summand is complete: summands that are complete are added. */
wf_status wfi_lower_slice(wfi_lowering *l, const wfi_segment *segment, int64_t micro);
/* The unit's summands of a lane are complete; `micro`: the lane's last. */
wf_status wfi_lower_lane(wfi_lowering *l, int32_t unit, int64_t micro);
/* Another rank's use of tied weight i is here, of that lane. */
wf_status wfi_lower_tied(wfi_lowering *l, int32_t i, int64_t micro);
