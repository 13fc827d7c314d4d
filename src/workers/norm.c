#include "workers/norm.h"

#include <string.h>

static size_t blocks_of(size_t n) {
    return (n + WFI_NORM_BLOCK_ELEMENTS - 1) / WFI_NORM_BLOCK_ELEMENTS;
}

size_t wfi_norm_blocks(const wfi_vector *l, size_t at) {
    size_t n = 0;
    for (int32_t u = 0; u < l->n_units && l->first[u] < at; u++) {
        size_t end = l->first[u + 1] < at ? l->first[u + 1] : at;
        n += blocks_of(end - l->first[u]);
    }
    return n;
}

/* The server's blocks, at their places among all. */
static wf_status measure(const wfi_server *s, const float *gradient, double *squares) {
    const wfi_vector *l = &s->all->vector;
    for (int32_t u = 0; u < l->n_units; u++) {
        size_t begin = l->first[u] > s->first ? l->first[u] : s->first,
               end = l->first[u + 1] < s->end ? l->first[u + 1] : s->end;
        if (begin >= end) continue;
        WF_TRY(wfi_backend_cpu.squares(NULL, gradient + (begin - s->first), end - begin,
                                       squares + wfi_norm_blocks(l, begin)));
    }
    return WF_OK;
}

/* Threads share an array for even updates and one for odd ones: no server is two updates ahead of
 * another, since each update needs the squares of all. */
static wf_status exchange_here(wfi_server *s) {
    wf_workers *w = s->all;
    wfi_nap nap = wfi_nap_begin(w);
    int64_t wanted = (s->n_updates + 1) * w->n_servers;
    __atomic_add_fetch(&w->n_squares_in, 1, __ATOMIC_ACQ_REL);
    while (__atomic_load_n(&w->n_squares_in, __ATOMIC_ACQUIRE) < wanted)
        WF_TRY(wfi_nap_take(&nap, "another server"));
    return WF_OK;
}

/* Every server sends as many blocks as the largest has. */
static wf_status exchange_between(wfi_server *s, double *squares) {
    wf_workers *w = s->all;
    const wfi_vector *l = &w->vector;
    size_t n_each = 0, begin, end;
    for (int k = 0; k < w->n_servers; k++) {
        begin = wfi_norm_blocks(l, wfi_vector_cut(l, w->n_servers, k));
        end = wfi_norm_blocks(l, wfi_vector_cut(l, w->n_servers, k + 1));
        if (end - begin > n_each) n_each = end - begin;
    }
    size_t n_servers = (size_t)w->n_servers;
    double *all = wfi_alloc(w->ctx, n_each * (n_servers + 1), sizeof *all, "sums of squares");
    if (!all) return WF_NO_MEMORY;
    begin = wfi_norm_blocks(l, s->first);
    end = wfi_norm_blocks(l, s->end);
    memcpy(all, squares + begin, (end - begin) * sizeof *all);
    wf_status status =
        wf_group_all_gather(w->among_servers, all, all + n_each, (int64_t)n_each, WF_F64, NULL);
    for (int k = 0; k < w->n_servers; k++) {
        begin = wfi_norm_blocks(l, wfi_vector_cut(l, w->n_servers, k));
        end = wfi_norm_blocks(l, wfi_vector_cut(l, w->n_servers, k + 1));
        memcpy(squares + begin, all + n_each * (size_t)(k + 1), (end - begin) * sizeof *all);
    }
    wfi_free(w->ctx, all);
    return status;
}

wf_status wfi_norm_total(wfi_server *s, const float *gradient, double *total_out) {
    wf_workers *w = s->all;
    const wfi_vector *l = &w->vector;
    double *squares = w->squares[s->n_updates % 2];
    WF_TRY(measure(s, gradient, squares));
    if (w->n_servers > 1) WF_TRY(w->job ? exchange_between(s, squares) : exchange_here(s));
    *total_out = 0;
    for (int32_t u = 0; u < l->n_units; u++)
        *total_out += wfi_tree_sum(squares + wfi_norm_blocks(l, l->first[u]),
                                   blocks_of(l->first[u + 1] - l->first[u]));
    return WF_OK;
}
