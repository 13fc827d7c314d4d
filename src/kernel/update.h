/* Shared by the updates of all backends: the global norm, and groups of parameters. Private. */
#pragma once

#include "kernel/backend.h"

/* Stores the global norm, the square root of `total`. Any thread. */
void wfi_report_norm(double total, double *norm_out);
/* Returns the factor that clips gradients to the norm `limit`. */
float wfi_clip_scale(double limit, double total);
/* Calls `update` for each group of parameters, with the group's own recipe. */
wf_status wfi_update_groups(const wfi_update_call *call, float scale,
                            wf_status (*update)(void *self, const wfi_update *update), void *self);
