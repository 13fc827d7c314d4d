/* The memory plan: an offset for every block in its space of its rank. Two blocks share bytes only
 * if the last use of one happens before the first use of the other by the program's dependencies.
 * State comes first, in a fixed order; then largest first, each at the lowest offset that is free.
 *
 * Thousands of microbatches' blocks come to lie at the same few places. Blocks of one
 * place (the same bytes) follow each other in time; whether another one fits between
 * them, its two neighbours in time can tell. So time grows with blocks x places.
 */
#include "program/program.h"

#include <string.h>

typedef struct life {
    int32_t first;                   /* instruction that touches it first, or -1 */
    int32_t first_order, last_order; /* places in p->order */
    int32_t before[WFI_N_STREAMS];   /* how many of each stream happen before the first use */
    int32_t last[WFI_N_STREAMS];     /* positions + 1 of the latest use; 0 = none */
} life;

/* Bytes that blocks share one after the other. */
typedef struct slot {
    size_t begin, end;
    int32_t *blocks; /* in order of their first use */
    int32_t n;
    size_t capacity;
} slot;

typedef struct placement {
    wf_program *p;
    life *lives;  /* [n_blocks] */
    int32_t rank; /* at hand, and its ... */
    wfi_space space;
    wfi_arena_plan *arena;
    slot *slots; /* of that arena, in order of their begin */
    int32_t n_slots;
    size_t capacity;
} placement;

static void begin_life(const wf_program *p, life *l, int32_t i, int32_t order) {
    const wfi_instruction *first = &p->instructions[i];
    l->first = i;
    l->first_order = order;
    memcpy(l->before, wfi_clock_of(p, i, first->rank), sizeof l->before);
    l->before[first->stream]--; /* it is not before itself */
}

static void find_lives(const wf_program *p, life *lives) {
    for (int32_t b = 0; b < p->n_blocks; b++) lives[b] = (life){.first = -1};
    for (int32_t k = 0; k < p->n_instructions; k++) {
        int32_t i = p->order[k];
        const wfi_instruction *now = &p->instructions[i];
        for (int32_t r = 0; r < now->n_references; r++) {
            life *l = &lives[now->references[r].block];
            if (l->first < 0) begin_life(p, l, i, k);
            l->last_order = k;
            l->last[now->stream] = now->position + 1;
        }
    }
    if (p->use != WFI_USE_RUN_AND_KEEP) return;
    for (int32_t b = 0; b < p->n_blocks; b++)
        if (wfi_is_summed(p, &p->blocks[b])) {
            lives[b].last_order = p->n_instructions;
            for (int s = 0; s < WFI_N_STREAMS; s++) lives[b].last[s] = INT32_MAX;
        }
}

/* Whether every use of a happens before the first of b; both of one rank. */
static bool ends_before(const life *a, const life *b) {
    for (int s = 0; s < WFI_N_STREAMS; s++)
        if (a->last[s] > b->before[s]) return false;
    return true;
}

static int by_size(const wf_program *p, int32_t a, int32_t b) {
    size_t x = p->blocks[a].bytes, y = p->blocks[b].bytes;
    return x != y ? (x < y) - (x > y) : (a > b) - (a < b);
}

static void sort_by_size(const wf_program *p, int32_t *list, int32_t n, int32_t *spare) {
    if (n < 2) return;
    int32_t half = n / 2, i = 0, j = half, k = 0;
    sort_by_size(p, list, half, spare);
    sort_by_size(p, list + half, n - half, spare);
    while (i < half || j < n) {
        bool left = j == n || (i < half && by_size(p, list[i], list[j]) <= 0);
        spare[k++] = left ? list[i++] : list[j++];
    }
    memcpy(list, spare, (size_t)n * sizeof *list);
}

static bool is_here(const placement *m, const wfi_block *block) {
    return block->rank == m->rank && block->space == m->space;
}

static size_t align(const placement *m, size_t at) {
    return wfi_round_up(at, wfi_space_align(m->space));
}

/* How many of the slot's blocks are used first before b is. */
static int32_t find_earlier(const placement *m, const slot *s, int32_t b) {
    int32_t low = 0, high = s->n;
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        if (m->lives[s->blocks[middle]].first_order < m->lives[b].first_order)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* What is further away in time than the neighbours is ordered with b by way of them. */
static bool is_free(const placement *m, const slot *s, int32_t b) {
    int32_t k = find_earlier(m, s, b);
    const life *life_of_b = &m->lives[b];
    return (k == 0 || ends_before(&m->lives[s->blocks[k - 1]], life_of_b)) &&
           (k == s->n || ends_before(life_of_b, &m->lives[s->blocks[k]]));
}

/* Index of the slot [begin, end), made if it is not there. */
static wf_status find_slot(placement *m, size_t begin, size_t end, int32_t *index_out) {
    int32_t low = 0, high = m->n_slots;
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        if (m->slots[middle].begin < begin)
            low = middle + 1;
        else
            high = middle;
    }
    *index_out = low;
    for (int32_t k = low; k < m->n_slots && m->slots[k].begin == begin; k++)
        if (m->slots[k].end == end) {
            *index_out = k;
            return WF_OK;
        }
    WF_TRY(WFI_GROW(m->p->ctx, m->slots, m->n_slots, m->capacity, "the memory plan"));
    memmove(m->slots + low + 1, m->slots + low, (size_t)(m->n_slots++ - low) * sizeof *m->slots);
    m->slots[low] = (slot){.begin = begin, .end = end};
    return WF_OK;
}

static wf_status fill_slot(placement *m, int32_t b) {
    const wfi_block *block = &m->p->blocks[b];
    int32_t index;
    WF_TRY(find_slot(m, block->offset, block->offset + block->bytes, &index));
    slot *s = &m->slots[index];
    WF_TRY(WFI_GROW(m->p->ctx, s->blocks, s->n, s->capacity, "the memory plan"));
    int32_t at = find_earlier(m, s, b);
    memmove(s->blocks + at + 1, s->blocks + at, (size_t)(s->n++ - at) * sizeof *s->blocks);
    s->blocks[at] = b;
    return WF_OK;
}

static wf_status place_block(placement *m, int32_t b, size_t base) {
    wfi_block *block = &m->p->blocks[b];
    size_t offset = base;
    for (int32_t k = 0; k < m->n_slots; k++) {
        const slot *s = &m->slots[k];
        if (s->begin >= offset + block->bytes) break;
        if (s->end <= offset || is_free(m, s, b)) continue;
        offset = align(m, s->end);
    }
    block->offset = offset;
    return fill_slot(m, b);
}

/* Bytes alive at once: what no packing can go below. */
static void find_bound(const placement *m, size_t *alive) {
    wf_program *p = m->p;
    const life *lives = m->lives;
    size_t n = (size_t)p->n_instructions;
    memset(alive, 0, (n + 1) * sizeof *alive);
    for (int32_t b = 0; b < p->n_blocks; b++) {
        const wfi_block *block = &p->blocks[b];
        if (!is_here(m, block) || block->is_state || lives[b].first < 0) continue;
        alive[lives[b].first_order] += block->bytes;
        alive[wfi_min_i64(lives[b].last_order + 1, p->n_instructions)] -= block->bytes;
    }
    size_t now = 0, most = 0;
    int32_t peak_instruction = p->n_instructions ? p->order[0] : -1;
    for (size_t k = 0; k < n; k++) {
        now += alive[k];
        if (now <= most) continue;
        most = now;
        peak_instruction = p->order[k];
    }
    m->arena->bound_bytes = m->arena->state_bytes + most;
    if (m->space == WFI_SPACE_DEVICE) p->ranks[m->rank].peak_instruction = peak_instruction;
}

static void empty_slots(placement *m) {
    for (int32_t k = 0; k < m->n_slots; k++) wfi_free(m->p->ctx, m->slots[k].blocks);
    m->n_slots = 0;
}

/* For tests: see gap_bytes. */
static void place_apart(const placement *m, const int32_t *list, int32_t n, size_t gap_bytes) {
    wfi_arena_plan *r = m->arena;
    for (int32_t k = 0; k < n; k++) {
        wfi_block *block = &m->p->blocks[list[k]];
        block->offset = align(m, r->peak_bytes) + gap_bytes;
        r->peak_bytes = block->offset + block->bytes;
    }
    r->peak_bytes = align(m, r->peak_bytes) + gap_bytes;
}

/* Only the device's memory has gaps. */
static wf_status place_blocks(placement *m, int32_t *list, int32_t *spare) {
    wf_program *p = m->p;
    wfi_arena_plan *r = m->arena;
    size_t gap_bytes = m->space == WFI_SPACE_DEVICE ? p->gap_bytes : 0;
    int32_t n = 0;
    *r = (wfi_arena_plan){0};
    for (int32_t b = 0; b < p->n_blocks; b++) {
        wfi_block *block = &p->blocks[b];
        if (!is_here(m, block)) continue;
        if (!block->is_state) {
            if (m->lives[b].first >= 0) list[n++] = b;
            continue;
        }
        block->offset = align(m, r->state_bytes) + gap_bytes;
        r->state_bytes = r->peak_bytes = block->offset + block->bytes;
    }
    if (gap_bytes) {
        place_apart(m, list, n, gap_bytes);
        return WF_OK;
    }
    sort_by_size(p, list, n, spare);
    size_t base = align(m, r->state_bytes);
    empty_slots(m);
    for (int32_t k = 0; k < n; k++) {
        const wfi_block *block = &p->blocks[list[k]];
        WF_TRY(place_block(m, list[k], base));
        if (block->offset + block->bytes > r->peak_bytes)
            r->peak_bytes = block->offset + block->bytes;
    }
    return WF_OK;
}

wf_status wfi_program_place(wf_program *p) {
    placement m = {.p = p};
    size_t n_blocks = (size_t)p->n_blocks;
    m.lives = wfi_alloc(p->ctx, n_blocks, sizeof *m.lives, "the memory plan");
    int32_t *list = wfi_alloc(p->ctx, n_blocks, sizeof *list, "the memory plan");
    int32_t *spare = wfi_alloc(p->ctx, n_blocks, sizeof *spare, "the memory plan");
    size_t *alive =
        wfi_alloc(p->ctx, (size_t)p->n_instructions + 1, sizeof *alive, "the memory plan");
    wf_status status = m.lives && list && spare && alive ? WF_OK : WF_NO_MEMORY;
    if (status == WF_OK) find_lives(p, m.lives);
    for (int32_t k = 0; k < p->n_lowered && status == WF_OK; k++) {
        m.rank = p->lowered[k];
        for (int s = 0; s < WFI_N_SPACES && status == WF_OK; s++) {
            m.space = (wfi_space)s;
            m.arena = &p->ranks[m.rank].arenas[s];
            status = place_blocks(&m, list, spare);
            if (status == WF_OK) find_bound(&m, alive);
        }
    }
    empty_slots(&m);
    wfi_free(p->ctx, m.slots);
    wfi_free(p->ctx, m.lives);
    wfi_free(p->ctx, list);
    wfi_free(p->ctx, spare);
    wfi_free(p->ctx, alive);
    return status;
}
