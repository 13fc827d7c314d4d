#include "comm/algorithm/collective.h"

const char *wfi_collective_name(wfi_collective collective) {
    static const char *const names[] = {
#define NAME(id, name) name,
        WFI_COLLECTIVE_LIST(NAME)
#undef NAME
    };
    return (size_t)collective < WFI_COUNT(names) ? names[collective] : "?";
}

bool wfi_collective_sums(wfi_collective c) {
    return c == WFI_COLLECTIVE_ALL_REDUCE || c == WFI_COLLECTIVE_REDUCE ||
           c == WFI_COLLECTIVE_REDUCE_SCATTER;
}

bool wfi_collective_has_root(wfi_collective c) {
    return c == WFI_COLLECTIVE_BROADCAST || c == WFI_COLLECTIVE_REDUCE ||
           c == WFI_COLLECTIVE_GATHER || c == WFI_COLLECTIVE_SCATTER;
}

int32_t wfi_collective_n_in(wfi_collective c, int32_t n, bool is_root) {
    if (c == WFI_COLLECTIVE_BARRIER || c == WFI_COLLECTIVE_RECV) return 0;
    if (c == WFI_COLLECTIVE_BROADCAST) return is_root;
    if (c == WFI_COLLECTIVE_SCATTER) return is_root ? n : 0;
    return c == WFI_COLLECTIVE_REDUCE_SCATTER || c == WFI_COLLECTIVE_ALL_TO_ALL ? n : 1;
}

int32_t wfi_collective_n_out(wfi_collective c, int32_t n, bool is_root) {
    if (c == WFI_COLLECTIVE_BARRIER || c == WFI_COLLECTIVE_SEND) return 0;
    if (c == WFI_COLLECTIVE_REDUCE) return is_root;
    if (c == WFI_COLLECTIVE_GATHER) return is_root ? n : 0;
    return c == WFI_COLLECTIVE_ALL_GATHER || c == WFI_COLLECTIVE_ALL_TO_ALL ? n : 1;
}

/* A reduce or reduce-scatter whose sums have to be brought to their place. */
static bool is_brought(const wfi_allreduce *how, const wfi_reduce_part *part) {
    return part->collective != WFI_COLLECTIVE_ALL_REDUCE && !how->is_home(part);
}

static bool is_pushed(const wfi_allreduce *how, const wfi_reduce_part *part) {
    return part->pushes && how->pushes;
}

int32_t wfi_collective_n_phases(const wfi_allreduce *how, const wfi_reduce_part *part) {
    if (part->collective == WFI_COLLECTIVE_BARRIER || !part->n_elem) return 0;
    if (!wfi_collective_sums(part->collective)) return 1;
    if (part->collective == WFI_COLLECTIVE_ALL_REDUCE && !is_pushed(how, part))
        return how->n_phases(part->n);
    return how->n_sums(part->n) + is_brought(how, part);
}

/* Every rank brings home what belongs to it: the root all, or each its block. */
static int32_t bring(const wfi_allreduce *how, const wfi_reduce_part *part,
                     wfi_reduce_step *steps) {
    bool is_reduce = part->collective == WFI_COLLECTIVE_REDUCE;
    int64_t n_block = is_reduce ? part->n_elem : part->n_elem / part->n;
    int64_t first = is_reduce ? 0 : part->own * n_block;
    int32_t n = 0;
    if (is_reduce && part->own != part->root) return 0;
    for (int32_t k = 0; k < part->n; k++) {
        wfi_reduce_step step = {.kind = WFI_REDUCE_COPY,
                                .left = k,
                                .left_in = WFI_WINDOW_WORK,
                                .to = WFI_WINDOW_OUT,
                                .ends = true};
        how->owns(part, k, &step.begin, &step.end);
        step.begin = wfi_max_i64(step.begin, first);
        step.end = wfi_min_i64(step.end, first + n_block);
        step.at = step.begin - first;
        n = wfi_reduce_push(steps, n, step);
    }
    return n;
}

int32_t wfi_collective_steps(const wfi_allreduce *how, const wfi_reduce_part *part,
                             wfi_reduce_step *steps) {
    switch (part->collective) {
    case WFI_COLLECTIVE_BROADCAST:
        return wfi_broadcast_steps(part, steps);
    case WFI_COLLECTIVE_ALL_GATHER:
    case WFI_COLLECTIVE_GATHER:
        return wfi_gather_steps(part, steps);
    case WFI_COLLECTIVE_SCATTER:
        return wfi_scatter_steps(part, steps);
    case WFI_COLLECTIVE_ALL_TO_ALL:
        return wfi_all_to_all_steps(part, steps);
    default:
        break;
    }
    if (is_brought(how, part) && part->phase == how->n_sums(part->n))
        return bring(how, part, steps);
    return how->steps(part, steps);
}

bool wfi_collective_has_work(const wfi_allreduce *how, const wfi_reduce_part *part) {
    return wfi_collective_sums(part->collective) && (how->is_partial || is_brought(how, part));
}

bool wfi_collective_shares_out(const wfi_allreduce *how, const wfi_reduce_part *part) {
    return part->collective == WFI_COLLECTIVE_ALL_REDUCE ||
           (part->collective == WFI_COLLECTIVE_REDUCE && is_pushed(how, part));
}
