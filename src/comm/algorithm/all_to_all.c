/* all_to_all: everybody copies its block of what each rank has, beginning with the right
 * neighbour. */
#include "comm/algorithm/collective.h"

int32_t wfi_all_to_all_steps(const wfi_reduce_part *part, wfi_reduce_step *steps) {
    int32_t n = 0;
    for (int32_t i = 1; i <= part->n; i++) {
        int32_t k = (part->own + i) % part->n;
        n = wfi_reduce_push(steps, n,
                            (wfi_reduce_step){.kind = WFI_REDUCE_COPY,
                                              .left = k,
                                              .begin = part->own * part->n_elem,
                                              .end = (part->own + 1) * part->n_elem,
                                              .left_in = WFI_WINDOW_IN,
                                              .to = WFI_WINDOW_OUT,
                                              .at = k * part->n_elem});
    }
    return n;
}
