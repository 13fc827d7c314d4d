/* To the root: the first replica sums everything and keeps it. What a DataParallel does with its
 * gradients; no all-reduce, so no plan can name it. */
#include "comm/algorithm/allreduce.h"

static int32_t n_phases(int32_t n) {
    (void)n;
    return 1;
}

static int32_t list_steps(const wfi_reduce_part *part, wfi_reduce_step *steps) {
    wfi_reduce_step step = {.kind = WFI_REDUCE_SUM, .end = part->n_elem};
    return part->own == 0 ? wfi_reduce_push(steps, 0, step) : 0;
}

const wfi_allreduce wfi_reduce_to_root = {
    .name = "to_root",
    .n_phases = n_phases,
    .steps = list_steps,
};
