/* Gradients of weights that several units use. Private to src/lower. */
#ifndef WFI_LOWER_TIE_H
#define WFI_LOWER_TIE_H

#include "lower/emit.h"

/* The unit's summands of a lane are complete; `micro`: the lane's last. */
wf_status wfi_lower_lane(wfi_lowering *l, int32_t unit, int64_t micro);
/* Another rank's use of tied weight i is here, of that lane. */
wf_status wfi_lower_tied(wfi_lowering *l, int32_t i, int64_t micro);

#endif
