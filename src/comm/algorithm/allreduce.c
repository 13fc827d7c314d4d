#include "comm/algorithm/allreduce.h"

#include <string.h>

#define DECLARE(name) extern const wfi_allreduce wfi_allreduce_##name
DECLARE(root);
DECLARE(ring);
DECLARE(tree);
DECLARE(pairwise);
DECLARE(direct);
DECLARE(auto);

const wfi_allreduce *const wfi_allreduces[] = {&wfi_allreduce_root,
                                               &wfi_allreduce_ring,
                                               &wfi_allreduce_tree,
                                               &wfi_allreduce_pairwise,
                                               &wfi_allreduce_direct,
                                               &wfi_allreduce_auto,
                                               NULL};

/* A slice begins at a multiple of a cache line, so that two replicas never write to one. */
#define N_LINE 16

const wfi_allreduce *wfi_allreduce_find(const char *name) {
    for (int i = 0; wfi_allreduces[i]; i++)
        if (!strcmp(wfi_allreduces[i]->name, name)) return wfi_allreduces[i];
    return NULL;
}

void wfi_reduce_slice(int64_t n_elem, int32_t n, int32_t k, int64_t *begin_out, int64_t *end_out) {
    int64_t n_lines = (n_elem + N_LINE - 1) / N_LINE;
    *begin_out = wfi_min_i64(n_lines * k / n * N_LINE, n_elem);
    *end_out = wfi_min_i64(n_lines * (k + 1) / n * N_LINE, n_elem);
}

int32_t wfi_reduce_push(wfi_reduce_step *steps, int32_t i, wfi_reduce_step step) {
    if (step.begin >= step.end) return i;
    steps[i] = step;
    return i + 1;
}

int32_t wfi_reduce_collect(const wfi_reduce_part *part, wfi_reduce_step *steps) {
    int32_t i = 0;
    for (int32_t k = 0; k < part->n; k++) {
        wfi_reduce_step step = {.kind = WFI_REDUCE_COPY, .left = k};
        wfi_reduce_slice(part->n_elem, part->n, k, &step.begin, &step.end);
        if (k != part->own) i = wfi_reduce_push(steps, i, step);
    }
    return i;
}
