/* Spans of workers and servers in a simulation of updates, and the timeline made of them. */
#include "show/timeline.h"
#include "sim/updates.h"

#include <math.h>
#include <stdlib.h>

double wfi_sim_worker_ms(const wf_simulation *s, int32_t worker, double ms) {
    return worker == 0 ? ms * s->config.slow : ms;
}

static bool is_recording(const wf_simulation *s) {
    return s->n_steps_done < s->config.timeline_steps;
}

wf_status wfi_sim_add(wf_simulation *s, wfi_sim_span span) {
    if (!is_recording(s) || !(span.end_ms > span.begin_ms)) return WF_OK;
    WF_TRY(WFI_GROW(s->ctx, s->spans, s->n_spans, s->capacity, "a simulation's timeline"));
    s->spans[s->n_spans++] = span;
    return WF_OK;
}

wf_status wfi_sim_compute(wf_simulation *s, int32_t worker, int64_t number, double begin_ms,
                          double *end_ms_out) {
    const wf_simulation_config *c = &s->config;
    double middle_ms = begin_ms + wfi_sim_worker_ms(s, worker, c->forward_ms);
    double end_ms = middle_ms + wfi_sim_worker_ms(s, worker, c->backward_ms + c->weight_ms);
    wfi_sim_span forward = {WF_SPAN_FORWARD, worker,   WFI_STREAM_COMPUTE, "forward",
                            number,          begin_ms, middle_ms};
    wfi_sim_span backward = {
        WF_SPAN_BACKWARD_WEIGHT, worker, WFI_STREAM_COMPUTE, "backward", number, middle_ms, end_ms};
    s->computed_ms += end_ms - begin_ms;
    *end_ms_out = end_ms;
    WF_TRY(wfi_sim_add(s, forward));
    return wfi_sim_add(s, backward);
}

void wfi_sim_pass_step(wf_simulation *s, int64_t n_steps, double now_ms) {
    if (n_steps == s->config.timeline_steps) s->cut_ms = fmax(s->cut_ms, now_ms);
}

void wfi_sim_finish_steps(wf_simulation *s, int64_t n_steps, double now_ms) {
    /* In the middle of a round of local steps, wfi_sim_pass_step has set the end. */
    if (is_recording(s) && n_steps <= s->config.timeline_steps) s->cut_ms = now_ms;
    s->n_steps_done = n_steps;
    s->end_ms = now_ms;
}

/* ---- timeline ---- */

static int compare(const void *left, const void *right) {
    const wfi_sim_span *a = left, *b = right;
    if (a->rank != b->rank) return a->rank < b->rank ? -1 : 1;
    if (a->stream != b->stream) return a->stream < b->stream ? -1 : 1;
    return (a->begin_ms > b->begin_ms) - (a->begin_ms < b->begin_ms);
}

/* Spans begin before the timeline's end, and end there. */
static void cut_spans(wf_simulation *s) {
    size_t n = 0;
    for (size_t i = 0; i < s->n_spans; i++) {
        wfi_sim_span span = s->spans[i];
        span.end_ms = fmin(span.end_ms, s->cut_ms);
        if (span.end_ms > span.begin_ms) s->spans[n++] = span;
    }
    s->n_spans = n;
    if (n) qsort(s->spans, n, sizeof *s->spans, compare);
}

static int32_t n_servers(const wf_simulation *s) {
    return s->config.update == WF_SIMULATION_ASYNC ? (int32_t)s->config.n_servers : 0;
}

/* All servers have the spans of the first one, which come last. */
static size_t first_of_servers(const wf_simulation *s) {
    size_t n = s->n_spans;
    while (n && s->spans[n - 1].rank == (int32_t)s->config.n_workers) n--;
    return n;
}

static void add_span(wf_timeline *t, const wfi_sim_span *span, int rank) {
    t->spans[t->n_spans++] = (wf_span){.kind = span->kind,
                                       .rank = rank,
                                       .stream = wfi_stream_name(span->stream),
                                       .name = span->name,
                                       .unit = "",
                                       .micro = span->number,
                                       .begin_us = 1e3 * span->begin_ms,
                                       .end_us = 1e3 * span->end_ms};
}

wf_status wfi_sim_timeline(wf_simulation *s) {
    if (!s->config.timeline_steps) return WF_OK;
    cut_spans(s);
    int n_workers = (int)s->config.n_workers, n_ranks = n_workers + n_servers(s);
    size_t first = first_of_servers(s);
    size_t n = first + (s->n_spans - first) * (size_t)n_servers(s);
    WF_TRY(wfi_timeline_allocate(s->ctx, n_ranks, (int)n, &s->timeline));
    wf_timeline *t = s->timeline;
    t->n_spans = 0;
    t->step_us = 1e3 * s->cut_ms;
    for (size_t i = 0; i < first; i++) add_span(t, &s->spans[i], s->spans[i].rank);
    for (int r = n_workers; r < n_ranks; r++)
        for (size_t i = first; i < s->n_spans; i++) add_span(t, &s->spans[i], r);
    wfi_timeline_divide_spans(t, n_workers);
    return WF_OK;
}
