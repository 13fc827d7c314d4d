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
/* Which of its rank's slices makes weight gradient i, if it is one of a use that slices have; and
 * whether all of them have theirs when that one has. */
static inline int32_t wfi_local_use(const wf_program *p, int32_t i) {
    const wfi_weight_gradient *w = &p->graph->weight_gradients[i];
    return w->slice < 0 ? 0 : w->slice % wfi_n_local_slices(p, w->unit);
}
static inline bool wfi_is_last_use(const wf_program *p, int32_t i) {
    const wfi_weight_gradient *w = &p->graph->weight_gradients[i];
    return w->slice < 0 || wfi_local_use(p, i) + 1 == wfi_n_local_slices(p, w->unit);
}

#endif
