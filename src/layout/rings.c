/* Blocks of one name, one a microbatch, that take turns in a few places. In a ring no other blocks
 * use these; in chains, others do where they fit.
 */
#include "layout/rings.h"
#include "layout/arena.h"
#include "layout/attempts.h"
#include "program/stage.h"

/* Ranks with at least so many named blocks try chains. */
#define CHAINED_BLOCKS 16384
/* Blocks of a name that needs more places are placed one by one. */
#define MOST_PLACES 2

/* Lists blocks of microbatches by name, and those of one name in the order of the program. */
static int32_t list_named(wfi_packing *m, const wfi_rank *rank, bool with_workspaces) {
    int32_t n = 0;
    for (int32_t b = rank->first_block; b < rank->end_block; b++) {
        const wfi_block *block = &m->p->blocks[b];
        bool is_named =
            block->name.micro >= 0 && !block->is_state && block->space == m->places.space &&
            block->name.kind != WFI_BLOCK_RECORD && block->name.kind != WFI_BLOCK_TIED &&
            !(m->halved_bytes && m->is_halved[b]) &&
            (block->name.kind != WFI_BLOCK_WORKSPACE || with_workspaces) && m->lives[b].first >= 0;
        if (!is_named) continue;
        bool is_work = block->name.kind == WFI_BLOCK_WORKSPACE; /* each has an instruction */
        int32_t turn = is_work ? (int32_t)m->p->instructions[block->name.turn].kind
                               : 2 * block->name.turn + (int32_t)block->name.copy;
        m->keys[b] = (block->name.kind * 16777216.0 + block->name.owner) * 65536.0 + turn -
                     block->name.accumulator;
        m->list[n++] = b;
    }
    wfi_sort_blocks(m, m->list, n);
    return n;
}

static bool has_same_name(const wfi_packing *m, int32_t a, int32_t b) {
    const wfi_block *x = &m->p->blocks[a], *y = &m->p->blocks[b];
    return m->keys[a] == m->keys[b] && x->bytes == y->bytes;
}

/* So many places hold the n blocks in turn: the microbatches follow each other. 0: they do not. */
static int64_t count_places(const wfi_packing *m, const int32_t *list, int32_t n) {
    int64_t n_places = 1;
    for (int32_t k = 0; k + 1 < n; k++)
        if (m->p->blocks[list[k + 1]].name.micro != m->p->blocks[list[k]].name.micro + 1) return 0;
    for (int32_t k = 0; k + n_places < n;) {
        if (wfi_ends_before(&m->lives[list[k]], &m->lives[list[k + n_places]]))
            k++;
        else
            n_places++;
    }
    return n_places < n ? n_places : 0;
}

/* Blocks that are alive for more than a part of the period would have as many places as it has
 * microbatches in such parts. If that is more than they need at a time, they get a ring. */
static wf_status add_ring(wfi_packing *m, const int32_t *list, int32_t n) {
    wf_program *p = m->p;
    int64_t n_places = count_places(m, list, n), n_period = m->n_period;
    if (!n_places || n_places >= n_period || n_period % n_places == 0 ||
        (n_period + n_period / n_places - 1) / (n_period / n_places) <= n_places)
        return WF_OK;
    WF_TRY(WFI_GROW(p->ctx, p->rings, p->n_rings, p->ring_capacity, "the memory plan"));
    const wfi_block *first = &p->blocks[list[0]];
    size_t stride = wfi_round_up(first->bytes, wfi_places_align(&m->places, first));
    int64_t first_micro = wfi_first_micro(p, 0, wfi_mesh_at(&p->mesh, WFI_DP, m->rank));
    wfi_ring ring = {wfi_round_up(wfi_work_begin(m), wfi_places_align(&m->places, first)), stride,
                     n_places};
    m->rings_bytes = ring.begin + (size_t)n_places * stride - (wfi_work_begin(m) - m->rings_bytes);
    p->rings[p->n_rings++] = ring;
    for (int32_t k = 0; k < n; k++) {
        p->ring_of[list[k]] = p->n_rings;
        p->blocks[list[k]].offset =
            wfi_ring_offset(&ring, p->blocks[list[k]].name.micro, first_micro);
    }
    return WF_OK;
}

static wf_status add_rings(wfi_packing *m, const wfi_rank *rank) {
    int32_t n = list_named(m, rank, false);
    for (int32_t k = 0, end; k < n; k = end) {
        for (end = k + 1; end < n && has_same_name(m, m->list[k], m->list[end]);) end++;
        WF_TRY(add_ring(m, m->list + k, end - k));
    }
    return WF_OK;
}

/* Tries rings, and keeps the plan without them if that needs no more. */
wf_status wfi_place_in_rings(wfi_packing *m, const wfi_rank *rank) {
    wf_program *p = m->p;
    wfi_arena_plan before = *m->arena;
    int32_t n_rings = p->n_rings, peak = m->peak;
    if (wfi_is_within(m, WFI_GOOD_PARTS) || wfi_is_below_another(m)) return WF_OK;
    bool was_quick = wfi_is_quick(m);
    m->has_rings = false;
    for (int32_t b = rank->first_block; b < rank->end_block; b++) m->saved[b] = p->blocks[b].offset;
    WF_TRY(add_rings(m, rank));
    bool has_rings = p->n_rings > n_rings;
    wf_status status = has_rings || was_quick ? wfi_place_arena(m) : WF_OK;
    m->rings_bytes = 0;
    if (status != WF_OK || m->arena->peak_bytes < before.peak_bytes) {
        if (has_rings) m->arena->bound_bytes = before.bound_bytes, m->peak = peak;
        return status;
    }
    p->n_rings = n_rings;
    *m->arena = before;
    m->peak = peak;
    for (int32_t b = rank->first_block; b < rank->end_block; b++) {
        p->ring_of[b] = 0;
        p->blocks[b].offset = m->saved[b];
    }
    return WF_OK;
}

/* ---- chains ---- */

/* Blocks of one name, each of which begins after the one n places earlier has ended. */
static void chain_named(wfi_packing *m, const int32_t *list, int32_t n) {
    int32_t n_places = 1;
    for (int32_t k = 0; k + n_places < n;) {
        if (wfi_ends_before(&m->lives[list[k]], &m->lives[list[k + n_places]]))
            k++;
        else
            n_places++;
    }
    for (int32_t k = 0; k + n_places < n && n_places <= MOST_PLACES; k++) {
        m->chain[list[k]] = list[k + n_places];
        m->takes_place[list[k + n_places]] = true;
    }
}

static void unchain(wfi_packing *m, const wfi_rank *rank) {
    for (int32_t b = rank->first_block; b < rank->end_block; b++) {
        m->chain[b] = -1;
        m->takes_place[b] = false;
    }
}

/* Places the blocks of a large rank in chains. Keeps that plan if it costs little memory. */
wf_status wfi_place_in_chains(wfi_packing *m, const wfi_rank *rank, bool *fits_out) {
    *fits_out = false;
    m->n = 0;
    bool may = !m->places.next && !m->p->gap_bytes;
    int32_t n = may ? list_named(m, rank, true) : 0;
    if (n < CHAINED_BLOCKS) return WF_OK;
    m->chain = wfi_alloc(m->p->ctx, (size_t)m->p->n_blocks, sizeof *m->chain, "the memory plan");
    if (!m->chain) return WF_NO_MEMORY;
    unchain(m, rank);
    for (int32_t k = 0, end; k < n; k = end) {
        for (end = k + 1; end < n && has_same_name(m, m->list[k], m->list[end]);) end++;
        chain_named(m, m->list + k, end - k);
    }
    m->places.next = m->chain;
    wf_status status = wfi_place_arena(m);
    *fits_out = wfi_is_within(m, WFI_GOOD_PARTS) || wfi_is_below_another(m);
    unchain(m, rank);
    wfi_free(m->p->ctx, m->chain);
    m->places.next = m->chain = NULL;
    return status;
}
