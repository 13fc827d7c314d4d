/* The memory plan: an offset for every block in its space of its rank. Two blocks share bytes only
 * if the last use of one happens before the first use of the other by the program's dependencies.
 */
#include "layout/arena.h"
#include "layout/attempts.h"
#include "layout/bound.h"
#include "layout/layout.h"
#include "layout/rings.h"

#include <string.h>

/* Whether the blocks of two ranks, pair by pair, have the same offsets behind the state. Offsets of
 * blocks that are fetched from a disk are aligned more than the state's end is. */
static bool is_alike(const wfi_packing *m, const wfi_rank *a, const wfi_rank *b) {
    const wf_program *p = m->p;
    int32_t n = a->end_block - a->first_block;
    bool is_alike = !p->like && b->end_block - b->first_block == n, has_disk = false;
    for (int k = 0; k < WFI_N_OFFLOADS; k++) has_disk |= p->plan->offload[k] == WFI_SPACE_DISK;
    for (int32_t k = 0; k < n && is_alike; k++) {
        const wfi_block *x = &p->blocks[a->first_block + k], *y = &p->blocks[b->first_block + k];
        wfi_life life = m->lives[a->first_block + k];
        life.first = m->lives[b->first_block + k].first;
        is_alike = x->name.kind == y->name.kind && x->space == y->space &&
                   x->is_state == y->is_state &&
                   (x->bytes == y->bytes || (x->is_state && !has_disk)) &&
                   (x->is_state || !memcmp(&life, &m->lives[b->first_block + k], sizeof life));
    }
    return is_alike;
}

/* An earlier rank whose offsets lowered rank number `at` can have, or -1. */
static int32_t find_alike(const wfi_packing *m, int32_t at) {
    const wf_program *p = m->p;
    int32_t pp = wfi_mesh_at(&p->mesh, WFI_PP, p->lowered[at]);
    for (int32_t k = at - 1; k >= 0; k--) {
        bool may = k == at - 1 || wfi_mesh_at(&p->mesh, WFI_PP, p->lowered[k]) == pp;
        if (may && is_alike(m, &p->ranks[p->lowered[k]], &p->ranks[p->lowered[at]])) return k;
    }
    return -1;
}

/* Gives the rank rings as another rank has, so many bytes further. */
static wf_status copy_rings(wf_program *p, const wfi_rank *from, const wfi_rank *to, size_t by) {
    int32_t apart = to->first_block - from->first_block, n = p->n_rings, first = n;
    for (int32_t b = from->first_block; b < from->end_block; b++)
        if (p->ring_of[b] && p->ring_of[b] <= first) first = p->ring_of[b] - 1;
    for (int32_t b = from->first_block; b < from->end_block; b++) {
        if (!p->ring_of[b]) continue;
        p->ring_of[b + apart] = p->ring_of[b] - first + n;
        for (; p->n_rings < p->ring_of[b + apart]; p->n_rings++) {
            WF_TRY(WFI_GROW(p->ctx, p->rings, p->n_rings, p->ring_capacity, "the memory plan"));
            p->rings[p->n_rings] = p->rings[p->n_rings - n + first];
            p->rings[p->n_rings].begin += by;
        }
    }
    return WF_OK;
}

/* Places the state of the rank, and all else as on the other rank behind its state. */
static wf_status copy_arena(wfi_packing *m, const wfi_rank *from, wfi_rank *to, wfi_space space) {
    wf_program *p = m->p;
    const wfi_arena_plan *other = &from->arenas[space];
    m->places.space = space;
    m->arena = &to->arenas[space];
    wfi_place_state(m);
    size_t more = m->arena->state_bytes - other->state_bytes;
    size_t by =
        wfi_align_in_space(m, m->arena->state_bytes) - wfi_align_in_space(m, other->state_bytes);
    if (p->ring_of && space == WFI_SPACE_DEVICE) WF_TRY(copy_rings(p, from, to, by));
    for (int32_t b = from->first_block; b < from->end_block; b++)
        if (p->blocks[b].space == space && !p->blocks[b].is_state)
            p->blocks[b + to->first_block - from->first_block].offset = p->blocks[b].offset + by;
    bool is_packed = m->n_every && p->use != WFI_USE_DRAFT;
    m->arena->bound_bytes = other->bound_bytes + more;
    m->arena->peak_bytes = other->peak_bytes + (is_packed ? by : more);
    return WF_OK;
}

/* `peak`: m->peak of the other rank. */
static wf_status copy_offsets(wfi_packing *m, int32_t peak, const wfi_rank *from, wfi_rank *to) {
    for (int space = 0; space < WFI_N_SPACES; space++)
        WF_TRY(copy_arena(m, from, to, (wfi_space)space));
    m->peak = peak < 0 ? peak : peak + to->first_block - from->first_block;
    return WF_OK;
}

/* Blocks of halved chains come before all others of the rank. Returns how many bytes they take. */
static size_t place_halved(wfi_packing *m, const wfi_rank *rank) {
    size_t begin = wfi_work_begin(m), at = begin;
    for (int32_t b = rank->first_block; b < rank->end_block; b++) {
        wfi_block *block = &m->p->blocks[b];
        if (!m->is_halved[b] || m->takes_place[b] || block->space != m->places.space) continue;
        size_t offset = wfi_round_up(at, wfi_places_align(&m->places, block));
        for (int32_t k = b; k >= 0; k = wfi_places_next(&m->places, k))
            m->p->blocks[k].offset = offset;
        at = wfi_align_in_space(m, offset + block->bytes);
    }
    return at - begin;
}

static wf_status place_others(wfi_packing *m, const wfi_rank *rank) {
    bool fits = false;
    m->has_rings = m->n_period && m->places.space == WFI_SPACE_DEVICE;
    WF_TRY(wfi_place_in_chains(m, rank, &fits));
    if (!fits) WF_TRY(wfi_place_arena(m));
    return m->has_rings ? wfi_place_in_rings(m, rank) : WF_OK;
}

/* The bound counts halved blocks as all others, as their places apart are a choice. */
static wf_status place_space(wfi_packing *m, const wfi_rank *rank) {
    m->halved_bytes = 0;
    if (m->p->use == WFI_USE_DRAFT) return wfi_place_arena(m);
    if (!m->n_period) return place_others(m, rank);
    wfi_place_state(m);
    size_t halved_bytes = place_halved(m, rank);
    if (!halved_bytes) return place_others(m, rank);
    wfi_sort_by_size(m, m->every, m->n_every);
    wfi_find_bound(m, false);
    size_t bound_bytes = m->arena->bound_bytes;
    int32_t peak = m->peak;
    m->halved_bytes = halved_bytes;
    WF_TRY(place_others(m, rank));
    m->arena->bound_bytes = bound_bytes;
    m->peak = peak;
    return WF_OK;
}

static wf_status place_rank(wfi_packing *m, wfi_rank *rank) {
    for (int space = 0; space < WFI_N_SPACES; space++) {
        m->places.space = (wfi_space)space;
        m->arena = &rank->arenas[space];
        WF_TRY(place_space(m, rank));
    }
    m->halved_bytes = 0;
    return WF_OK;
}

/* The least that the rank which needs most does with, in each space. */
static void find_needed(wfi_packing *m) {
    for (int32_t k = 0; k < m->p->n_lowered; k++)
        for (int space = 0; space < WFI_N_SPACES; space++) {
            m->rank = m->p->lowered[k];
            m->places.space = (wfi_space)space;
            m->arena = &m->p->ranks[m->rank].arenas[space];
            wfi_place_state(m);
            wfi_find_needed(m);
        }
}

/* Ranks of one stage often differ by the slices or the state that they have and by nothing here. */
static wf_status place_ranks(wfi_packing *m, int32_t *peaks) {
    const wf_program *p = m->p;
    if (p->n_lowered > 1 && p->n_blocks >= WFI_LARGE) find_needed(m);
    for (int32_t k = 0; k < p->n_lowered; k++) {
        wfi_rank *rank = &p->ranks[p->lowered[k]];
        WFI_PROGRESS(p->ctx, "planning the memory of rank %d of %d", k + 1, p->n_lowered);
        m->rank = p->lowered[k];
        int32_t other = find_alike(m, k);
        if (other < 0)
            WF_TRY(place_rank(m, rank));
        else
            WF_TRY(copy_offsets(m, peaks[other], &p->ranks[p->lowered[other]], rank));
        peaks[k] = m->peak;
        if (m->n_records) wfi_place_records(p, rank);
        int32_t first = p->n_instructions ? p->order[0] : -1;
        rank->peak_instruction = m->peak < 0 ? first : m->lives[m->peak].first;
    }
    return WF_OK;
}

/* Whether each block of a chain ends before the next one begins. */
static bool fits_chain(const wfi_packing *m, int32_t b) {
    bool fits = true;
    for (; m->places.next[b] >= 0; b = m->places.next[b])
        fits &= wfi_ends_before(&m->lives[b], &m->lives[m->places.next[b]]);
    return fits;
}

/* The chain becomes two, each of every other block: periods take turns in two places. The short
 * form has one period of each turn, and so does not show which blocks of a third period are alive
 * with those of the second. So no other block may use these places.
 */
static void halve_chain(const wfi_packing *m, int32_t *next, int32_t first) {
    for (int32_t b = first; b >= 0; b = next[b]) m->is_halved[b] = true;
    m->takes_place[next[first]] = false;
    for (int32_t b = first, one = next[first]; one >= 0; b = one, one = next[one])
        next[b] = next[one];
}

static bool fit_turns(const wfi_packing *m, int32_t *next) {
    int32_t n = m->p->n_blocks;
    bool fits = true;
    for (int32_t b = 0; b < n; b++)
        if (next[b] >= 0) m->takes_place[next[b]] = true;
    for (int32_t b = 0; b < n; b++)
        if (!m->takes_place[b] && !fits_chain(m, b)) halve_chain(m, next, b);
    for (int32_t b = 0; b < n && fits; b++) fits = m->takes_place[b] || fits_chain(m, b);
    return fits;
}

wf_status wfi_program_place(wf_program *p, int32_t *next, int64_t n_records, int64_t n_period,
                            bool *fits_out) {
    wfi_packing m = {.p = p, .n_records = n_records, .n_period = n_period};
    size_t n_blocks = (size_t)p->n_blocks;
    const char *what = "the memory plan";
    m.lives = wfi_alloc(p->ctx, n_blocks, sizeof *m.lives, what);
    m.list = wfi_alloc(p->ctx, n_blocks, sizeof *m.list, what);
    m.every = wfi_alloc(p->ctx, n_blocks, sizeof *m.every, what);
    m.takes_place = wfi_alloc(p->ctx, n_blocks, sizeof *m.takes_place, what);
    m.spare = wfi_alloc(p->ctx, n_blocks, sizeof *m.spare, what);
    m.saved = wfi_alloc(p->ctx, n_blocks, sizeof *m.saved, what);
    if (next) p->ring_of = wfi_pool_alloc(&p->pool, n_blocks, sizeof *p->ring_of);
    m.is_halved = wfi_alloc(p->ctx, n_blocks, sizeof *m.is_halved, what);
    m.best = wfi_alloc(p->ctx, n_blocks, sizeof *m.best, what);
    m.best_list = wfi_alloc(p->ctx, n_blocks, sizeof *m.best_list, what);
    m.keys = wfi_alloc(p->ctx, n_blocks, sizeof *m.keys, what);
    m.n_order = wfi_alloc(p->ctx, (size_t)p->n_ranks, sizeof *m.n_order, what);
    m.alive = wfi_alloc(p->ctx, (size_t)p->n_instructions + 1, sizeof *m.alive, what);
    bool ok = m.lives && m.list && m.every && m.takes_place && m.spare && m.saved && m.is_halved &&
              (!next || p->ring_of) && m.best && m.best_list && m.keys && m.n_order && m.alive;
    wf_status status = ok ? wfi_lives_find(p, m.lives, m.n_order) : WF_NO_MEMORY;
    m.places = (wfi_places){.p = p, .lives = m.lives, .next = next};
    *fits_out = status == WF_OK && (!next || fit_turns(&m, next));
    int32_t *peaks = wfi_alloc(p->ctx, (size_t)p->n_lowered, sizeof *peaks, what);
    if (!peaks) status = WF_NO_MEMORY;
    if (status == WF_OK && *fits_out) status = place_ranks(&m, peaks);
    wfi_free(p->ctx, peaks);
    wfi_places_release(&m.places);
    wfi_free(p->ctx, m.saved);
    void *const all[] = {m.lives, m.list, m.every,   m.takes_place, m.spare, m.is_halved,
                         m.best,  m.keys, m.n_order, m.best_list,   m.alive};
    for (size_t k = 0; k < WFI_COUNT(all); k++) wfi_free(p->ctx, all[k]);
    return status;
}
