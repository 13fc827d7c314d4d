/* direct: each rank sums its slice of all ranks' elements in place and writes the result to all
 * ranks. If ranks cannot write each other's memory, they collect the slices in a second phase. All
 * ranks must share memory; only results are copied. */
#include "comm/algorithm/allreduce.h"

static int32_t list_steps(const wfi_reduce_part *part, wfi_reduce_step *steps) {
    const wfi_allreduce *how = &wfi_allreduce_direct;
    if (part->phase == 1) return wfi_reduce_collect(how, part, steps);
    wfi_reduce_step sum = {.kind = WFI_REDUCE_SUM};
    wfi_reduce_slice(part, part->n, part->own, &sum.begin, &sum.end);
    wfi_reduce_complete(how, part, &sum);
    if (part->pushes && part->collective == WFI_COLLECTIVE_ALL_REDUCE) sum.target = WFI_TO_ALL;
    if (part->pushes && part->collective == WFI_COLLECTIVE_REDUCE) sum.target = WFI_TO_ROOT;
    return wfi_reduce_push(steps, 0, sum);
}

#define DIRECT                                                                                     \
    .n_phases = wfi_reduce_two_phases, .n_sums = wfi_reduce_one_phase, .steps = list_steps,        \
    .owns = wfi_reduce_owns_slice, .homes = 1u << WFI_COLLECTIVE_REDUCE_SCATTER, .pushes = true

const wfi_allreduce wfi_allreduce_direct = {.name = "direct", DIRECT};
/* While all ranks of a program share memory, direct is the fastest. */
const wfi_allreduce wfi_allreduce_auto = {.name = "auto", .alias = "direct", DIRECT};
