/* An arena: state comes first, in a fixed order, then records, rings and all other blocks. Hidden
 * state of a forward program comes last, after all that the program of steps touches.
 */
#include "layout/arena.h"
#include "layout/attempts.h"
#include "layout/bound.h"
#include "layout/layout.h"

/* For tests: see gap_bytes. */
static void place_apart(const wfi_packing *m, size_t gap_bytes) {
    wfi_arena_plan *r = m->arena;
    for (int32_t k = 0; k < m->n; k++) {
        wfi_block *block = &m->p->blocks[m->list[k]];
        block->offset = wfi_align_in_space(m, r->peak_bytes) + gap_bytes;
        r->peak_bytes = block->offset + block->bytes;
    }
    r->peak_bytes = wfi_align_in_space(m, r->peak_bytes) + gap_bytes;
}

/* The plan of the same arena for `like`; NULL: the program is the first one. */
static const wfi_arena_plan *arena_of_first(const wfi_packing *m) {
    const wf_program *like = m->p->like;
    return like ? &like->ranks[like->ranks[m->rank].like].arenas[m->places.space] : NULL;
}

/* Hidden state of forward runs survives steps, so it comes after all memory of steps. */
static bool is_behind_work(const wfi_packing *m, const wfi_block *block) {
    return block->name.kind == WFI_BLOCK_HIDDEN && !wfi_differentiates(m->p) && m->p->like;
}

/* Only the device's memory has gaps. */
static size_t gap_of(const wfi_packing *m) {
    return m->places.space == WFI_SPACE_DEVICE ? m->p->gap_bytes : 0;
}

void wfi_place_state(wfi_packing *m) {
    const wf_program *p = m->p;
    const wfi_arena_plan *first = arena_of_first(m);
    wfi_arena_plan *r = m->arena;
    m->n = m->n_every = 0;
    m->records_bytes = 0;
    *r = (wfi_arena_plan){0};
    for (int32_t b = p->ranks[m->rank].first_block; b < p->ranks[m->rank].end_block; b++) {
        wfi_block *block = &p->blocks[b];
        if (block->space != m->places.space || is_behind_work(m, block)) continue;
        if (!block->is_state) {
            if (m->n_records && block->name.kind == WFI_BLOCK_RECORD)
                m->records_bytes = (size_t)m->n_records * wfi_align_in_space(m, block->bytes);
            else if (m->lives[b].first >= 0 && !(m->p->ring_of && m->p->ring_of[b]) &&
                     !(m->halved_bytes && m->is_halved[b]))
                m->every[m->n_every++] = b;
            continue;
        }
        block->offset = wfi_align_in_space(m, r->state_bytes) + gap_of(m);
        r->state_bytes = block->offset + block->bytes;
    }
    /* The state that the first program keeps in the arena between its runs. */
    if (first && first->state_bytes > r->state_bytes) r->state_bytes = first->state_bytes;
}

/* A record is read at the end of the step. So all of the whole step have places of their own. */
void wfi_place_records(const wf_program *p, const wfi_rank *rank) {
    size_t at = wfi_round_up(rank->arenas[WFI_SPACE_DEVICE].state_bytes, WFI_ALIGN_BYTES);
    for (int32_t b = rank->first_block; b < rank->end_block; b++) {
        if (p->blocks[b].name.kind != WFI_BLOCK_RECORD) continue;
        p->blocks[b].offset = at;
        at += wfi_round_up(p->blocks[b].bytes, WFI_ALIGN_BYTES);
    }
}

static wf_status place_work(wfi_packing *m, size_t gap_bytes) {
    wfi_arena_plan *r = m->arena;
    wfi_sort_by_size(m, m->every, m->n_every);
    for (int32_t k = 0; k < m->n_every; k++)
        if (!m->takes_place[m->every[k]]) m->list[m->n++] = m->every[k];
    m->places.n_looks = 0;
    wfi_find_bound(m, false);
    r->peak_bytes = r->state_bytes + m->records_bytes + m->halved_bytes + m->rings_bytes;
    if (m->p->use == WFI_USE_DRAFT) {
        r->peak_bytes = r->bound_bytes;
        return WF_OK;
    }
    if (gap_bytes) place_apart(m, gap_bytes);
    if (gap_bytes || !m->n) return WF_OK;
    r->peak_bytes = SIZE_MAX;
    WF_TRY(wfi_place_best(m));
    for (int32_t k = 0; k < m->n; k++)
        for (int32_t b = m->list[k]; b >= 0; b = wfi_places_next(&m->places, b))
            m->p->blocks[b].offset = m->best[m->list[k]];
    return WF_OK;
}

static void place_hidden(const wfi_packing *m, size_t gap_bytes) {
    const wf_program *p = m->p;
    wfi_arena_plan *r = m->arena;
    for (int32_t b = p->ranks[m->rank].first_block; b < p->ranks[m->rank].end_block; b++) {
        wfi_block *block = &p->blocks[b];
        if (block->space != m->places.space || !is_behind_work(m, block)) continue;
        size_t work_bytes = arena_of_first(m)->peak_bytes;
        if (r->bound_bytes < work_bytes) r->bound_bytes = work_bytes;
        if (r->peak_bytes < work_bytes) r->peak_bytes = work_bytes;
        block->offset = wfi_align_in_space(m, r->peak_bytes) + gap_bytes;
        r->bound_bytes += block->bytes;
        r->peak_bytes = block->offset + block->bytes + gap_bytes;
    }
}

wf_status wfi_place_arena(wfi_packing *m) {
    wfi_place_state(m);
    WF_TRY(place_work(m, gap_of(m)));
    place_hidden(m, gap_of(m));
    return WF_OK;
}
