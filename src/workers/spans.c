/* Timelines of workers and servers: the latest spans of each. */
#include "workers/run.h"

#include "show/timeline.h"

#include <stdlib.h>
#include <string.h>

static int n_rows(const wf_workers *w) {
    return w->n_ranks + w->n_servers;
}

wf_status wfi_workers_create_spans(wf_workers *w) {
    if (!w->config.trainer || !w->config.trainer->trace) return WF_OK;
    if (w->job && wf_job_n_local_ranks(w->job) < wf_job_n_ranks(w->job))
        return wfi_fail(w->ctx, WF_INVALID_ARG,
                        "ranks on several machines cannot be traced: their clocks differ");
    w->rows = wfi_pool_array(&w->pool, (size_t)n_rows(w), sizeof *w->rows, "a trace");
    return wfi_pool_status(&w->pool);
}

int64_t wfi_workers_now(const wf_workers *w) {
    return w->rows ? wfi_now_ns() : 0;
}

void wfi_workers_note(wf_workers *w, int row, int64_t begin_ns, int64_t number, wf_span_kind kind,
                      wfi_stream stream) {
    if (!w->rows) return;
    wfi_worker_row *r = &w->rows[row];
    /* Messages of a rank's workers overlap. The stream shows the rest of a later one. */
    begin_ns = wfi_max_i64(begin_ns, r->free_ns[stream]);
    int64_t end_ns = wfi_now_ns();
    if (begin_ns >= end_ns) return;
    r->free_ns[stream] = end_ns;
    r->spans[r->n++ % WFI_WORKER_SPANS] =
        (wfi_worker_span){begin_ns, end_ns, number, (int32_t)kind, (int32_t)stream};
}

/* ---- timeline ---- */

static int n_kept(const wfi_worker_row *r) {
    return (int)wfi_min_i64(r->n, WFI_WORKER_SPANS);
}

/* Every row has its spans from the begin of the timeline on. */
static int64_t find_begin(const wf_workers *w) {
    int64_t first = INT64_MAX, whole = INT64_MIN;
    for (int k = 0; k < n_rows(w); k++) {
        int64_t earliest = INT64_MAX;
        for (int i = 0; i < n_kept(&w->rows[k]); i++)
            earliest = wfi_min_i64(earliest, w->rows[k].spans[i].begin_ns);
        first = wfi_min_i64(first, earliest);
        if (w->rows[k].n > WFI_WORKER_SPANS) whole = wfi_max_i64(whole, earliest);
    }
    return whole > first ? whole : first;
}

static const char *name_of(int32_t kind) {
    return kind == WF_SPAN_BACKWARD_WEIGHT ? "gradient"
           : kind == WF_SPAN_TRANSFER      ? "push and pull"
           : kind == WF_SPAN_UPDATE        ? "update"
                                           : "average";
}

static void add_row(wf_timeline *t, const wfi_worker_row *r, int row, int64_t begin_ns) {
    for (int i = 0; i < n_kept(r); i++) {
        const wfi_worker_span *span = &r->spans[(r->n - n_kept(r) + i) % WFI_WORKER_SPANS];
        int64_t first_ns = wfi_max_i64(span->begin_ns, begin_ns);
        double end_us = (double)(span->end_ns - begin_ns) / 1e3;
        if (span->end_ns <= first_ns) continue;
        t->spans[t->n_spans++] = (wf_span){.kind = (wf_span_kind)span->kind,
                                           .rank = row,
                                           .stream = wfi_stream_name(span->stream),
                                           .name = name_of(span->kind),
                                           .unit = "",
                                           .micro = span->number,
                                           .begin_us = (double)(first_ns - begin_ns) / 1e3,
                                           .end_us = end_us};
        if (end_us > t->step_us) t->step_us = end_us;
    }
}

static int compare(const void *left, const void *right) {
    const wf_span *a = left, *b = right;
    if (a->rank != b->rank) return a->rank - b->rank;
    return (a->begin_us > b->begin_us) - (a->begin_us < b->begin_us);
}

/* A process knows the rows of its own ranks. */
static wf_status share_rows(wf_workers *w) {
    int64_t n_words = (int64_t)(sizeof *w->rows / sizeof(int32_t));
    for (int k = 0; k < n_rows(w) && w->job; k++) {
        int rank = k < w->n_ranks ? k : wfi_workers_server_rank(w, k - w->n_ranks);
        WF_TRY(wf_group_broadcast(w->world, &w->rows[k], &w->rows[k], n_words, WF_I32, rank, NULL));
    }
    return WF_OK;
}

wf_status wf_workers_timeline(wf_workers *w, wf_timeline **timeline_out) {
    int64_t n = 0;
    if (!w->rows)
        return wfi_fail(w->ctx, WF_INVALID_ARG,
                        "the workers do not trace; set wf_trainer_config.trace");
    WF_TRY(share_rows(w));
    for (int k = 0; k < n_rows(w); k++) n += n_kept(&w->rows[k]);
    if (!n) return wfi_fail(w->ctx, WF_INVALID_ARG, "the workers have not run a step");
    WF_TRY(wfi_timeline_allocate(w->ctx, n_rows(w), n, timeline_out));
    wf_timeline *t = *timeline_out;
    int64_t begin_ns = find_begin(w);
    t->n_spans = 0;
    for (int k = 0; k < n_rows(w); k++) add_row(t, &w->rows[k], k, begin_ns);
    qsort(t->spans, (size_t)t->n_spans, sizeof *t->spans, compare);
    wfi_timeline_divide_spans(t, w->n_ranks);
    return WF_OK;
}
