/* Thousands of microbatches' blocks come to lie at the same few places. Blocks of one place (the
 * same bytes) follow each other in time; whether another one fits between them, its two neighbours
 * in time can tell. Most places are ruled out by a word of bits, since somebody is there all the
 * time in which the block is alive; so is a run of them, if all are taken at one time and nothing
 * between them is large enough. So keeping values of each microbatch until the end costs little
 * more time than not keeping them.
 */
#include "layout/places.h"

#include <string.h>

/* When a block is used, by places in its rank's order (wfi_life). */
typedef struct use {
    int32_t first, last, settled, block;
} use;

/* The blocks that share the bytes of a slot, one after the other. */
typedef struct slot {
    use *uses; /* in order of their first */
    int32_t n;
    size_t capacity;
} slot;

#define MOST_SLOTS 128

/* Slots that follow each other, in order of their begin: bytes to where another block may begin.
 * The search reads the first arrays, so they are apart. */
typedef struct wfi_place_slots {
    size_t begin[MOST_SLOTS], end[MOST_SLOTS];
    uint64_t covers[MOST_SLOTS], reaches[MOST_SLOTS]; /* of all blocks of the slot */
    slot slots[MOST_SLOTS];
} slots;

typedef struct wfi_place_run {
    slots *all;
    int32_t n;
    uint64_t covers; /* of each of them */
    wfi_life latest; /* shorter than that of the latest block of any of them */
    size_t end;      /* the last of them */
    size_t gap;      /* the most bytes between them that are none's */
} run;

static use use_of(const wfi_places *places, int32_t b) {
    const wfi_life *l = &places->lives[b];
    return (use){l->first_order, l->last_order, l->settled_order, b};
}

/* How many of the slot's blocks are used first before an order. */
static int32_t find_earlier(const slot *s, int32_t order) {
    int32_t low = 0, high = s->n;
    WFI_BISECT(low, high, middle, s->uses[middle].first < order);
    return low;
}

/* The same as wfi_ends_before; mostly, the order alone can tell. */
static bool ends_before(const wfi_places *places, const use *a, const use *b) {
    if (a->last >= b->first || a->settled <= b->first) return a->last < b->first;
    return wfi_ends_before(&places->lives[a->block], &places->lives[b->block]);
}

/* A use further away in time than the neighbours is ordered with the block through them. */
static bool is_free(const wfi_places *places, const slot *s, const use *own) {
    int32_t k = find_earlier(s, own->first);
    return (k == 0 || ends_before(places, &s->uses[k - 1], own)) &&
           (k == s->n || ends_before(places, own, &s->uses[k]));
}

/* ---- runs ---- */

static wf_status insert_run(wfi_places *places, int32_t at) {
    wf_context *ctx = places->p->ctx;
    WF_TRY(WFI_GROW(ctx, places->runs, places->n_runs, places->capacity, "the memory plan"));
    run r = {.all = wfi_alloc(ctx, 1, sizeof *r.all, "the memory plan"), .covers = UINT64_MAX};
    if (!r.all) return WF_NO_MEMORY;
    memmove(places->runs + at + 1, places->runs + at, (size_t)(places->n_runs++ - at) * sizeof r);
    places->runs[at] = r;
    return WF_OK;
}

static void find_gap(run *r) {
    const slots *all = r->all;
    r->end = all->begin[0];
    r->gap = 0;
    for (int32_t k = 0; k < r->n; k++) {
        if (all->begin[k] > r->end && all->begin[k] - r->end > r->gap)
            r->gap = all->begin[k] - r->end;
        if (all->end[k] > r->end) r->end = all->end[k];
    }
}

static void find_covers(run *r) {
    r->covers = UINT64_MAX;
    for (int32_t k = 0; k < r->n; k++) r->covers &= r->all->covers[k];
}

/* Adds the latest block of a slot to the run's. */
static void add_latest(run *r, const wfi_life *latest, bool is_first) {
    for (int i = 0; i < WFI_N_STREAMS; i++) {
        if (is_first || latest->before[i] > r->latest.before[i])
            r->latest.before[i] = latest->before[i];
        if (is_first || latest->last[i] < r->latest.last[i]) r->latest.last[i] = latest->last[i];
    }
}

static void find_latest(const wfi_places *places, run *r) {
    for (int32_t k = 0; k < r->n; k++) {
        const slot *s = &r->all->slots[k];
        add_latest(r, &places->lives[s->uses[s->n - 1].block], k == 0);
    }
}

static void summarize(const wfi_places *places, run *r) {
    find_gap(r);
    find_covers(r);
    find_latest(places, r);
}

/* Moves n slots of a run to the begin of slot `to` of another run, or of the same one. */
static void move_slots(slots *to_all, int32_t to, const slots *from_all, int32_t from, int32_t n) {
    size_t count = (size_t)n;
    memmove(to_all->begin + to, from_all->begin + from, count * sizeof *to_all->begin);
    memmove(to_all->end + to, from_all->end + from, count * sizeof *to_all->end);
    memmove(to_all->covers + to, from_all->covers + from, count * sizeof *to_all->covers);
    memmove(to_all->reaches + to, from_all->reaches + from, count * sizeof *to_all->reaches);
    memmove(to_all->slots + to, from_all->slots + from, count * sizeof *to_all->slots);
}

/* The upper half of a full run becomes one of its own. */
static wf_status halve(wfi_places *places, int32_t at) {
    WF_TRY(insert_run(places, at + 1));
    run *r = &places->runs[at], *upper = r + 1;
    upper->n = r->n / 2;
    r->n -= upper->n;
    move_slots(upper->all, 0, r->all, r->n, upper->n);
    summarize(places, upper);
    summarize(places, r);
    return WF_OK;
}

/* The last run that begins before that, or the first. */
static int32_t find_run(const wfi_places *places, size_t begin) {
    int32_t low = 0, high = places->n_runs - 1;
    while (low < high) {
        int32_t middle = high - (high - low) / 2;
        if (places->runs[middle].all->begin[0] < begin)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

/* Slot number *index_out of that run is [begin, end), made if it is not there. */
static wf_status find_slot(wfi_places *places, size_t begin, size_t end, run **run_out,
                           int32_t *index_out) {
    if (!places->n_runs) WF_TRY(insert_run(places, 0));
    int32_t at = find_run(places, begin), low = 0;
    run *r = &places->runs[at], *last = places->runs + places->n_runs;
    while (low < r->n && r->all->begin[low] < begin) low++;
    *run_out = r;
    for (int32_t k = low;; k++) {
        if (k == (*run_out)->n) ++*run_out, k = 0;
        if (*run_out == last || (*run_out)->all->begin[k] > begin) break;
        *index_out = k;
        if ((*run_out)->all->end[k] == end) return WF_OK;
    }
    if (r->n == MOST_SLOTS) {
        WF_TRY(halve(places, at));
        r = &places->runs[at];
        if (low > r->n) low -= r++->n;
    }
    move_slots(r->all, low + 1, r->all, low, r->n++ - low);
    r->all->begin[low] = begin;
    r->all->end[low] = end;
    r->all->covers[low] = r->all->reaches[low] = 0;
    r->all->slots[low] = (slot){0};
    *run_out = r;
    *index_out = low;
    return WF_OK;
}

/* ---- blocks ---- */

/* The run's latest life, after slot `index` has got another latest block, or its first one. That
 * block begins after the earlier ones have ended, so only the least of `last` may be another. */
static void replace_latest(const wfi_places *places, run *r, int32_t index) {
    const slot *s = &r->all->slots[index];
    const wfi_life *own = &places->lives[s->uses[s->n - 1].block];
    bool is_least = false;
    for (int i = 0; i < WFI_N_STREAMS && s->n > 1; i++) {
        int32_t before = places->lives[s->uses[s->n - 2].block].last[i];
        is_least |= before == r->latest.last[i] && own->last[i] > before;
    }
    if (is_least)
        find_latest(places, r);
    else
        add_latest(r, own, r->n == 1 && s->n == 1);
}

static wf_status fill_slot(wfi_places *places, int32_t b) {
    const wfi_block *block = &places->p->blocks[b];
    size_t end = wfi_round_up(block->offset + block->bytes, wfi_space_align(places->space));
    run *r;
    int32_t index;
    WF_TRY(find_slot(places, block->offset, end, &r, &index));
    slot *s = &r->all->slots[index];
    WF_TRY(WFI_GROW(places->p->ctx, s->uses, s->n, s->capacity, "the memory plan"));
    int32_t at = find_earlier(s, places->lives[b].first_order);
    memmove(s->uses + at + 1, s->uses + at, (size_t)(s->n++ - at) * sizeof *s->uses);
    s->uses[at] = use_of(places, b);
    uint64_t *covers = &r->all->covers[index], added = places->lives[b].covers & ~*covers;
    *covers |= added;
    r->all->reaches[index] |= places->lives[b].reaches;
    if (s->n == 1) find_gap(r);
    if (s->n == 1 || added & ~r->covers) find_covers(r);
    if (at == s->n - 1) replace_latest(places, r, index);
    return WF_OK;
}

static bool is_all_there(const run *r, const wfi_life *own) {
    return r->covers & own->touches ||
           (!wfi_ends_before(&r->latest, own) && !wfi_ends_before(own, &r->latest));
}

/* Whether the slot's bytes are taken while the block is alive, or one that takes its place. Without
 * a common span, uses before the block are settled when it begins, and the block is settled before
 * the uses after it. */
static bool is_taken(wfi_places *places, const slots *all, int32_t k, int32_t b) {
    bool is = false;
    for (; b >= 0 && !is; b = wfi_places_next(places, b)) {
        const use when = use_of(places, b);
        is = all->covers[k] & places->lives[b].touches;
        places->n_looks += !is;
        is = is || (all->reaches[k] & places->lives[b].reaches &&
                    !is_free(places, &all->slots[k], &when));
    }
    return is;
}

/* From *offset on: whether the block can lie before the run's end, and where; or behind it. */
static bool fits_before_end(wfi_places *places, const run *r, int32_t b, size_t align,
                            size_t *offset) {
    const slots *all = r->all;
    size_t bytes = places->p->blocks[b].bytes;
    if (all->begin[0] >= *offset + bytes) return true;
    if (r->end <= *offset) return false;
    bool is_full = false;
    for (int32_t a = b; a >= 0 && !is_full; a = wfi_places_next(places, a))
        is_full = is_all_there(r, &places->lives[a]);
    if (is_full && r->gap < bytes) {
        *offset = wfi_round_up(r->end, align);
        return false;
    }
    uint64_t touches = places->lives[b].touches;
    bool is_aligned = align == wfi_space_align(places->space); /* as the ends of slots are */
    size_t at = *offset;
    int32_t k = 0;
    for (; k < r->n && all->begin[k] < at + bytes; k++) {
        size_t end = all->end[k];
        if (end <= at || !(all->covers[k] & touches || is_taken(places, all, k, b))) continue;
        at = is_aligned ? end : wfi_round_up(end, align);
    }
    *offset = at;
    return k < r->n;
}

wf_status wfi_places_put(wfi_places *places, int32_t b, size_t base) {
    size_t align = wfi_places_align(places, &places->p->blocks[b]);
    size_t offset = wfi_round_up(base, align);
    int32_t k = 0;
    while (k < places->n_runs && !fits_before_end(places, &places->runs[k], b, align, &offset)) k++;
    for (; b >= 0; b = wfi_places_next(places, b)) {
        places->p->blocks[b].offset = offset;
        WF_TRY(fill_slot(places, b));
    }
    return WF_OK;
}

void wfi_places_empty(wfi_places *places) {
    wf_context *ctx = places->p->ctx;
    for (; places->n_runs; places->n_runs--) {
        run *r = &places->runs[places->n_runs - 1];
        for (int32_t k = 0; k < r->n; k++) wfi_free(ctx, r->all->slots[k].uses);
        wfi_free(ctx, r->all);
    }
}

void wfi_places_release(wfi_places *places) {
    wfi_places_empty(places);
    wfi_free(places->p->ctx, places->runs);
}
