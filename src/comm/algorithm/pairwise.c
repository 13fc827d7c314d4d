/* pairwise: each rank copies the others' raw elements of its slice to its staging buffer, sums them
 * in the tree's order, then collects the other slices. The traffic is that of ring, the order is
 * fixed, and ranks only copy from each other. */
#include "comm/algorithm/allreduce.h"

/* A rank may sum right after staging: no other rank reads or writes this rank's slice. */
static int32_t list_steps(const wfi_reduce_part *part, wfi_reduce_step *steps) {
    const wfi_allreduce *how = &wfi_allreduce_pairwise;
    if (part->phase == 1) return wfi_reduce_collect(how, part, steps);
    wfi_reduce_step step = {.kind = WFI_REDUCE_STAGE};
    int32_t i = 0;
    wfi_reduce_slice(part, part->n, part->own, &step.begin, &step.end);
    for (step.left = 0; step.left < part->n; step.left++)
        if (step.left != part->own) {
            i = wfi_reduce_push(steps, i, step);
            step.slot++;
        }
    wfi_reduce_step sum = {.kind = WFI_REDUCE_STAGED, .begin = step.begin, .end = step.end};
    wfi_reduce_complete(how, part, &sum);
    return wfi_reduce_push(steps, i, sum);
}

static int64_t n_staged(int32_t n, int32_t own, int64_t n_elem) {
    wfi_reduce_part part = {.n = n, .own = own, .n_elem = n_elem};
    int64_t begin, end;
    wfi_reduce_slice(&part, n, own, &begin, &end);
    return (n - 1) * (end - begin);
}

const wfi_allreduce wfi_allreduce_pairwise = {
    .name = "pairwise",
    .n_phases = wfi_reduce_two_phases,
    .n_sums = wfi_reduce_one_phase,
    .steps = list_steps,
    .n_staged = n_staged,
    .owns = wfi_reduce_owns_slice,
    .homes = 1u << WFI_COLLECTIVE_REDUCE_SCATTER,
};
