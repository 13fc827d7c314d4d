#include "comm/algorithm/allreduce.h"

#include <string.h>

const wfi_allreduce *const wfi_allreduces[] = {&wfi_allreduce_root,
                                               &wfi_allreduce_ring,
                                               &wfi_allreduce_tree,
                                               &wfi_allreduce_pairwise,
                                               &wfi_allreduce_direct,
                                               &wfi_allreduce_auto,
                                               NULL};

static int32_t join(const wfi_reduce_part *part, wfi_reduce_step *steps) {
    return wfi_reduce_push(steps, 0,
                           (wfi_reduce_step){.kind = WFI_REDUCE_JOIN,
                                             .left = part->own,
                                             .end = part->n_elem,
                                             .to = WFI_WINDOW_OUT,
                                             .ends = true});
}

/* The order of summation of `engine` is unspecified. */
const wfi_allreduce wfi_allreduce_engine = {.name = "engine",
                                            .rotates = true,
                                            .n_phases = wfi_reduce_one_phase,
                                            .n_sums = wfi_reduce_one_phase,
                                            .steps = join};

const wfi_allreduce *wfi_allreduce_at(int i) {
    for (int k = 0; k <= i; k++)
        if (!wfi_allreduces[k]) return k == i ? &wfi_allreduce_engine : NULL;
    return i >= 0 ? wfi_allreduces[i] : NULL;
}

const wfi_allreduce *wfi_allreduce_find(const char *name) {
    int i = 0;
    while (wfi_allreduce_at(i) && strcasecmp(wfi_allreduce_at(i)->name, name)) i++;
    return wfi_allreduce_at(i);
}

/* A slice begins at a multiple of a cache line, so that two ranks never write to one. */
#define N_LINE 16

void wfi_reduce_slice(const wfi_reduce_part *part, int32_t count, int32_t k, int64_t *begin_out,
                      int64_t *end_out) {
    int64_t n_line = part->n_line ? part->n_line : N_LINE;
    bool by_rank = part->collective == WFI_COLLECTIVE_REDUCE_SCATTER && count == part->n;
    if (by_rank) n_line = wfi_max_i64(part->n_elem / part->n, 1);
    int64_t n_lines = (part->n_elem + n_line - 1) / n_line;
    *begin_out = wfi_min_i64(n_lines * k / count * n_line, part->n_elem);
    *end_out = wfi_min_i64(n_lines * (k + 1) / count * n_line, part->n_elem);
}

int32_t wfi_reduce_push(wfi_reduce_step *steps, int32_t i, wfi_reduce_step step) {
    if (step.begin >= step.end) return i;
    steps[i] = step;
    return i + 1;
}

bool wfi_reduce_pushes(const wfi_allreduce *how, const wfi_reduce_part *part) {
    return part->pushes && how->pushes;
}

bool wfi_reduce_is_home(const wfi_allreduce *how, const wfi_reduce_part *part) {
    return how->homes >> part->collective & 1 || wfi_reduce_pushes(how, part);
}

void wfi_reduce_complete(const wfi_allreduce *how, const wfi_reduce_part *part,
                         wfi_reduce_step *step) {
    bool is_all = part->collective == WFI_COLLECTIVE_ALL_REDUCE;
    bool is_scatter = part->collective == WFI_COLLECTIVE_REDUCE_SCATTER;
    step->ends = is_all || wfi_reduce_is_home(how, part);
    step->to = step->ends ? WFI_WINDOW_OUT : WFI_WINDOW_WORK;
    step->at = step->begin;
    if (step->ends && is_scatter) step->at -= part->n_elem / part->n * part->own;
}

int32_t wfi_reduce_collect(const wfi_allreduce *how, const wfi_reduce_part *part,
                           wfi_reduce_step *steps) {
    int32_t i = 0;
    for (int32_t k = 0; k < part->n; k++) {
        wfi_reduce_step step = {
            .kind = WFI_REDUCE_COPY, .left = k, .left_in = WFI_WINDOW_OUT, .to = WFI_WINDOW_OUT};
        how->owns(part, k, &step.begin, &step.end);
        step.at = step.begin;
        if (k != part->own) i = wfi_reduce_push(steps, i, step);
    }
    return i;
}

void wfi_reduce_owns_slice(const wfi_reduce_part *part, int32_t k, int64_t *begin_out,
                           int64_t *end_out) {
    wfi_reduce_slice(part, part->n, k, begin_out, end_out);
}

int32_t wfi_reduce_one_phase(int32_t n) {
    (void)n;
    return 1;
}

int32_t wfi_reduce_two_phases(int32_t n) {
    (void)n;
    return 2;
}
