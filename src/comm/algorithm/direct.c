/* direct: each replica sums its slice of everybody's gradient where it lies, then collects the
 * other slices. Needs memory that all can read; copies nothing that is not part of the result. */
#include "comm/algorithm/allreduce.h"

static int32_t n_phases(int32_t n) {
    (void)n;
    return 2;
}

static int32_t list_steps(const wfi_reduce_part *part, wfi_reduce_step *steps) {
    if (part->phase == 1) return wfi_reduce_collect(part, steps);
    wfi_reduce_step sum = {.kind = WFI_REDUCE_SUM};
    wfi_reduce_slice(part->n_elem, part->n, part->own, &sum.begin, &sum.end);
    return wfi_reduce_push(steps, 0, sum);
}

const wfi_allreduce wfi_allreduce_direct = {
    .name = "direct",
    .n_phases = n_phases,
    .steps = list_steps,
};

/* While all ranks of a program share memory, nothing is better than direct. */
const wfi_allreduce wfi_allreduce_auto = {
    .name = "auto",
    .alias = "direct",
    .n_phases = n_phases,
    .steps = list_steps,
};
