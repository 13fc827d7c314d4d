/* The memory plan: an offset for every block in its space of its rank. Two blocks share bytes only
 * if the last use of one happens before the first use of the other by the program's dependencies.
 */
#include "layout/arena.h"
#include "layout/layout.h"
#include "layout/rings.h"
#include "program/stage.h"

#include <string.h>

/* Whether the blocks of two ranks, pair by pair, have the same offsets. */
static bool is_alike(const wfi_packing *m, const wfi_rank *a, const wfi_rank *b) {
    const wf_program *p = m->p;
    int32_t n = a->end_block - a->first_block;
    bool is_alike = !p->like && b->end_block - b->first_block == n;
    for (int32_t k = 0; k < n && is_alike; k++) {
        const wfi_block *x = &p->blocks[a->first_block + k], *y = &p->blocks[b->first_block + k];
        wfi_life life = m->lives[a->first_block + k];
        life.first = m->lives[b->first_block + k].first;
        is_alike = x->name.kind == y->name.kind && x->space == y->space && x->bytes == y->bytes &&
                   x->is_state == y->is_state &&
                   !memcmp(&life, &m->lives[b->first_block + k], sizeof life);
    }
    return is_alike;
}

static void copy_offsets(wfi_packing *m, const wfi_rank *from, wfi_rank *to) {
    int32_t apart = to->first_block - from->first_block;
    for (int32_t b = from->first_block; b < from->end_block; b++)
        m->p->blocks[b + apart].offset = m->p->blocks[b].offset;
    for (int32_t b = from->first_block; b < from->end_block && m->p->ring_of; b++)
        m->p->ring_of[b + apart] = m->p->ring_of[b];
    memcpy(to->arenas, from->arenas, sizeof to->arenas);
    if (m->peak >= 0) m->peak += apart;
}

static wf_status place_rank(wfi_packing *m, wfi_rank *rank) {
    for (int space = 0; space < WFI_N_SPACES; space++) {
        m->places.space = (wfi_space)space;
        m->arena = &rank->arenas[space];
        m->has_turns = m->n_period && space == WFI_SPACE_DEVICE;
        bool fits = false, is_draft = m->p->use == WFI_USE_DRAFT;
        if (!is_draft) WF_TRY(wfi_place_in_chains(m, rank, &fits));
        if (!fits) WF_TRY(wfi_place_arena(m));
        if (m->has_turns && !is_draft) WF_TRY(wfi_place_in_rings(m, rank));
    }
    return WF_OK;
}

/* Ranks of one stage often differ by the slices that they have and by nothing here. */
static wf_status place_ranks(wfi_packing *m) {
    const wf_program *p = m->p;
    for (int32_t k = 0; k < p->n_lowered; k++) {
        wfi_rank *rank = &p->ranks[p->lowered[k]], *before = rank;
        WFI_PROGRESS(p->ctx, "planning the memory of rank %d of %d", k + 1, p->n_lowered);
        m->rank = p->lowered[k];
        if (k) before = &p->ranks[p->lowered[k - 1]];
        if (k && is_alike(m, before, rank))
            copy_offsets(m, before, rank);
        else
            WF_TRY(place_rank(m, rank));
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

/* The chain becomes two, each of every other block. */
static void halve_chain(const wfi_packing *m, int32_t *next, int32_t first) {
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
    m.best = wfi_alloc(p->ctx, n_blocks, sizeof *m.best, what);
    m.best_list = wfi_alloc(p->ctx, n_blocks, sizeof *m.best_list, what);
    m.keys = wfi_alloc(p->ctx, n_blocks, sizeof *m.keys, what);
    m.n_order = wfi_alloc(p->ctx, (size_t)p->n_ranks, sizeof *m.n_order, what);
    m.alive = wfi_alloc(p->ctx, (size_t)p->n_instructions + 1, sizeof *m.alive, what);
    bool ok = m.lives && m.list && m.every && m.takes_place && m.spare && m.saved &&
              (!next || p->ring_of) && m.best && m.best_list && m.keys && m.n_order && m.alive;
    wf_status status = ok ? wfi_lives_find(p, m.lives, m.n_order) : WF_NO_MEMORY;
    m.places = (wfi_places){.p = p, .lives = m.lives, .next = next};
    *fits_out = status == WF_OK && (!next || fit_turns(&m, next));
    if (*fits_out) status = place_ranks(&m);
    wfi_places_release(&m.places);
    wfi_free(p->ctx, m.saved);
    void *const all[] = {m.lives, m.list, m.every,   m.takes_place, m.spare,
                         m.best,  m.keys, m.n_order, m.best_list,   m.alive};
    for (size_t k = 0; k < WFI_COUNT(all); k++) wfi_free(p->ctx, all[k]);
    return status;
}
