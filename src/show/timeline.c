#include "show/timeline.h"
#include "program/clock.h"
#include "program/stage.h"
#include "program/text.h"

#include <math.h>

wf_status wfi_timeline_allocate(wf_context *ctx, int n_ranks, int64_t n_spans,
                                wf_timeline **timeline_out) {
    wf_timeline *t = wfi_alloc(ctx, 1, sizeof *t, "a timeline");
    if (!t) return WF_NO_MEMORY;
    *t = (wf_timeline){.ctx = ctx, .n_ranks = n_ranks, .n_spans = n_spans, .n_chunks = 1};
    wfi_pool_init(&t->pool, ctx);
    t->spans = wfi_pool_array(&t->pool, (size_t)n_spans, sizeof *t->spans, "a timeline");
    t->times = wfi_pool_array(&t->pool, (size_t)n_ranks, sizeof *t->times, "a timeline");
    t->moments = wfi_pool_array(&t->pool, (size_t)n_ranks, sizeof *t->moments, "a timeline");
    if (t->pool.failed) {
        wf_timeline_destroy(t);
        return WF_NO_MEMORY;
    }
    *timeline_out = t;
    return WF_OK;
}

/* A server applies pushes while others are in transfer, so only workers wait for transfers. */
void wfi_timeline_divide_spans(wf_timeline *t, int n_workers) {
    for (int i = 0; i < t->n_spans; i++) {
        const wf_span *span = &t->spans[i];
        wf_rank_time *time = &t->times[span->rank];
        bool is_move = span->kind == WF_SPAN_TRANSFER || span->kind == WF_SPAN_REDUCE;
        if (!is_move)
            time->compute_us += span->end_us - span->begin_us;
        else if (span->rank < n_workers)
            time->transfer_us += span->end_us - span->begin_us;
    }
    for (int r = 0; r < t->n_ranks; r++)
        t->times[r].bubble_us =
            fmax(0, t->step_us - t->times[r].compute_us - t->times[r].transfer_us);
}

/* Names are shared: there are as many as kinds of instructions and units. */
typedef struct naming {
    wf_timeline *t;
    wfi_pool *pool;     /* of the arrays below */
    const char **units; /* [n_units] */
    const char **names; /* [n_instruction_names][n_units + 1], NULL: not made yet */
    /* The names on other ranks along `tp`; NULL: all are the same. */
    const wfi_span_names **others;
    int32_t *transfers; /* [n_instructions] as wf_span has them */
    int32_t *chunks;    /* [n_stages] */
} naming;

static const char *unit_name(const naming *n, const wf_graph *g, int32_t unit) {
    if (unit < 0) return "";
    if (!n->units[unit]) n->units[unit] = wfi_pool_format(&n->t->pool, "%s", g->units[unit].name);
    return n->units[unit];
}

static const char *make_name(const naming *n, const wf_program *p, const wfi_instruction *now,
                             int32_t rank) {
    const char *name = NULL;
    wfi_text text = {.ctx = p->ctx};
    wfi_text_add(&text, now->unit < 0 ? "%s" : "%s ", wfi_instruction_name(now));
    wfi_units_text(p, now, rank, &text);
    if (wfi_text_status(&text) == WF_OK) name = wfi_pool_format(&n->t->pool, "%s", text.data);
    wfi_free(p->ctx, text.data);
    return name;
}

#define N_NAMES (2 * (size_t)WFI_N_INSTRUCTION_NAMES)

/* A unit has two names for each kind: for its own moves, and for moves of all slices. */
static int32_t name_number(const wf_program *p, const wfi_instruction *now) {
    int32_t number = wfi_instruction_name_number(now);
    if (wfi_moves_all_slices(p, now)) number += WFI_N_INSTRUCTION_NAMES;
    return number * (p->graph->n_units + 1) + now->unit + 1;
}

/* A reduction of several units has the name of the first, which is in no other reduction. */
static const char *full_name(const naming *n, const wf_program *p, const wfi_instruction *now) {
    const char **name = &n->names[name_number(p, now)];
    if (!*name) *name = make_name(n, p, now, now->rank);
    return *name;
}

/* Finds the instruction's names on ranks of each `tp` coordinate; NULL: the same on all ranks that
 * follow. */
static wf_status name_others(const naming *n, const wf_program *p, const wfi_instruction *now,
                             const wfi_span_names **names_out) {
    *names_out = NULL;
    if (now->unit < 0 || !wfi_unit_is_divided(p, now->unit) ||
        !wfi_unit_is_on(p, now->unit, now->rank))
        return WF_OK;
    const wfi_span_names **kept = &n->others[name_number(p, now)];
    wfi_span_names *names =
        *kept ? NULL : wfi_pool_alloc(&n->t->pool, (size_t)p->mesh.tp, sizeof *names);
    if (!*kept && !names) return WF_NO_MEMORY;
    for (int32_t tp = 0; tp < p->mesh.tp && !*kept; tp++) {
        int32_t rank = wfi_mesh_move(&p->mesh, WFI_TP, now->rank, tp);
        if (p->ranks[rank].like != now->rank) continue;
        names[tp].unit = unit_name(n, p->graph, wfi_rank_named_unit(p, rank, now));
        names[tp].name = make_name(n, p, now, rank);
        if (!names[tp].unit || !names[tp].name) return WF_NO_MEMORY;
    }
    if (!*kept) *kept = names;
    *names_out = *kept;
    return WF_OK;
}

/* Numbers each stage among those of its ranks. */
static void number_chunks(const wf_program *p, int32_t *chunks) {
    for (const wfi_stage *own = p->stages; own < p->stages + p->n_stages; own++)
        for (const wfi_stage *s = p->stages; s < own; s++)
            chunks[own - p->stages] += s->pp == own->pp && s->number < own->number;
}

/* A send and its receive stand side by side in the order of the program, which all processes have.
 */
static void number_transfers(const wf_program *p, int32_t *transfers) {
    int32_t number = 0;
    for (int32_t k = 0; k < p->n_instructions; k += wfi_n_together(p, k))
        if (wfi_type_of(&p->instructions[p->order[k]])->class == WFI_CLASS_TRANSFER)
            transfers[p->order[k]] = transfers[p->order[k + 1]] = ++number;
}

static wf_status add_spans(const wf_program *p, const double *begin_us, const double *end_us,
                           const naming *n, int32_t rank, wf_span *spans) {
    const wfi_rank *r = &p->ranks[rank];
    wf_timeline *t = n->t;
    for (int s = 0; s < WFI_N_STREAMS; s++)
        for (int32_t at = 0; at < r->n_stream[s]; at++) {
            int32_t i = r->stream[s][at];
            const wfi_instruction *now = &p->instructions[i];
            wf_span span = {.kind = wfi_type_of(now)->span, .rank = rank, .micro = now->micro};
            span.chunk = now->unit < 0 ? 0 : n->chunks[wfi_program_stage_of(p, now->unit)];
            if (span.chunk >= t->n_chunks) t->n_chunks = span.chunk + 1;
            span.transfer = n->transfers[i];
            span.stream = wfi_stream_name(now->stream);
            span.unit = unit_name(n, p->graph, now->unit);
            span.name = full_name(n, p, now);
            span.begin_us = begin_us[i];
            span.end_us = end_us[i];
            if (!span.unit || !span.name) return WF_NO_MEMORY;
            if (span.end_us > t->step_us) t->step_us = span.end_us;
            if (t->others) WF_TRY(name_others(n, p, now, &t->others[spans - t->spans]));
            *spans++ = span;
        }
    return WF_OK;
}

static wf_status fill(const wf_program *p, const double *begin_us, const double *end_us,
                      const naming *n) {
    wf_timeline *t = n->t;
    for (int32_t k = 0; k < p->n_lowered; k++) {
        int32_t r = p->lowered[k];
        WF_TRY(add_spans(p, begin_us, end_us, n, r, t->spans + t->ranks[r].kept));
    }
    WF_TRY(wfi_timeline_find_moments(p, begin_us, end_us, t));
    return wfi_timeline_divide(p, begin_us, end_us, t->step_us, t->times);
}

static int64_t count_spans(const wf_program *p, int32_t rank) {
    int64_t n = 0;
    for (int s = 0; s < WFI_N_STREAMS; s++) n += p->ranks[rank].n_stream[s];
    return n;
}

/* A rank comes after the one that it follows. */
static wf_status number_spans(const wf_program *p, wf_timeline *t) {
    int64_t n_kept = 0;
    t->ranks = wfi_pool_alloc(&t->pool, (size_t)p->n_ranks, sizeof *t->ranks);
    if (!t->ranks) return WF_NO_MEMORY;
    for (int32_t r = 0; r < p->n_ranks; r++) {
        bool is_kept = wfi_rank_is_lowered(p, r);
        t->ranks[r] = (wfi_rank_spans){
            .like = p->ranks[r].like,
            .tp = wfi_rank_has_other_slices(p, r) ? wfi_mesh_at(&p->mesh, WFI_TP, r) : -1,
            .first = t->n_spans,
            .kept = is_kept ? n_kept : t->ranks[p->ranks[r].like].kept,
            .later = wfi_rank_micro(p, r, 0)};
        t->n_spans += count_spans(p, r);
        n_kept += is_kept ? count_spans(p, r) : 0;
    }
    return WF_OK;
}

static wf_status allocate_others(const wf_program *p, naming *n) {
    size_t n_names = N_NAMES * ((size_t)p->graph->n_units + 1);
    bool has_others = false;
    for (int32_t r = 0; r < p->n_ranks; r++) has_others |= wfi_rank_has_other_slices(p, r);
    if (!has_others) return WF_OK;
    n->others = wfi_pool_array(n->pool, n_names, sizeof *n->others, "a timeline");
    n->t->others =
        wfi_pool_array(&n->t->pool, (size_t)p->n_instructions, sizeof *n->t->others, "a timeline");
    return n->others && n->t->others ? WF_OK : WF_NO_MEMORY;
}

wf_status wfi_timeline_create(const wf_program *p, const double *begin_us, const double *end_us,
                              wf_timeline **timeline_out) {
    wf_timeline *t;
    size_t n_units = (size_t)p->graph->n_units;
    WF_TRY(wfi_timeline_allocate(p->ctx, p->n_ranks, p->n_instructions, &t));
    t->n_spans = 0;
    wfi_pool pool = {.ctx = p->ctx};
    naming n = {.t = t, .pool = &pool};
    n.units = wfi_pool_array(&pool, n_units, sizeof *n.units, "a timeline");
    n.names = wfi_pool_array(&pool, N_NAMES * (n_units + 1), sizeof *n.names, "a timeline");
    n.transfers =
        wfi_pool_array(&pool, (size_t)p->n_instructions, sizeof *n.transfers, "a timeline");
    n.chunks = wfi_pool_array(&pool, (size_t)p->n_stages, sizeof *n.chunks, "a timeline");
    if (n.transfers) number_transfers(p, n.transfers);
    if (n.chunks) number_chunks(p, n.chunks);
    bool ok = !pool.failed && number_spans(p, t) == WF_OK && allocate_others(p, &n) == WF_OK;
    wf_status status = ok ? fill(p, begin_us, end_us, &n) : WF_NO_MEMORY;
    wfi_pool_release(&pool);
    if (status == WF_OK)
        *timeline_out = t;
    else
        wf_timeline_destroy(t);
    return status;
}

/* ---- public ---- */

const char *wf_span_kind_name(wf_span_kind kind) {
    static const char *const names[WF_N_SPAN_KINDS] = {"forward",         "backward",  "weight",
                                                       "backward+weight", "recompute", "update",
                                                       "transfer",        "reduce",    "host"};
    return (unsigned)kind < WF_N_SPAN_KINDS ? names[kind] : "?";
}

const char *wf_memory_kind_name(wf_memory_kind kind) {
    static const char *const names[WF_N_MEMORY_KINDS] = {
        "parameters", "gathered", "gradients", "state", "activations", "workspace", "host", "disk"};
    return (unsigned)kind < WF_N_MEMORY_KINDS ? names[kind] : "?";
}

double wf_timeline_step_us(const wf_timeline *timeline) {
    return timeline->step_us;
}

int wf_timeline_n_ranks(const wf_timeline *timeline) {
    return timeline->n_ranks;
}

int64_t wf_timeline_n_spans(const wf_timeline *timeline) {
    return timeline->n_spans;
}

int wf_timeline_n_chunks(const wf_timeline *timeline) {
    return timeline->n_chunks;
}

/* Finds the rank of span i: the last one that begins at i or before. */
static int32_t find_rank(const wf_timeline *t, int64_t i) {
    int32_t low = 0, high = t->n_ranks - 1;
    while (low < high) {
        int32_t middle = high - (high - low) / 2;
        if (t->ranks[middle].first <= i)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

/* Span i of all ranks, which is of that rank. */
static wf_span span_of(const wf_timeline *t, int32_t rank, int64_t i) {
    const wfi_rank_spans *own = &t->ranks[rank];
    int64_t at = own->kept + i - own->first;
    const wfi_whole_span *whole = t->whole ? &t->whole[at] : NULL;
    if (whole) at = whole->span;
    wf_span span = t->spans[at];
    if (whole) span.begin_us = whole->begin_us, span.end_us = whole->end_us;
    if (whole && span.micro >= 0) span.micro += whole->later;
    const wfi_span_names *others = own->tp >= 0 ? t->others[at] : NULL;
    if (others) span.unit = others[own->tp].unit, span.name = others[own->tp].name;
    span.rank = rank;
    if (span.micro >= 0) span.micro += own->later;
    return span;
}

int wf_timeline_spans(const wf_timeline *t, int64_t first, int n, wf_span *spans_out) {
    if (first < 0 || n < 1 || first >= t->n_spans) return 0;
    n = (int)wfi_min_i64(n, t->n_spans - first);
    int32_t rank = t->ranks ? find_rank(t, first) : 0;
    for (int k = 0; k < n; k++) {
        while (t->ranks && rank + 1 < t->n_ranks && t->ranks[rank + 1].first <= first + k) rank++;
        spans_out[k] = t->ranks ? span_of(t, rank, first + k) : t->spans[first + k];
    }
    return n;
}

wf_span wf_timeline_span(const wf_timeline *timeline, int64_t i) {
    wf_span span = {.name = "", .unit = "", .stream = ""};
    (void)wf_timeline_spans(timeline, i, 1, &span);
    return span;
}

int wf_timeline_like(const wf_timeline *timeline, int rank) {
    bool exists = rank >= 0 && rank < timeline->n_ranks;
    return exists && timeline->ranks ? timeline->ranks[rank].like : rank;
}

int64_t wf_timeline_first_span(const wf_timeline *timeline, int rank) {
    bool exists = rank >= 0 && rank < timeline->n_ranks;
    int64_t i = exists ? 0 : timeline->n_spans;
    if (exists && timeline->ranks) return timeline->ranks[rank].first;
    while (i < timeline->n_spans && timeline->spans[i].rank < rank) i++;
    return i;
}

wf_rank_time wf_timeline_rank(const wf_timeline *timeline, int rank) {
    return rank >= 0 && rank < timeline->n_ranks ? timeline->times[rank] : (wf_rank_time){0};
}

int wf_timeline_n_moments(const wf_timeline *timeline, int rank) {
    return rank >= 0 && rank < timeline->n_ranks ? timeline->moments[rank].n : 0;
}

wf_memory_moment wf_timeline_moment(const wf_timeline *timeline, int rank, int i) {
    bool exists = i >= 0 && i < wf_timeline_n_moments(timeline, rank);
    return exists ? timeline->moments[rank].items[i] : (wf_memory_moment){0};
}

void wf_timeline_destroy(wf_timeline *timeline) {
    if (!timeline) return;
    wfi_pool_release(&timeline->pool);
    wfi_free(timeline->ctx, timeline->whole);
    wfi_free(timeline->ctx, timeline);
}
