/* The messages of a phase. Every rank lists the steps of all ranks, so it knows all reads between
 * ranks, and no rank requests anything. A copy's bytes are received directly at their destination.
 */
#include "comm/wire/mpi.h"

#include <stdlib.h>

enum { TAG_DATA, TAG_PASS, N_TAGS };

/* The destination of a step that only copies; NULL: the bytes are processed first. */
static char *destination(const wfi_run *r, const wfi_reduce_step *step) {
    wfi_access from, to;
    if (step->kind != WFI_REDUCE_COPY && step->kind != WFI_REDUCE_STAGE) return NULL;
    (void)wfi_reduce_access(&r->part, step, 0, &from);
    (void)wfi_reduce_access(&r->part, step, 1, &to);
    bool is_plain = from.window != WFI_WINDOW_WORK && to.window != WFI_WINDOW_WORK &&
                    to.rank == r->part.own &&
                    wfi_run_n_side(r, to.rank, to.window, to.begin, to.n) == to.n;
    return is_plain ? wfi_run_address(r, to.rank, to.window, to.begin) : NULL;
}

static wfi_brought read_of(const wfi_run *r, const wfi_access *a) {
    return (wfi_brought){.rank = a->rank,
                         .in = a->window,
                         .begin = a->begin,
                         .end = a->begin + a->n,
                         .elem_bytes = wfi_run_elem_bytes(r, a->window)};
}

/* ---- requests ---- */

static wf_status post(wfi_memory *m, int32_t rank, bool is_send, int tag, char *data,
                      size_t bytes) {
    wfi_mpi_group *g = wfi_mpi_of(m);
    return wfi_transport_post(
        g->transport, &g->known.queues[is_send ? WFI_QUEUE_SENT : WFI_QUEUE_RECEIVED],
        &(wfi_request){.kind = is_send ? WFI_REQUEST_SEND : WFI_REQUEST_RECEIVE,
                       .peer = m->group->job_rank[rank],
                       .tag = WFI_TAG_GROUPS + g->slot * N_TAGS + tag,
                       .data = data,
                       .bytes = bytes});
}

/* Both sides split a range wherever it is not contiguous at its owner. */
static wf_status post_range(wfi_run *r, const wfi_brought *range, int32_t owner, int32_t other,
                            bool is_send) {
    char *data = range->data;
    for (int64_t at = range->begin, n; at < range->end; at += n) {
        n = wfi_run_n_side(r, owner, range->in, at, range->end - at);
        size_t bytes = (size_t)n * range->elem_bytes;
        if (is_send) data = wfi_run_address(r, owner, range->in, at);
        WF_TRY(post(r->m, other, is_send, TAG_DATA, data, bytes));
        data += bytes;
    }
    return WF_OK;
}

wf_status wfi_mpi_wait(wfi_memory *m, int which) {
    wfi_mpi_group *g = wfi_mpi_of(m);
    wfi_memory_deadline deadline = {0};
    return wfi_memory_wait_for(m, &g->known.done[which], g->known.queues[which].n_posted,
                               m->group->rank, &deadline);
}

/* The awaited rank is unknown for a sum inside MPI: -1. */
int32_t wfi_mpi_awaited(const wfi_memory *m, const wfi_shared_epoch *done) {
    const wfi_mpi_group *g = wfi_mpi_of(m);
    int peer = __atomic_load_n(&g->known.queues[done - g->known.done].awaited, __ATOMIC_RELAXED);
    int32_t rank = m->group->n - 1;
    while (rank >= 0 && m->group->job_rank[rank] != peer) rank--;
    return rank;
}

/* ---- a phase ---- */

static size_t bytes_of(const wfi_brought *range) {
    return (size_t)(range->end - range->begin) * range->elem_bytes;
}

static wf_status list_own(wfi_run *r, const wfi_reduce_step *steps, int32_t n_steps) {
    wfi_mpi_group *g = wfi_mpi_of(r->m);
    wfi_access a;
    g->n_brought = 0;
    for (int32_t i = 0; i < n_steps; i++)
        for (int32_t k = 0; wfi_reduce_access(&r->part, &steps[i], k, &a); k++) {
            if (a.writes || a.rank == r->part.own) continue;
            WF_TRY(WFI_GROW(r->m->group->ctx, g->brought, g->n_brought, g->brought_capacity,
                            "reads between ranks"));
            g->brought[g->n_brought] = read_of(r, &a);
            g->brought[g->n_brought++].data = destination(r, &steps[i]);
        }
    return WF_OK;
}

wf_status wfi_mpi_grow_bounce(wfi_memory *m, size_t bytes) {
    wfi_bounce *bounce = wfi_mpi_of(m)->bounce;
    if (bytes <= bounce->bytes) return WF_OK;
    free(bounce->data);
    bounce->data = aligned_alloc(64, wfi_round_up(bytes, 64));
    bounce->bytes = bounce->data ? bytes : 0;
    return bounce->data ? WF_OK : wfi_no_memory(m->group->ctx, bytes, "sums between ranks");
}

/* Assigns staging memory to ranges without a destination. */
static wf_status make_bounce(wfi_run *r) {
    wfi_mpi_group *g = wfi_mpi_of(r->m);
    size_t bytes = 0;
    for (int32_t i = 0; i < g->n_brought; i++)
        if (!g->brought[i].data) bytes += wfi_round_up(bytes_of(&g->brought[i]), 64);
    WF_TRY(wfi_mpi_grow_bounce(r->m, bytes));
    char *at = g->bounce->data;
    for (int32_t i = 0; i < g->n_brought; i++) {
        if (g->brought[i].data) continue;
        g->brought[i].data = at;
        at += wfi_round_up(bytes_of(&g->brought[i]), 64);
    }
    return WF_OK;
}

/* Sends the ranges that rank part.own reads from this rank. */
static wf_status send_to(wfi_run *r, wfi_reduce_part part) {
    wfi_reduce_step *steps = wfi_mpi_of(r->m)->steps;
    wfi_access a;
    int32_t n_steps = wfi_collective_steps(r->o->how, &part, steps);
    for (int32_t i = 0; i < n_steps; i++)
        for (int32_t k = 0; wfi_reduce_access(&part, &steps[i], k, &a); k++) {
            if (a.writes || a.rank != r->part.own) continue;
            wfi_brought read = read_of(r, &a);
            WF_TRY(post_range(r, &read, r->part.own, part.own, true));
        }
    return WF_OK;
}

wf_status wfi_mpi_begin(wfi_run *r, const wfi_reduce_step *steps, int32_t n_steps) {
    wfi_mpi_group *g = wfi_mpi_of(r->m);
    wfi_reduce_part part = r->part;
    WF_TRY(list_own(r, steps, n_steps));
    WF_TRY(make_bounce(r));
    for (int32_t i = 0; i < g->n_brought; i++)
        WF_TRY(post_range(r, &g->brought[i], g->brought[i].rank, g->brought[i].rank, false));
    for (part.own = 0; part.own < part.n; part.own++)
        if (part.own != r->part.own) WF_TRY(send_to(r, part));
    return wfi_mpi_wait(r->m, WFI_QUEUE_RECEIVED);
}

/* After the phase this rank may overwrite the elements that it has sent. */
wf_status wfi_mpi_end(wfi_run *r) {
    return wfi_mpi_wait(r->m, WFI_QUEUE_SENT);
}

char *wfi_mpi_find(const wfi_run *r, int32_t rank, wfi_window which, int64_t at) {
    const wfi_mpi_group *g = wfi_mpi_of(r->m);
    const wfi_brought *b = g->brought;
    while (b->rank != rank || b->in != which || at < b->begin || at >= b->end) b++;
    return b->data + (size_t)(at - b->begin) * b->elem_bytes;
}

/* ---- send and recv ---- */

wf_status wfi_mpi_pass(wfi_memory *m, const wfi_operation *o) {
    bool is_send = o->collective == WFI_COLLECTIVE_SEND;
    char *data = is_send ? (char *)(uintptr_t)o->in : o->out;
    WF_TRY(post(m, o->root, is_send, TAG_PASS, data, (size_t)o->n_elem * wf_dtype_bytes(o->dtype)));
    return wfi_mpi_wait(m, is_send ? WFI_QUEUE_SENT : WFI_QUEUE_RECEIVED);
}
