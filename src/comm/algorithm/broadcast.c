/* broadcast: everybody copies what the root has. */
#include "comm/algorithm/collective.h"

int32_t wfi_broadcast_steps(const wfi_reduce_part *part, wfi_reduce_step *steps) {
    return wfi_reduce_push(steps, 0,
                           (wfi_reduce_step){.kind = WFI_REDUCE_COPY,
                                             .left = part->root,
                                             .end = part->n_elem,
                                             .left_in = WFI_WINDOW_IN,
                                             .to = WFI_WINDOW_OUT});
}
