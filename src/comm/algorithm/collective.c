#include "comm/algorithm/collective.h"

/* How many blocks of a call's elements a buffer has, and in which ranks. */
typedef enum blocks { NONE, ONE, ONE_AT_ROOT, ALL, ALL_AT_ROOT } blocks;

static const struct {
    const char *name;
    blocks in, out;
    bool sums, has_root;
} about[] = {
    [WFI_COLLECTIVE_ALL_REDUCE] = {"all_reduce", ONE, ONE, true, false},
    [WFI_COLLECTIVE_REDUCE] = {"reduce", ONE, ONE_AT_ROOT, true, true},
    [WFI_COLLECTIVE_REDUCE_SCATTER] = {"reduce_scatter", ALL, ONE, true, false},
    [WFI_COLLECTIVE_BROADCAST] = {"broadcast", ONE_AT_ROOT, ONE, false, true},
    [WFI_COLLECTIVE_ALL_GATHER] = {"all_gather", ONE, ALL, false, false},
    [WFI_COLLECTIVE_GATHER] = {"gather", ONE, ALL_AT_ROOT, false, true},
    [WFI_COLLECTIVE_SCATTER] = {"scatter", ALL_AT_ROOT, ONE, false, true},
    [WFI_COLLECTIVE_ALL_TO_ALL] = {"all_to_all", ALL, ALL, false, false},
    [WFI_COLLECTIVE_BARRIER] = {"barrier", NONE, NONE, false, false},
    [WFI_COLLECTIVE_SEND] = {"send", ONE, NONE, false, false},
    [WFI_COLLECTIVE_RECV] = {"recv", NONE, ONE, false, false},
};

/* Calls are read from memory of other processes, so the number may be invalid. */
static bool is_known(wfi_collective c) {
    return (size_t)c < WFI_COUNT(about);
}

const char *wfi_collective_name(wfi_collective c) {
    return is_known(c) ? about[c].name : "?";
}

bool wfi_collective_sums(wfi_collective c) {
    return is_known(c) && about[c].sums;
}

bool wfi_collective_has_root(wfi_collective c) {
    return is_known(c) && about[c].has_root;
}

static int32_t count(blocks which, int32_t n, bool is_root) {
    if (which == NONE || (!is_root && (which == ONE_AT_ROOT || which == ALL_AT_ROOT))) return 0;
    return which == ALL || which == ALL_AT_ROOT ? n : 1;
}

int32_t wfi_collective_n_in(wfi_collective c, int32_t n, bool is_root) {
    return count(about[c].in, n, is_root);
}

int32_t wfi_collective_n_out(wfi_collective c, int32_t n, bool is_root) {
    return count(about[c].out, n, is_root);
}

/* Whether the sums of a reduce or reduce-scatter need a phase that copies them to their
 * destination. */
static bool is_brought(const wfi_allreduce *how, const wfi_reduce_part *part) {
    return part->collective != WFI_COLLECTIVE_ALL_REDUCE && !wfi_reduce_is_home(how, part);
}

int32_t wfi_collective_n_phases(const wfi_allreduce *how, const wfi_reduce_part *part) {
    if (part->collective == WFI_COLLECTIVE_BARRIER || !part->n_elem) return 0;
    if (!wfi_collective_sums(part->collective)) return 1;
    if (part->collective == WFI_COLLECTIVE_ALL_REDUCE && !wfi_reduce_pushes(how, part))
        return how->n_phases(part->n);
    return how->n_sums(part->n) + is_brought(how, part);
}

/* Every rank copies its results from their owners: the root all elements, or each rank its block.
 */
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

/* Without a sum: every rank copies the blocks of its `out` from their owners. The copies begin with
 * the right neighbour, so that not all ranks read the same memory at once. */
static int32_t copy_blocks(const wfi_reduce_part *part, wfi_reduce_step *steps) {
    bool from_all = about[part->collective].in == ONE || about[part->collective].in == ALL;
    bool has_own =
        wfi_collective_n_in(part->collective, part->n, true) > 1; /* block in each `in` */
    int32_t n_out = wfi_collective_n_out(part->collective, part->n, part->own == part->root), n = 0;
    int64_t begin = has_own ? part->own * part->n_elem : 0;
    for (int32_t i = 1; i <= n_out; i++) {
        int32_t k = from_all ? (part->own + i) % part->n : part->root;
        n = wfi_reduce_push(steps, n,
                            (wfi_reduce_step){.kind = WFI_REDUCE_COPY,
                                              .left = k,
                                              .begin = begin,
                                              .end = begin + part->n_elem,
                                              .left_in = WFI_WINDOW_IN,
                                              .to = WFI_WINDOW_OUT,
                                              .at = from_all ? k * part->n_elem : 0});
    }
    return n;
}

int32_t wfi_collective_steps(const wfi_allreduce *how, const wfi_reduce_part *part,
                             wfi_reduce_step *steps) {
    if (!wfi_collective_sums(part->collective)) return copy_blocks(part, steps);
    if (is_brought(how, part) && part->phase == how->n_sums(part->n))
        return bring(how, part, steps);
    return how->steps(part, steps);
}

bool wfi_collective_has_work(const wfi_allreduce *how, const wfi_reduce_part *part) {
    return wfi_collective_sums(part->collective) && (how->is_partial || is_brought(how, part));
}

bool wfi_collective_shares_out(const wfi_allreduce *how, const wfi_reduce_part *part) {
    return part->collective == WFI_COLLECTIVE_ALL_REDUCE ||
           (part->collective == WFI_COLLECTIVE_REDUCE && wfi_reduce_pushes(how, part));
}
