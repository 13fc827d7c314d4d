/* gather: the root copies what each rank has beside each other; all_gather: everybody does. They
 * begin with their right neighbour, so that not all of them read the same memory at once. */
#include "comm/algorithm/collective.h"

int32_t wfi_gather_steps(const wfi_reduce_part *part, wfi_reduce_step *steps) {
    int32_t n = 0;
    if (part->collective == WFI_COLLECTIVE_GATHER && part->own != part->root) return 0;
    for (int32_t i = 1; i <= part->n; i++) {
        int32_t k = (part->own + i) % part->n;
        n = wfi_reduce_push(steps, n,
                            (wfi_reduce_step){.kind = WFI_REDUCE_COPY,
                                              .left = k,
                                              .end = part->n_elem,
                                              .left_in = WFI_WINDOW_IN,
                                              .to = WFI_WINDOW_OUT,
                                              .at = k * part->n_elem});
    }
    return n;
}
