/* root: the first replica is the parameter device: it sums everything, the others copy the
 * result. Simple, and the first replica's memory is where all the traffic goes. */
#include "comm/algorithm/allreduce.h"

static int32_t n_phases(int32_t n) {
    (void)n;
    return 2;
}

static int32_t list_steps(const wfi_reduce_part *part, wfi_reduce_step *steps) {
    bool is_root = part->own == 0, sums = part->phase == 0;
    wfi_reduce_step step = {.kind = sums ? WFI_REDUCE_SUM : WFI_REDUCE_COPY, .end = part->n_elem};
    return is_root == sums ? wfi_reduce_push(steps, 0, step) : 0;
}

const wfi_allreduce wfi_allreduce_root = {
    .name = "root",
    .n_phases = n_phases,
    .steps = list_steps,
};
