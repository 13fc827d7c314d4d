#include "draw/boxes.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool push(boxes *b, const box *new) {
    if (b->n == b->capacity) {
        size_t more = b->capacity ? 2 * b->capacity : 256;
        box *moved = realloc(b->items, more * sizeof *moved);
        if (!moved) return false;
        b->items = moved;
        b->capacity = more;
    }
    b->items[b->n++] = *new;
    return true;
}

static bool is_move(const wf_span *span) {
    return strcmp(span->stream, "compute") != 0;
}

static box box_of(const wf_span *span) {
    bool moves = is_move(span);
    return (box){.kind = span->kind,
                 .rank = span->rank,
                 .is_move = moves,
                 .micro = moves ? -1 : span->micro,
                 .chunk = span->kind == WF_SPAN_UPDATE || moves ? 0 : span->chunk,
                 .begin_us = span->begin_us,
                 .end_us = span->end_us};
}

/* In hairs: gaps and updates in the midst of a microbatch that do not make two boxes of one. A
 * rank that is woken up late, say, or packs the weights of its next unit. */
#define GAP_HAIRS   4
#define BRIEF_HAIRS 6

/* Whether `next` goes on with what `now` does. */
static bool goes_on(const boxes *b, const box *now, const box *next) {
    return now->kind == next->kind && now->micro == next->micro && now->chunk == next->chunk &&
           next->begin_us - now->end_us <= GAP_HAIRS * b->hair_us;
}

static bool is_visible(const boxes *b, const box *now) {
    return now->end_us - now->begin_us > b->hair_us;
}

/* A short update between two units of one microbatch does not part them. It waits in
 * `brief` until it is clear what follows. */
typedef struct building {
    box now, brief;
    bool has_now, has_brief;
} building;

static bool is_interruption(const boxes *b, const building *s, const box *next) {
    box resumed = s->now;
    resumed.end_us = s->brief.end_us;
    return goes_on(b, &resumed, next) &&
           s->brief.begin_us - s->now.end_us <= GAP_HAIRS * b->hair_us &&
           s->brief.end_us - s->brief.begin_us <= BRIEF_HAIRS * b->hair_us;
}

static bool flush(boxes *b, building *s) {
    bool good = !s->has_now || push(b, &s->now);
    if (good && s->has_brief && is_visible(b, &s->brief)) good = push(b, &s->brief);
    s->has_now = s->has_brief = false;
    return good;
}

static bool add_compute(boxes *b, building *s, const box *next) {
    bool is_update = next->kind == WF_SPAN_UPDATE;
    if (s->has_now && goes_on(b, &s->now, next)) {
        s->now.end_us = next->end_us;
        s->has_brief = false;
        return true;
    }
    if (s->has_brief && is_interruption(b, s, next)) {
        s->now.end_us = next->end_us;
        s->has_brief = false;
        return true;
    }
    if (s->has_brief && goes_on(b, &s->brief, next)) {
        s->brief.end_us = next->end_us;
        return true;
    }
    if (s->has_now && !s->has_brief && is_update) {
        s->brief = *next;
        s->has_brief = true;
        return true;
    }
    if (!flush(b, s)) return false;
    s->now = *next;
    s->has_now = true;
    return true;
}

/* Moves run on several streams at once: of each kind, what touches becomes one. */
static bool add_move(boxes *b, size_t first, const box *next) {
    for (size_t i = b->n; i-- > first;) {
        box *other = &b->items[i];
        if (other->kind != next->kind || next->begin_us - other->end_us > b->hair_us ||
            other->begin_us - next->end_us > b->hair_us)
            continue;
        other->begin_us = fmin(other->begin_us, next->begin_us);
        other->end_us = fmax(other->end_us, next->end_us);
        return true;
    }
    return push(b, next);
}

static bool add_rank(boxes *b, const wf_timeline *t, int64_t begin, int64_t end) {
    building s = {0};
    for (int64_t i = begin; i < end; i++) {
        wf_span span = wf_timeline_span(t, i);
        box next = box_of(&span);
        if (!next.is_move && !add_compute(b, &s, &next)) return false;
    }
    if (!flush(b, &s)) return false;
    size_t first = b->n;
    for (int64_t i = begin; i < end; i++) {
        wf_span span = wf_timeline_span(t, i);
        box next = box_of(&span);
        if (next.is_move && next.end_us > next.begin_us && !add_move(b, first, &next)) return false;
    }
    return true;
}

/* How much higher the rank's microbatches are than those of the rank that does the same. */
static int64_t micro_apart(const wf_timeline *t, int like, int rank) {
    int64_t one = wf_timeline_first_span(t, like), other = wf_timeline_first_span(t, rank);
    int64_t n = wf_timeline_first_span(t, rank + 1) - other;
    for (int64_t i = 0; i < n; i++) {
        wf_span span = wf_timeline_span(t, one + i);
        if (span.micro >= 0) return wf_timeline_span(t, other + i).micro - span.micro;
    }
    return 0;
}

/* The boxes of a rank are those of the rank that does the same, which lie at [begin, end). */
static bool add_like(boxes *b, const wf_timeline *t, int rank, size_t begin, size_t end) {
    int64_t apart = micro_apart(t, wf_timeline_like(t, rank), rank);
    for (size_t i = begin; i < end; i++) {
        box next = b->items[i];
        next.rank = rank;
        if (next.micro >= 0) next.micro += apart;
        if (!push(b, &next)) return false;
    }
    return true;
}

/* begins [n_ranks + 1]: where each rank's boxes begin. */
static bool add_ranks(boxes *b, const wf_timeline *t, size_t *begins) {
    int n = wf_timeline_n_ranks(t);
    bool good = true;
    for (int r = 0; r < n && good; r++) {
        int like = wf_timeline_like(t, r);
        begins[r] = b->n;
        if (like == r)
            good = add_rank(b, t, wf_timeline_first_span(t, r), wf_timeline_first_span(t, r + 1));
        else
            good = add_like(b, t, r, begins[like], begins[like + 1]);
        begins[r + 1] = b->n;
    }
    return good;
}

bool boxes_create(const wf_timeline *t, double hair_us, boxes *b) {
    *b = (boxes){.hair_us = hair_us};
    size_t *begins = calloc((size_t)wf_timeline_n_ranks(t) + 1, sizeof *begins);
    bool good = begins && add_ranks(b, t, begins);
    free(begins);
    if (!good) boxes_release(b);
    return good;
}

void boxes_release(boxes *b) {
    free(b->items);
    memset(b, 0, sizeof *b);
}

shares shares_of(const wf_timeline *t) {
    shares s = {0, 0, 0, 0};
    double percent = 100 / fmax(wf_timeline_step_us(t), 1e-9) / wf_timeline_n_ranks(t);
    for (int r = 0; r < wf_timeline_n_ranks(t); r++) {
        wf_rank_time time = wf_timeline_rank(t, r);
        s.compute += percent * time.compute_us;
        s.transfer += percent * time.transfer_us;
        s.bubble += percent * time.bubble_us;
        s.wait += percent * time.wait_us;
    }
    return s;
}
