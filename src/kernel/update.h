/* What the updates of all backends have in common: the gradient's norm, and groups of parameters.
 * Private. */
#ifndef WFI_UPDATE_H
#define WFI_UPDATE_H

#include "kernel/backend.h"

/* What gradients are multiplied by: `sum` is of all squares, and gives the norm. */
float wfi_update_scale(const wfi_update_call *call, double sum);
/* From group to group, each by the recipe as it is for it, and `update` for each. */
wf_status wfi_update_groups(const wfi_update_call *call, float scale,
                            wf_status (*update)(void *self, const wfi_update *update), void *self);

#endif
