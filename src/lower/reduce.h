/* Sums over replicas. Private to src/lower. */
#pragma once

#include "lower/emit.h"

/* The unit's gradient of this replica is complete; sums them over the replicas: those
 * that are freed as soon as their bucket is full. */
wf_status wfi_lower_finished(wfi_lowering *l, int32_t unit);
/* The instruction, which adds to a gradient, waits until earlier ones have been freed: one bucket
 * may be summed beside the one that is filled. */
wf_status wfi_depend_on_freed(wfi_lowering *l, int32_t instruction);
wf_status wfi_lower_reductions(wfi_lowering *l);
