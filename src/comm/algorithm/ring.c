/* ring: n chunks travel around the ring of ranks. In each of the first n - 1 phases a rank adds
 * its part to the chunk that its left neighbour added to before; in the others the sums go around
 * once more. A chunk is summed from one rank on around the ring, so the order rotates: it is the
 * tree's only where two ranks have but one sum to make. */
#include "comm/algorithm/allreduce.h"

static int32_t n_phases(int32_t n) {
    return 2 * (n - 1);
}

static int32_t n_sums(int32_t n) {
    return n - 1;
}

/* Rank k ends with chunk k + 1; in a reduce-scatter it has to be its own. */
static int32_t last_chunk(const wfi_reduce_part *part, int32_t rank) {
    return (rank + (part->collective != WFI_COLLECTIVE_REDUCE_SCATTER)) % part->n;
}

static int32_t list_steps(const wfi_reduce_part *part, wfi_reduce_step *steps) {
    int32_t n = part->n, left = (part->own + n - 1) % n, last = n_sums(n) - 1;
    bool adds = part->phase <= last, completes = part->phase == last;
    int32_t ahead = adds ? last - part->phase : n - 1 - (part->phase - n_sums(n));
    wfi_reduce_step step = {.kind = adds ? WFI_REDUCE_ADD : WFI_REDUCE_COPY,
                            .left = left,
                            .right = part->own,
                            .left_in = !adds         ? WFI_WINDOW_OUT
                                       : part->phase ? WFI_WINDOW_WORK
                                                     : WFI_WINDOW_IN,
                            .to = adds ? WFI_WINDOW_WORK : WFI_WINDOW_OUT};
    wfi_reduce_slice(part, n, (last_chunk(part, part->own) + ahead) % n, &step.begin, &step.end);
    step.at = step.begin;
    if (completes) wfi_reduce_complete(&wfi_allreduce_ring, part, &step);
    return wfi_reduce_push(steps, 0, step);
}

static void owns(const wfi_reduce_part *part, int32_t k, int64_t *begin_out, int64_t *end_out) {
    wfi_reduce_slice(part, part->n, last_chunk(part, k), begin_out, end_out);
}

const wfi_allreduce wfi_allreduce_ring = {
    .name = "ring",
    .rotates = true,
    .n_phases = n_phases,
    .n_sums = n_sums,
    .steps = list_steps,
    .owns = owns,
    .is_partial = true,
    .homes = 1u << WFI_COLLECTIVE_REDUCE_SCATTER,
};
