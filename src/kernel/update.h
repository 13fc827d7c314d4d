/* What the updates of all backends have in common: the global norm, and groups of parameters.
 * Private. */
#ifndef WFI_UPDATE_H
#define WFI_UPDATE_H

#include "kernel/backend.h"

/* Reports the global norm, of whose square `total` is. Any thread. */
void wfi_report_norm(double total, double *norm_out);
/* What gradients are multiplied by so that their norm is `limit` at most. */
float wfi_clip_scale(double limit, double total);
/* From group to group, each by the recipe as it is for it, and `update` for each. */
wf_status wfi_update_groups(const wfi_update_call *call, float scale,
                            wf_status (*update)(void *self, const wfi_update *update), void *self);

#endif
