/* Runs one operation of a group: its number, its wire and its traffic. */
#include "comm/group/group.h"

/* Whether the engine supports the operation: all-reduces only. U8 supports only sums, as MPICH 4.0
 * treats bytes above 127 as negative in minima and maxima. */
static bool has_engine(const wfi_operation *o) {
    return o->collective == WFI_COLLECTIVE_ALL_REDUCE && (o->dtype != WF_U8 || o->op == WF_SUM);
}

/* "auto", by bytes that ranks without shared memory sum: few phases matter for small data, and even
 * traffic for large data. With shared memory, direct has the fewest phases and moves the fewest
 * bytes at every size. */
#define TREE_BYTES ((size_t)64 << 10)

const wfi_allreduce *wfi_group_algorithm(const wf_group *g, const wfi_operation *o, size_t bytes) {
    /* With one rank all algorithms are the same. */
    if (g->n == 1) return &wfi_allreduce_direct;
    bool is_left = g->how == &wfi_allreduce_engine && !has_engine(o);
    if (!g->how->alias && !is_left) return g->how;
    if (g->wire->pushes) return &wfi_allreduce_direct;
    return bytes <= TREE_BYTES ? &wfi_allreduce_tree : &wfi_allreduce_pairwise;
}

wfi_reduce_part wfi_group_part(const wf_group *g, const wfi_operation *o) {
    bool is_scatter = o->collective == WFI_COLLECTIVE_REDUCE_SCATTER;
    return (wfi_reduce_part){
        .n = g->n,
        .own = g->rank,
        .n_elem = is_scatter ? g->n * o->n_elem : o->n_elem,
        .collective = o->collective,
        .root = o->root,
        .n_roots = g->n_roots,
        .n_line = (int32_t)(64 / wf_dtype_bytes(o->dtype)),
        .pushes = g->wire->pushes,
    };
}

wf_status wfi_group_run(wf_group *g, wfi_operation *o) {
    bool is_pair = o->collective == WFI_COLLECTIVE_SEND || o->collective == WFI_COLLECTIVE_RECV;
    /* The other ranks do not see messages between two ranks, so these have no number. */
    o->number = is_pair ? g->n_calls + 1 : ++g->n_calls;
    return is_pair ? g->wire->pass(g, o) : g->wire->run(g, o);
}

/* ---- traffic ---- */

/* Adds the traffic of rank `rank` in a step of rank part->own. */
static void count_step(wf_traffic *own, int32_t rank, const wfi_reduce_part *part,
                       const wfi_operation *o, const wfi_reduce_step *step) {
    wfi_access a;
    for (int32_t i = 0; wfi_reduce_access(part, step, i, &a); i++) {
        int32_t from = a.writes ? part->own : a.rank, to = a.writes ? a.rank : part->own;
        bool is_sum = a.window == WFI_WINDOW_WORK;
        size_t bytes = (size_t)a.n * wf_dtype_bytes(is_sum ? wfi_sum_dtype(o->dtype) : o->dtype);
        if (from == to) continue;
        if (from == rank) own->sent_bytes += bytes;
        if (to == rank) own->received_bytes += bytes;
    }
}

static wf_traffic count(const wf_group *g, const wfi_operation *o, wfi_reduce_part part) {
    wf_traffic own = {0, 0};
    int32_t n_phases = wfi_collective_n_phases(o->how, &part);
    for (part.own = 0; part.own < g->n; part.own++)
        for (part.phase = 0; part.phase < n_phases; part.phase++) {
            int32_t n = wfi_collective_steps(o->how, &part, g->steps);
            for (int32_t i = 0; i < n; i++) count_step(&own, g->rank, &part, o, &g->steps[i]);
        }
    return own;
}

static bool is_counted(const wf_group *g, const wfi_operation *o, int64_t n_elem) {
    const wfi_operation *last = &g->counted;
    return last->collective == o->collective && last->dtype == o->dtype && last->how == o->how &&
           last->root == o->root && last->n_elem == n_elem;
}

/* The traffic of the last call is kept, as the next call is often the same. */
void wfi_group_count(wf_group *g, const wfi_operation *o, const wfi_reduce_part *part) {
    if (g->n == 1 || o->how == &wfi_allreduce_engine) return; /* MPI does not report its traffic */
    if (!is_counted(g, o, part->n_elem)) {
        g->counted = *o;
        g->counted.n_elem = part->n_elem;
        g->counted_traffic = count(g, o, *part);
    }
    wfi_group_add_traffic(g, g->counted_traffic);
}

void wfi_group_add_traffic(wf_group *g, wf_traffic more) {
    __atomic_fetch_add(&g->traffic.sent_bytes, more.sent_bytes, __ATOMIC_RELAXED);
    __atomic_fetch_add(&g->traffic.received_bytes, more.received_bytes, __ATOMIC_RELAXED);
}
