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

/* Whether `next` continues the work of `now`. */
static bool goes_on(const boxes *b, const box *now, const box *next) {
    return now->kind == next->kind && now->micro == next->micro && now->chunk == next->chunk &&
           next->begin_us - now->end_us <= GAP_HAIRS * b->hair_us;
}

static bool is_visible(const boxes *b, const box *now) {
    return now->end_us - now->begin_us > b->hair_us;
}

/* A short update between two units of one microbatch does not part them. The update waits in
 * `brief` until its successor is known. */
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

/* Moves run on several streams at once: touching boxes of one kind are joined. */
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

/* Adds the boxes of compute, or the moves. Moves do not change boxes before `first`. */
static bool add_some(boxes *b, building *s, const wf_span *spans, int n, bool are_moves,
                     size_t first) {
    for (int k = 0; k < n; k++) {
        box next = box_of(&spans[k]);
        if (next.is_move != are_moves) continue;
        if (!are_moves && !add_compute(b, s, &next)) return false;
        if (are_moves && next.end_us > next.begin_us && !add_move(b, first, &next)) return false;
    }
    return true;
}

static bool add_rank(boxes *b, const wf_timeline *t, int64_t begin, int64_t end) {
    enum { AT_ONCE = 64 };
    building s = {0};
    size_t first = 0;
    for (int are_moves = 0; are_moves < 2; are_moves++) {
        for (int64_t i = begin; i < end; i += AT_ONCE) {
            wf_span spans[AT_ONCE];
            int most = end - i < AT_ONCE ? (int)(end - i) : AT_ONCE;
            int n = wf_timeline_spans(t, i, most, spans);
            if (!add_some(b, &s, spans, n, are_moves, first)) return false;
        }
        if (!are_moves && !flush(b, &s)) return false;
        first = b->n;
    }
    return true;
}

/* Returns the distance of the rank's microbatches from those of the rank `like`. */
static int64_t micro_apart(const wf_timeline *t, int like, int rank) {
    int64_t one = wf_timeline_first_span(t, like), other = wf_timeline_first_span(t, rank);
    int64_t n = wf_timeline_first_span(t, rank + 1) - other;
    for (int64_t i = 0; i < n; i++) {
        wf_span span = wf_timeline_span(t, one + i);
        if (span.micro >= 0) return wf_timeline_span(t, other + i).micro - span.micro;
    }
    return 0;
}

bool boxes_create(const wf_timeline *t, double hair_us, boxes *b) {
    *b = (boxes){.hair_us = hair_us};
    bool good = true;
    for (int r = 0; r < wf_timeline_n_ranks(t) && good; r++)
        if (wf_timeline_like(t, r) == r)
            good = add_rank(b, t, wf_timeline_first_span(t, r), wf_timeline_first_span(t, r + 1));
    if (!good) boxes_release(b);
    return good;
}

/* Returns the index of the rank's first box, or of a higher rank's if it has none. */
static size_t find_rank(const boxes *b, int rank) {
    size_t low = 0, high = b->n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (b->items[middle].rank < rank)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Adds the boxes of the rank: copies of the boxes in `kept` of the rank that does the same. */
static bool add_like(boxes *b, const boxes *kept, const wf_timeline *t, int rank) {
    int like = wf_timeline_like(t, rank);
    int64_t apart = like == rank ? 0 : micro_apart(t, like, rank);
    for (size_t i = find_rank(kept, like), end = find_rank(kept, like + 1); i < end; i++) {
        box next = kept->items[i];
        next.rank = rank;
        if (next.micro >= 0) next.micro += apart;
        if (!push(b, &next)) return false;
    }
    return true;
}

bool boxes_add_followers(const wf_timeline *t, const int *row_of, boxes *b) {
    boxes all = {.hair_us = b->hair_us};
    bool good = true;
    for (int r = 0; r < wf_timeline_n_ranks(t) && good; r++)
        if (wf_timeline_like(t, r) == r || row_of[r] >= 0) good = add_like(&all, b, t, r);
    boxes_release(good ? b : &all);
    if (good) *b = all;
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
