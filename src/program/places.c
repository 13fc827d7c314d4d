/* Thousands of microbatches' blocks come to lie at the same few places. Blocks of one
 * place (the same bytes) follow each other in time; whether another one fits between
 * them, its two neighbours in time can tell. Most places are ruled out by a word of bits, since
 * somebody is there all the time in which the block is alive; so is a run of them, if all are
 * taken at one time and nothing between them is large enough. So what is kept of each microbatch
 * until the end takes little longer than what is not.
 */
#include "program/places.h"

#include <string.h>

/* Bytes that blocks share one after the other, to where another block may begin. */
typedef struct slot {
    size_t begin, end;
    int32_t *blocks; /* in order of their first use */
    int32_t n;
    size_t capacity;
    uint64_t covers; /* of all of them */
} slot;

#define MOST_SLOTS 128

/* Slots that follow each other, in order of their begin. */
typedef struct wfi_place_run {
    struct wfi_place_run *next;
    slot slots[MOST_SLOTS];
    int32_t n;
    uint64_t covers; /* of each of them */
    wfi_life latest; /* shorter than that of the latest block of any of them */
    size_t end;      /* the last of them */
    size_t gap;      /* the most bytes between them that are none's */
} run;

/* How many of the slot's blocks are used first before b is. */
static int32_t find_earlier(const wfi_places *places, const slot *s, int32_t b) {
    int32_t low = 0, high = s->n;
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        if (places->lives[s->blocks[middle]].first_order < places->lives[b].first_order)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* What is further away in time than the neighbours is ordered with b by way of them. */
static bool is_free(const wfi_places *places, const slot *s, int32_t b) {
    int32_t k = find_earlier(places, s, b);
    const wfi_life *lives = places->lives;
    return (k == 0 || wfi_ends_before(&lives[s->blocks[k - 1]], &lives[b])) &&
           (k == s->n || wfi_ends_before(&lives[b], &lives[s->blocks[k]]));
}

/* ---- runs ---- */

static wf_status new_run(wfi_places *places, run *before, run **run_out) {
    run *r = places->spare;
    if (r)
        places->spare = r->next;
    else
        r = wfi_alloc(places->p->ctx, 1, sizeof *r, "the memory plan");
    if (!r) return WF_NO_MEMORY;
    r->n = 0;
    r->next = before ? before->next : NULL;
    *(before ? &before->next : &places->first) = r;
    *run_out = r;
    return WF_OK;
}

static void summarize(const wfi_places *places, run *r) {
    r->covers = UINT64_MAX;
    r->end = r->slots[0].begin;
    r->gap = 0;
    for (int32_t k = 0; k < r->n; k++) {
        const slot *s = &r->slots[k];
        if (s->begin > r->end && s->begin - r->end > r->gap) r->gap = s->begin - r->end;
        if (s->end > r->end) r->end = s->end;
        r->covers &= s->covers;
        const wfi_life *latest = &places->lives[s->blocks[s->n - 1]];
        for (int i = 0; i < WFI_N_STREAMS; i++) {
            if (!k || latest->before[i] > r->latest.before[i])
                r->latest.before[i] = latest->before[i];
            if (!k || latest->last[i] < r->latest.last[i]) r->latest.last[i] = latest->last[i];
        }
    }
}

/* The upper half of a full run becomes one of its own. */
static wf_status halve(wfi_places *places, run *r) {
    run *upper;
    WF_TRY(new_run(places, r, &upper));
    upper->n = r->n / 2;
    r->n -= upper->n;
    memcpy(upper->slots, r->slots + r->n, (size_t)upper->n * sizeof *upper->slots);
    summarize(places, upper);
    summarize(places, r);
    return WF_OK;
}

/* Slot number *index_out of that run is [begin, end), made if it is not there. */
static wf_status find_slot(wfi_places *places, size_t begin, size_t end, run **run_out,
                           int32_t *index_out) {
    run *r = places->first;
    if (!r) WF_TRY(new_run(places, NULL, &r));
    while (r->next && r->next->slots[0].begin < begin) r = r->next;
    int32_t low = 0;
    while (low < r->n && r->slots[low].begin < begin) low++;
    *run_out = r;
    *index_out = low;
    for (int32_t k = low;; k++) {
        if (k == (*run_out)->n) *run_out = (*run_out)->next, k = 0;
        if (!*run_out || (*run_out)->slots[k].begin > begin) break;
        *index_out = k;
        if ((*run_out)->slots[k].end == end) return WF_OK;
    }
    *run_out = r;
    *index_out = low;
    if (r->n == MOST_SLOTS) {
        WF_TRY(halve(places, r));
        if (low > r->n) {
            *index_out = low -= r->n;
            *run_out = r = r->next;
        }
    }
    memmove(r->slots + low + 1, r->slots + low, (size_t)(r->n++ - low) * sizeof *r->slots);
    r->slots[low] = (slot){.begin = begin, .end = end};
    return WF_OK;
}

/* ---- blocks ---- */

static wf_status fill_slot(wfi_places *places, int32_t b) {
    const wfi_block *block = &places->p->blocks[b];
    size_t end = wfi_round_up(block->offset + block->bytes, wfi_space_align(places->space));
    run *r;
    int32_t index;
    WF_TRY(find_slot(places, block->offset, end, &r, &index));
    slot *s = &r->slots[index];
    WF_TRY(WFI_GROW(places->p->ctx, s->blocks, s->n, s->capacity, "the memory plan"));
    int32_t at = find_earlier(places, s, b);
    memmove(s->blocks + at + 1, s->blocks + at, (size_t)(s->n++ - at) * sizeof *s->blocks);
    s->blocks[at] = b;
    s->covers |= places->lives[b].covers;
    summarize(places, r);
    return WF_OK;
}

/* From *offset on: whether the block can lie before the run's end, and where; or behind it. */
static bool fits_before_end(wfi_places *places, const run *r, int32_t b, size_t align,
                            size_t *offset) {
    size_t bytes = places->p->blocks[b].bytes;
    const wfi_life *own = &places->lives[b];
    if (r->slots[0].begin >= *offset + bytes) return true;
    if (r->end <= *offset) return false;
    bool is_full = r->covers & own->touches ||
                   (!wfi_ends_before(&r->latest, own) && !wfi_ends_before(own, &r->latest));
    if (is_full && r->gap < bytes) {
        *offset = wfi_round_up(r->end, align);
        return false;
    }
    for (int32_t k = 0; k < r->n; k++) {
        const slot *s = &r->slots[k];
        if (s->begin >= *offset + bytes) return true;
        if (s->end <= *offset) continue;
        bool is_taken = s->covers & own->touches;
        places->n_looks += !is_taken;
        if (is_taken || !is_free(places, s, b)) *offset = wfi_round_up(s->end, align);
    }
    return false;
}

wf_status wfi_places_put(wfi_places *places, int32_t b, size_t base) {
    wfi_block *block = &places->p->blocks[b];
    size_t align = wfi_places_align(places, block), offset = wfi_round_up(base, align);
    const run *r = places->first;
    while (r && !fits_before_end(places, r, b, align, &offset)) r = r->next;
    block->offset = offset;
    return fill_slot(places, b);
}

void wfi_places_empty(wfi_places *places) {
    while (places->first) {
        run *r = places->first;
        for (int32_t k = 0; k < r->n; k++) wfi_free(places->p->ctx, r->slots[k].blocks);
        places->first = r->next;
        r->next = places->spare;
        places->spare = r;
    }
}

void wfi_places_release(wfi_places *places) {
    wfi_places_empty(places);
    while (places->spare) {
        run *r = places->spare;
        places->spare = r->next;
        wfi_free(places->p->ctx, r);
    }
}
