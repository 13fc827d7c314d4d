/* ring: n chunks travel around the ring of replicas. In each of the first n - 1 phases a replica
 * adds its part to the chunk that its left neighbour added to before; in the others the sums go
 * around once more. Chunk k is summed from replica k on, so the order rotates: it is the tree's
 * only where two replicas have but one sum to make. */
#include "comm/algorithm/allreduce.h"

static int32_t n_phases(int32_t n) {
    return 2 * (n - 1);
}

static int32_t list_steps(const wfi_reduce_part *part, wfi_reduce_step *steps) {
    int32_t n = part->n, left = (part->own + n - 1) % n;
    bool adds = part->phase < n - 1;
    int32_t back = adds ? part->phase + 1 : part->phase - (n - 1);
    wfi_reduce_step step = {
        .kind = adds ? WFI_REDUCE_ADD : WFI_REDUCE_COPY, .left = left, .right = part->own};
    wfi_reduce_slice(part->n_elem, n, (part->own + n - back) % n, &step.begin, &step.end);
    return wfi_reduce_push(steps, 0, step);
}

const wfi_allreduce wfi_allreduce_ring = {
    .name = "ring",
    .rotates = true,
    .n_phases = n_phases,
    .steps = list_steps,
};
