/* root: the first rank is the parameter device. This rank sums all elements, and the other ranks
 * copy the result. The algorithm is simple, but all traffic meets in the first rank's memory. With
 * k roots each of the first k ranks sums one slice. */
#include "comm/algorithm/allreduce.h"

/* A reduce sums at its own root. */
static void owns(const wfi_reduce_part *part, int32_t k, int64_t *begin_out, int64_t *end_out) {
    bool is_reduce = part->collective == WFI_COLLECTIVE_REDUCE;
    int32_t n_roots = part->n_roots > 1 && !is_reduce ? part->n_roots : 1;
    int32_t number = is_reduce ? k - part->root : k;
    *begin_out = *end_out = 0;
    if (number >= 0 && number < n_roots)
        wfi_reduce_slice(part, n_roots, number, begin_out, end_out);
}

static int32_t list_steps(const wfi_reduce_part *part, wfi_reduce_step *steps) {
    const wfi_allreduce *how = &wfi_allreduce_root;
    if (part->phase == 1) return wfi_reduce_collect(how, part, steps);
    wfi_reduce_step sum = {.kind = WFI_REDUCE_SUM};
    owns(part, part->own, &sum.begin, &sum.end);
    wfi_reduce_complete(how, part, &sum);
    return wfi_reduce_push(steps, 0, sum);
}

const wfi_allreduce wfi_allreduce_root = {
    .name = "root",
    .n_phases = wfi_reduce_two_phases,
    .n_sums = wfi_reduce_one_phase,
    .steps = list_steps,
    .owns = owns,
    .homes = 1u << WFI_COLLECTIVE_REDUCE,
};
