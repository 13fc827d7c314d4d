/* The simulation of a whole step from its short form. Each rank walks through its instructions, and
 * through two periods behind a cut in turn until as many as the step has are done. What an
 * instruction depends on is as far behind it as in the short form. Ranks walk in the order of
 * emission, which is a legal order, and wait for each other at transfers and collectives.
 */
#include "program/rate.h"
#include "program/stage.h"
#include "show/timeline.h"
#include "sim/step.h"

#include <math.h>

/* A rank's walk. */
typedef struct walk {
    int32_t rank, first, at;   /* its first instruction of the short form, and the one at hand */
    int64_t number, n_all;     /* of the whole step's instructions */
    const wfi_repeat *repeat;  /* [n_cuts] */
    int32_t cut;               /* the next one, or the one at hand */
    int64_t n_left, n_done;    /* periods at hand that come again; none left: at none */
    double *end_us, *ready_us; /* [n_all] */
    int64_t next_span[WFI_N_STREAMS], latest[WFI_N_STREAMS]; /* the latter -1: none */
    double divided_us;                                       /* until then the step is divided */
    wf_rank_time time;
} walk;

typedef struct simulation {
    const wf_program *p, *s; /* the program, and its short form */
    const wf_costs *costs;
    walk *walks; /* [n_lowered] */
    wfi_whole_span *spans;
    int32_t *span_of;          /* [instruction of the short form] its span in the short timeline */
    double *times;             /* end and ready of all */
    double *begin_us, *end_us; /* [instruction of the short form] when it runs first */
} simulation;

static const wfi_instruction *now_of(const simulation *s, const walk *w) {
    return &s->s->instructions[w->at];
}

/* The number of what the instruction at hand depends on: as far behind as in the short form, unless
 * that is before a period that repeats, and not in it. */
static int64_t number_of(const simulation *s, const walk *w, int32_t i) {
    bool repeats = w->n_left > 0;
    const wfi_repeat *last = repeats ? &w->repeat[w->cut] : w->cut ? &w->repeat[w->cut - 1] : NULL;
    int64_t near = w->number - (w->at - i);
    if (!last || repeats || i >= last->begin || w->at < last->after) return near;
    int64_t far = i - w->first;
    for (int32_t k = 0; k < w->cut && i >= w->repeat[k].end; k++)
        far += s->s->n_times * (w->repeat[k].end - w->repeat[k].begin);
    return far;
}

/* ---- together ---- */

static bool is_partner(const simulation *s, const walk *w, const walk *other) {
    const wfi_instruction *a = now_of(s, w), *b = now_of(s, other);
    if (other->number == other->n_all || wfi_type_of(a)->class != wfi_type_of(b)->class)
        return false;
    if (wfi_type_of(a)->class == WFI_CLASS_CHANGE) return a->group == b->group;
    return a->kind != b->kind && a->peer == other->rank && b->peer == w->rank && a->id == b->id;
}

/* Returns how many walks take part in the instruction of `w`; 0: one is not there yet. */
static int32_t find_partners(const simulation *s, walk *w, walk **out) {
    const wf_program *p = s->s;
    const wfi_instruction *now = now_of(s, w);
    int32_t n = 0;
    out[n++] = w;
    if (wfi_type_of(now)->class == WFI_CLASS_TRANSFER) {
        walk *other = &s->walks[p->ranks[now->peer].row];
        out[n++] = other;
        return is_partner(s, w, other) ? n : 0;
    }
    if (wfi_type_of(now)->class != WFI_CLASS_CHANGE) return n;
    const wfi_group *group = &p->groups[now->group];
    for (int32_t m = 0; m < group->n; m++) {
        walk *other = &s->walks[p->ranks[group->ranks[m]].row];
        if (!wfi_rank_is_lowered(p, group->ranks[m]) || other == w) continue;
        if (!is_partner(s, w, other)) return 0;
        out[n++] = other;
    }
    return n;
}

/* ---- one instruction ---- */

static void divide(const simulation *s, walk *w, double begin_us, double end_us) {
    const wfi_instruction *now = now_of(s, w);
    int64_t waited = -1;
    for (int32_t d = 0; d < now->n_depends; d++) {
        int64_t k = number_of(s, w, now->depends[d]);
        if (waited < 0 || w->end_us[k] > w->end_us[waited]) waited = k;
    }
    double begin = fmax(begin_us, w->divided_us), end = fmax(end_us, begin);
    double at = w->divided_us;
    if (waited >= 0)
        at = wfi_divide_gap(w->end_us[waited], w->ready_us[waited], at, begin, &w->time);
    w->time.wait_us += begin - at;
    w->time.compute_us += end - begin;
    w->divided_us = end;
}

/* How many microbatches later than in the short form. */
static int64_t later(const simulation *s, const walk *w) {
    int64_t n = w->cut * s->s->n_times * s->s->n_period;
    int64_t base = wfi_first_micro(s->p, 0, wfi_mesh_at(&s->p->mesh, WFI_DP, w->rank)) -
                   wfi_first_micro(s->s, 0, wfi_mesh_at(&s->s->mesh, WFI_DP, w->rank));
    return base + n + (w->n_left > 0 ? (w->n_done + 1) / 2 * 2 * s->s->n_period : 0);
}

/* In the periods that repeat: the second one, the first one, and so on. */
static void advance(const simulation *s, walk *w) {
    w->number++;
    w->at++;
    if (w->cut == s->s->n_cuts) return;
    const wfi_repeat *r = &w->repeat[w->cut];
    if (!w->n_left && w->at == r->end) {
        w->n_left = s->s->n_times;
        w->n_done = 0;
        return;
    }
    if (!w->n_left || (w->at != r->end && w->at != r->after)) return;
    w->n_left--;
    w->n_done++;
    if (w->n_left && w->at == r->after) w->at = r->begin;
    if (!w->n_left) w->cut++;
}

static void finish(const simulation *s, walk *w, double begin_us, double us, double ready_us) {
    const wfi_instruction *now = now_of(s, w);
    double end_us = begin_us + us;
    if (now->stream == WFI_STREAM_COMPUTE) divide(s, w, begin_us, end_us);
    if (!w->n_left) s->begin_us[w->at] = begin_us, s->end_us[w->at] = end_us;
    w->end_us[w->number] = end_us;
    w->ready_us[w->number] = ready_us;
    w->latest[now->stream] = w->number;
    s->spans[w->next_span[now->stream]++] =
        (wfi_whole_span){begin_us, end_us, s->span_of[w->at], (int32_t)later(s, w)};
    advance(s, w);
}

/* A report has a record of each microbatch. */
static double bytes_of(const simulation *s, const wfi_instruction *now) {
    double bytes = wfi_instruction_bytes(s->s, now);
    if (now->kind != WFI_REPORT) return bytes;
    return bytes * (double)s->p->recipe.n_micro / (double)s->s->recipe.n_micro;
}

static void run_together(const simulation *s, walk **walks, int32_t n) {
    const wfi_instruction *first = now_of(s, walks[0]);
    int32_t n_ranks = first->stream == WFI_STREAM_REDUCE ? s->s->groups[first->group].n : n;
    double begin = 0, us = 0, ready = 0;
    for (int32_t m = 0; m < n; m++) {
        const walk *w = walks[m];
        const wfi_instruction *now = now_of(s, w);
        int64_t before = w->latest[now->stream];
        if (before >= 0) begin = fmax(begin, w->end_us[before]);
        if (before >= 0) ready = fmax(ready, w->ready_us[before]);
        for (int32_t d = 0; d < now->n_depends; d++) {
            double end = w->end_us[number_of(s, w, now->depends[d])];
            begin = fmax(begin, end);
            ready = fmax(ready, end);
        }
        us = fmax(us, wfi_instruction_us(s->s, s->costs, now, bytes_of(s, now), n_ranks));
    }
    for (int32_t m = 0; m < n; m++) finish(s, walks[m], begin, us, ready);
}

static wf_status run_all(const simulation *s, walk **partners) {
    const wf_program *p = s->s;
    bool moved = true;
    while (moved) {
        moved = false;
        for (int32_t k = 0; k < p->n_lowered; k++) {
            walk *w = &s->walks[k];
            int32_t n;
            while (w->number < w->n_all && (n = find_partners(s, w, partners))) {
                run_together(s, partners, n);
                moved = true;
            }
        }
    }
    for (int32_t k = 0; k < p->n_lowered; k++)
        if (s->walks[k].number < s->walks[k].n_all)
            return wfi_fail(p->ctx, WF_BUG, "the simulation of rank %d stops after %lld of %lld",
                            s->walks[k].rank, (long long)s->walks[k].number,
                            (long long)s->walks[k].n_all);
    return WF_OK;
}

/* ---- all of it ---- */

/* Of the instruction's stream in the whole step. */
static void count_streams(const simulation *s, const walk *w, int64_t n[WFI_N_STREAMS]) {
    const wfi_rank *rank = &s->s->ranks[w->rank];
    for (int st = 0; st < WFI_N_STREAMS; st++) n[st] = rank->n_stream[st];
    for (int32_t k = 0; k < s->s->n_cuts; k++)
        for (int32_t i = w->repeat[k].begin; i < w->repeat[k].end; i++)
            n[s->s->instructions[i].stream] += s->s->n_times;
}

static void begin_walks(const simulation *s) {
    const wf_program *p = s->s;
    int64_t n_before = 0;
    int32_t at = 0, span = 0;
    for (int32_t k = 0; k < p->n_lowered; k++) {
        walk *w = &s->walks[k];
        int64_t n[WFI_N_STREAMS], position = n_before;
        *w = (walk){
            .rank = p->lowered[k], .first = at, .at = at, .repeat = p->repeats + k * p->n_cuts};
        count_streams(s, w, n);
        for (int st = 0; st < WFI_N_STREAMS; st++) {
            const wfi_rank *rank = &p->ranks[w->rank];
            w->next_span[st] = position;
            w->latest[st] = -1;
            position += n[st];
            for (int32_t i = 0; i < rank->n_stream[st]; i++)
                s->span_of[rank->stream[st][i]] = span++;
            at += rank->n_stream[st];
        }
        w->n_all = position - n_before;
        w->end_us = s->times + 2 * n_before;
        w->ready_us = w->end_us + w->n_all;
        n_before = position;
    }
}

/* The rest of the step, as divide.c divides it. */
static void end_walk(walk *w, double step_us) {
    int64_t last = -1;
    for (int st = 0; st < WFI_N_STREAMS; st++) {
        int64_t k = w->latest[st];
        if (k >= 0 && (last < 0 || w->end_us[k] > w->end_us[last])) last = k;
    }
    double at = w->divided_us;
    if (last >= 0) at = wfi_divide_gap(w->end_us[last], w->ready_us[last], at, step_us, &w->time);
    w->time.bubble_us += step_us - at;
}

/* The timeline of the short form gets the spans of the whole step. Its moments of memory are those
 * of the short form, with all records, at the times of the whole step. */
static void fill(const simulation *s, wf_timeline *t) {
    int64_t n_kept = 0;
    t->whole = s->spans;
    t->n_spans = 0;
    for (int32_t k = 0; k < s->s->n_lowered; k++)
        for (int st = 0; st < WFI_N_STREAMS; st++)
            if (s->walks[k].latest[st] >= 0)
                t->step_us = fmax(t->step_us, s->walks[k].end_us[s->walks[k].latest[st]]);
    for (int32_t r = 0; r < s->p->n_ranks; r++) {
        wfi_rank_spans *own = &t->ranks[r];
        walk *w = &s->walks[s->p->ranks[own->like].row];
        if (own->like == r) end_walk(w, t->step_us);
        own->first = t->n_spans;
        own->kept = own->like == r ? n_kept : t->ranks[own->like].kept;
        own->later = wfi_rank_micro(s->p, r, 0);
        t->n_spans += w->n_all;
        n_kept += own->like == r ? w->n_all : 0;
        t->times[r] = w->time;
    }
}

static wf_status simulate(simulation *s, walk **partners, wf_timeline **out) {
    begin_walks(s);
    WF_TRY(run_all(s, partners));
    WF_TRY(wfi_timeline_create(s->s, s->begin_us, s->end_us, out));
    fill(s, *out);
    return WF_OK;
}

wf_status wfi_simulate_repeats(const wf_program *p, const wf_costs *costs, wf_timeline **out) {
    simulation s = {.p = p, .s = p->shorter, .costs = costs};
    size_t n_short = (size_t)s.s->n_instructions, n = n_short, n_lowered = (size_t)p->n_lowered;
    const char *what = "a simulation";
    wfi_pool pool = {.ctx = p->ctx};
    for (int32_t k = 0; k < p->n_lowered; k++) n += (size_t)p->ranks[p->lowered[k]].n_repeated;
    s.begin_us = wfi_pool_array(&pool, n_short, sizeof(double), what);
    s.end_us = wfi_pool_array(&pool, n_short, sizeof(double), what);
    walk **partners = wfi_pool_array(&pool, (size_t)p->n_ranks + 1, sizeof *partners, what);
    s.walks = wfi_pool_array(&pool, n_lowered, sizeof *s.walks, what);
    s.spans = wfi_alloc(p->ctx, n, sizeof *s.spans, what);
    s.span_of = wfi_pool_array(&pool, n_short, sizeof *s.span_of, what);
    s.times = wfi_pool_array(&pool, 2 * n, sizeof *s.times, what);
    bool ok = s.spans && !pool.failed;
    wf_status status = ok ? simulate(&s, partners, out) : WF_NO_MEMORY;
    if (status != WF_OK) wfi_free(p->ctx, s.spans);
    wfi_pool_release(&pool);
    return status;
}
