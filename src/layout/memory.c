/* The memory plan: an offset for every block in its space of its rank. Two blocks share bytes only
 * if the last use of one happens before the first use of the other by the program's dependencies.
 * State comes first, in a fixed order; the others are taken one by one in some order, each at the
 * lowest offset that is free. No order is best for all programs: several are tried, and of each the
 * blocks that end above the bound come first in the next attempt; then a few of these are moved
 * about in the best order, more often if much is still lost. The best of all is kept. Hidden state
 * of a forward program comes last, behind all that the program of steps touches.
 */
#include "layout/layout.h"
#include "layout/places.h"
#include "program/stage.h"

#include <string.h>

typedef struct placement {
    wf_program *p;
    wfi_life *lives; /* [n_blocks] */
    int32_t rank;    /* at hand, and of a space its ... */
    wfi_arena_plan *arena;
    wfi_places places;
    /* The rank's blocks that are no state: [n], but `spare` [n_blocks]. */
    int32_t *list, *spare;
    int32_t *every;    /* [n_every] also those that take the place of another one */
    bool *takes_place; /* [n_blocks] of an earlier one */
    int32_t n_every;
    int64_t n_records;    /* with a short form: records of the whole step on a rank */
    size_t records_bytes; /* ... and their bytes, between state and all else */
    int64_t n_period;     /* microbatches after which a place is taken again */
    size_t rings_bytes;   /* behind the records */
    bool has_turns;       /* rings may follow */
    size_t *saved;        /* [n_blocks] offsets of another plan of the rank */
    size_t *best;         /* [n_blocks] offsets of the best attempt, and its list */
    int32_t *best_list;
    double *keys; /* [n_blocks] */
    int32_t n;
    size_t least_bytes; /* the bound, if each block also takes the gap before the next one */
    int32_t *n_order;   /* [n_ranks] instructions */
    int32_t peak;       /* the block that is first used at the device's peak, or -1 */
    size_t *alive;      /* [n_instructions + 1] */
} placement;

static size_t align(const placement *m, size_t at) {
    return wfi_round_up(at, wfi_space_align(m->places.space));
}

/* Where blocks that are no state begin. */
static size_t work_begin(const placement *m) {
    return align(m, m->arena->state_bytes) + m->records_bytes + m->rings_bytes;
}

/* ---- orders in which blocks are given their offsets ---- */

static double size_key(const wfi_block *block, const wfi_life *l) {
    (void)l;
    return (double)block->bytes;
}

static double last_key(const wfi_block *block, const wfi_life *l) {
    (void)block;
    return l->last_order;
}

static double first_key(const wfi_block *block, const wfi_life *l) {
    (void)block;
    return -l->first_order;
}

static double life_key(const wfi_block *block, const wfi_life *l) {
    (void)block;
    return l->last_order - l->first_order;
}

/* The area of a block in memory and time. */
static double area_key(const wfi_block *block, const wfi_life *l) {
    return (double)block->bytes * (l->last_order - l->first_order + 1);
}

static double large_area_key(const wfi_block *block, const wfi_life *l) {
    return (double)block->bytes * area_key(block, l);
}

/* In their order, and how many attempts with each. */
static const struct {
    double (*key)(const wfi_block *, const wfi_life *);
    int n_attempts;
} orders[] = {{size_key, 1}, {last_key, 6},  {life_key, 4}, {large_area_key, 4},
              {area_key, 2}, {size_key, 10}, {first_key, 4}};

static int compare(const placement *m, int32_t a, int32_t b) {
    if (m->keys[a] != m->keys[b]) return m->keys[a] < m->keys[b] ? 1 : -1;
    size_t x = m->p->blocks[a].bytes, y = m->p->blocks[b].bytes;
    return x != y ? (x < y) - (x > y) : (a > b) - (a < b);
}

static void sort(const placement *m, int32_t *list, int32_t n) {
    if (n < 2) return;
    int32_t half = n / 2, i = 0, j = half, k = 0;
    sort(m, list, half);
    sort(m, list + half, n - half);
    while (i < half || j < n) {
        bool left = j == n || (i < half && compare(m, list[i], list[j]) <= 0);
        m->spare[k++] = left ? list[i++] : list[j++];
    }
    memcpy(list, m->spare, (size_t)n * sizeof *list);
}

static void sort_by(const placement *m, double (*key)(const wfi_block *, const wfi_life *),
                    int32_t *list, int32_t n) {
    for (int32_t k = 0; k < n; k++)
        m->keys[list[k]] = key(&m->p->blocks[list[k]], &m->lives[list[k]]);
    sort(m, list, n);
}

/* Those that end above the bound to the front, all else as it was. */
static void bring_forward(const placement *m) {
    int32_t n = 0, at = 0;
    for (int front = 1; front >= 0; front--)
        for (int32_t k = 0; k < m->n; k++) {
            const wfi_block *block = &m->p->blocks[m->list[k]];
            if ((block->offset + block->bytes > m->least_bytes) == front)
                m->spare[n++] = m->list[k];
        }
    for (; at < n; at++) m->list[at] = m->spare[at];
}

/* ---- lower bound of any packing ---- */

/* Blocks that may be alive at once are looked for from so many moments on, and from so many of the
 * largest blocks. */
#define N_MOMENTS 8
#define N_SEEDS   64
/* After so much work nothing else is tried, so that large programs take little longer than one
 * attempt does. */
#define MOST_LOOKS (WFI_MOST_LOOKS / 2)

/* Streams may be ahead of each other or behind. To the block `seed`, or if that is -1 those that
 * are alive at that place of the program's order, come others, by size, that may be alive at the
 * same time as all of these. */
static size_t find_alive(placement *m, int32_t seed, int32_t order, size_t *packed_bytes_out) {
    int32_t n = 0;
    size_t bytes = 0;
    *packed_bytes_out = 0;
    for (int first = 1; first >= 0; first--)
        for (int32_t k = 0; k < m->n_every; k++) {
            int32_t b = m->every[k];
            const wfi_life *l = &m->lives[b];
            bool is_first =
                seed < 0 ? l->first_order <= order && order <= l->last_order : b == seed;
            bool fits = is_first == first;
            for (int32_t i = 0; i < n && !first && fits; i++) {
                const wfi_life *other = &m->lives[m->spare[i]];
                m->places.n_looks++;
                fits = !wfi_ends_before(l, other) && !wfi_ends_before(other, l);
            }
            if (!fits) continue;
            m->spare[n++] = b;
            bytes += m->p->blocks[b].bytes;
            *packed_bytes_out +=
                wfi_round_up(m->p->blocks[b].bytes, wfi_places_align(&m->places, &m->p->blocks[b]));
        }
    return bytes;
}

/* Sets the bound, from at most so many moments and blocks. Blocks are in the order of their size.
 */
static void find_bound(placement *m, int32_t n_tries) {
    const wf_program *p = m->p;
    size_t now = 0;
    int32_t n = m->n_order[m->rank];
    memset(m->alive, 0, (size_t)(n + 1) * sizeof *m->alive);
    for (int32_t k = 0; k < m->n_every; k++) {
        const wfi_life *l = &m->lives[m->every[k]];
        size_t bytes = p->blocks[m->every[k]].bytes;
        m->alive[l->first_order] += bytes;
        m->alive[wfi_min_i64(l->last_order + 1, n)] -= bytes;
    }
    for (int32_t k = 0; k < n; k++) m->alive[k] = now += m->alive[k];
    wfi_arena_plan *r = m->arena;
    int32_t peak = -1;
    size_t base = work_begin(m), fixed_bytes = r->state_bytes + m->records_bytes + m->rings_bytes;
    r->bound_bytes = fixed_bytes;
    m->least_bytes = base;
    n_tries = (int32_t)wfi_min_i64(n_tries, m->n_every);
    for (int32_t k = 0; k < n_tries && (k == 0 || m->places.n_looks < MOST_LOOKS); k++) {
        bool is_seed = k >= N_MOMENTS;
        const wfi_life *worst = &m->lives[m->every[is_seed ? k - N_MOMENTS : 0]];
        for (int32_t i = 1; i < m->n_every && !is_seed; i++) {
            const wfi_life *other = &m->lives[m->every[i]];
            if (m->alive[other->first_order] > m->alive[worst->first_order]) worst = other;
        }
        m->alive[worst->first_order] = 0;
        size_t packed_bytes, bytes = find_alive(m, is_seed ? m->every[k - N_MOMENTS] : -1,
                                                worst->first_order, &packed_bytes);
        if (base + packed_bytes > m->least_bytes) m->least_bytes = base + packed_bytes;
        if (fixed_bytes + bytes <= r->bound_bytes) continue;
        r->bound_bytes = fixed_bytes + bytes;
        peak = (int32_t)(worst - m->lives);
    }
    if (m->places.space == WFI_SPACE_DEVICE) m->peak = peak;
}

/* ---- an arena ---- */

/* For tests: see gap_bytes. */
static void place_apart(const placement *m, size_t gap_bytes) {
    wfi_arena_plan *r = m->arena;
    for (int32_t k = 0; k < m->n; k++) {
        wfi_block *block = &m->p->blocks[m->list[k]];
        block->offset = align(m, r->peak_bytes) + gap_bytes;
        r->peak_bytes = block->offset + block->bytes;
    }
    r->peak_bytes = align(m, r->peak_bytes) + gap_bytes;
}

/* The offset at which the search for a place begins. After much work, a block that is as large as
 * the previous one and lives within its life starts at that one's offset, as no place below was
 * found. */
static size_t look_from(const placement *m, int32_t k, size_t base) {
    const wfi_life *own = &m->lives[m->list[k]];
    if (k == 0 || m->places.n_looks < MOST_LOOKS) return base;
    const wfi_life *before = &m->lives[m->list[k - 1]];
    const wfi_block *block = &m->p->blocks[m->list[k - 1]];
    bool is_inside =
        before->first_order <= own->first_order && block->bytes == m->p->blocks[m->list[k]].bytes;
    for (int s = 0; s < WFI_N_STREAMS; s++) is_inside &= own->last[s] <= before->last[s];
    return is_inside ? block->offset : base;
}

/* An attempt: each block of the list in turn, until one ends above `most_bytes`. */
static wf_status pack(placement *m, size_t base, size_t most_bytes, size_t *end_out) {
    wfi_places_empty(&m->places);
    *end_out = 0;
    for (int32_t k = 0; k < m->n && *end_out <= most_bytes; k++) {
        const wfi_block *block = &m->p->blocks[m->list[k]];
        WF_TRY(wfi_places_put(&m->places, m->list[k], look_from(m, k, base)));
        if (block->offset + block->bytes > *end_out) *end_out = block->offset + block->bytes;
    }
    return WF_OK;
}

/* Good enough: within so many parts of the bound and a few bytes; after much work: within so many
 * parts. */
#define GOOD_PARTS 200
#define FAIR_PARTS 50
#define GOOD_BYTES 4096

/* Attempts with a few blocks of the best one's order moved; how many are. */
#define N_SHUFFLES 48
#define N_MOVED    4

static bool is_within(const placement *m, size_t parts) {
    return m->arena->peak_bytes <= m->least_bytes + m->least_bytes / parts + GOOD_BYTES;
}

static bool is_enough(const placement *m, size_t n_shuffles) {
    bool is_much = n_shuffles >= N_SHUFFLES || m->places.n_looks >= MOST_LOOKS;
    bool is_most = n_shuffles >= 4 * N_SHUFFLES || m->places.n_looks >= WFI_MOST_LOOKS;
    return is_within(m, GOOD_PARTS) || (is_much && is_within(m, FAIR_PARTS)) || is_most;
}

/* Packs the list, and keeps it if it is no worse than the best. Later steps that read the ends of
 * its blocks need `all` of them. */
static wf_status attempt(placement *m, bool all) {
    size_t end;
    WF_TRY(pack(m, work_begin(m), all ? SIZE_MAX : m->arena->peak_bytes, &end));
    if (end > m->arena->peak_bytes) return WF_OK;
    m->arena->peak_bytes = end;
    memcpy(m->best_list, m->list, (size_t)m->n * sizeof *m->list);
    for (int32_t i = 0; i < m->n; i++) m->best[m->list[i]] = m->p->blocks[m->list[i]].offset;
    return WF_OK;
}

/* The best list with a few of the blocks that ended above the bound anywhere before. */
static void move_some(const placement *m, uint64_t *random) {
    memcpy(m->list, m->best_list, (size_t)m->n * sizeof *m->list);
    for (int n_moved = 0, n_looked = 0; n_moved < N_MOVED && n_looked < 100 * N_MOVED; n_looked++) {
        *random = *random * 6364136223846793005u + 1442695040888963407u;
        int32_t from = (int32_t)((*random >> 33) % (uint64_t)m->n), b = m->list[from];
        if (m->best[b] + m->p->blocks[b].bytes <= m->least_bytes) continue;
        int32_t to = (int32_t)((*random >> 13) % (uint64_t)(from + 1));
        memmove(m->list + to + 1, m->list + to, (size_t)(from - to) * sizeof *m->list);
        m->list[to] = b;
        n_moved++;
    }
}

/* Of so many blocks, one attempt comes before rings, and the long search only where there are none:
 * it would take seconds, and seldom find a better plan. */
#define MANY_BLOCKS 4096

static bool is_quick(const placement *m) {
    return m->has_turns && m->n >= MANY_BLOCKS;
}

static wf_status place_best(placement *m) {
    uint64_t random = 1;
    for (size_t k = 0; k < WFI_COUNT(orders); k++) {
        if (k) sort_by(m, orders[k].key, m->list, m->n);
        for (int i = 0; i < orders[k].n_attempts; i++) {
            if (i) bring_forward(m);
            WF_TRY(attempt(m, true));
            if (is_enough(m, 0) || is_quick(m)) return WF_OK;
            if (k == 0 && i == 0) find_bound(m, N_MOMENTS + N_SEEDS);
            if (is_enough(m, 0)) return WF_OK;
        }
    }
    for (size_t k = 0; !is_enough(m, k); k++) {
        move_some(m, &random);
        WF_TRY(attempt(m, false));
    }
    return WF_OK;
}

/* The plan of the same arena for `like`; NULL: the program is the first one. */
static const wfi_arena_plan *arena_of_first(const placement *m) {
    const wf_program *like = m->p->like;
    return like ? &like->ranks[like->ranks[m->rank].like].arenas[m->places.space] : NULL;
}

/* Forward runs go on with their hidden state after steps, so it is behind all memory of steps. */
static bool is_behind_work(const placement *m, const wfi_block *block) {
    return block->name.kind == WFI_BLOCK_HIDDEN && !wfi_differentiates(m->p) && m->p->like;
}

static void place_state(placement *m, size_t gap_bytes) {
    const wf_program *p = m->p;
    const wfi_arena_plan *first = arena_of_first(m);
    wfi_arena_plan *r = m->arena;
    for (int32_t b = p->ranks[m->rank].first_block; b < p->ranks[m->rank].end_block; b++) {
        wfi_block *block = &p->blocks[b];
        if (block->space != m->places.space || is_behind_work(m, block)) continue;
        if (!block->is_state) {
            if (m->n_records && block->name.kind == WFI_BLOCK_RECORD)
                m->records_bytes = (size_t)m->n_records * align(m, block->bytes);
            else if (m->lives[b].first >= 0 && !(m->p->ring_of && m->p->ring_of[b]))
                m->every[m->n_every++] = b;
            continue;
        }
        block->offset = align(m, r->state_bytes) + gap_bytes;
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

static wf_status place_work(placement *m, size_t gap_bytes) {
    wfi_arena_plan *r = m->arena;
    sort_by(m, size_key, m->every, m->n_every);
    for (int32_t k = 0; k < m->n_every; k++)
        if (!m->takes_place[m->every[k]]) m->list[m->n++] = m->every[k];
    m->places.n_looks = 0;
    find_bound(m, 1);
    r->peak_bytes = r->state_bytes + m->records_bytes + m->rings_bytes;
    if (gap_bytes) place_apart(m, gap_bytes);
    if (gap_bytes || !m->n) return WF_OK;
    r->peak_bytes = SIZE_MAX;
    WF_TRY(place_best(m));
    for (int32_t k = 0; k < m->n; k++)
        for (int32_t b = m->list[k]; b >= 0; b = wfi_places_next(&m->places, b))
            m->p->blocks[b].offset = m->best[m->list[k]];
    return WF_OK;
}

static void place_hidden(const placement *m, size_t gap_bytes) {
    const wf_program *p = m->p;
    wfi_arena_plan *r = m->arena;
    for (int32_t b = p->ranks[m->rank].first_block; b < p->ranks[m->rank].end_block; b++) {
        wfi_block *block = &p->blocks[b];
        if (block->space != m->places.space || !is_behind_work(m, block)) continue;
        size_t work_bytes = arena_of_first(m)->peak_bytes;
        if (r->bound_bytes < work_bytes) r->bound_bytes = work_bytes;
        if (r->peak_bytes < work_bytes) r->peak_bytes = work_bytes;
        block->offset = align(m, r->peak_bytes) + gap_bytes;
        r->bound_bytes += block->bytes;
        r->peak_bytes = block->offset + block->bytes + gap_bytes;
    }
}

/* Only the device's memory has gaps. */
static wf_status place_blocks(placement *m) {
    size_t gap_bytes = m->places.space == WFI_SPACE_DEVICE ? m->p->gap_bytes : 0;
    m->n = m->n_every = 0;
    m->records_bytes = 0;
    *m->arena = (wfi_arena_plan){0};
    place_state(m, gap_bytes);
    WF_TRY(place_work(m, gap_bytes));
    place_hidden(m, gap_bytes);
    return WF_OK;
}

/* ---- rings ---- */

/* Blocks of one name, one a microbatch, come to stand together, by their microbatches. */
static int32_t list_named(placement *m, const wfi_rank *rank) {
    int32_t n = 0;
    for (int32_t b = rank->first_block; b < rank->end_block; b++) {
        const wfi_block *block = &m->p->blocks[b];
        bool is_named = block->name.micro >= 0 && !block->is_state &&
                        block->space == m->places.space && block->name.kind != WFI_BLOCK_RECORD &&
                        block->name.kind != WFI_BLOCK_TIED &&
                        block->name.kind != WFI_BLOCK_WORKSPACE && m->lives[b].first >= 0;
        if (!is_named) continue;
        m->keys[b] = (block->name.kind * 16777216.0 + block->name.owner) * 65536.0 +
                     (double)(2 * block->name.turn + (int)block->name.copy) -
                     block->name.accumulator;
        m->list[n++] = b;
    }
    sort(m, m->list, n);
    return n;
}

static bool has_same_name(const placement *m, int32_t a, int32_t b) {
    const wfi_block *x = &m->p->blocks[a], *y = &m->p->blocks[b];
    return m->keys[a] == m->keys[b] && x->bytes == y->bytes;
}

/* So many places hold the n blocks in turn: the microbatches follow each other. 0: they do not. */
static int64_t count_places(const placement *m, const int32_t *list, int32_t n) {
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
static wf_status add_ring(placement *m, const int32_t *list, int32_t n) {
    wf_program *p = m->p;
    int64_t n_places = count_places(m, list, n), n_period = m->n_period;
    if (!n_places || n_places >= n_period || n_period % n_places == 0 ||
        (n_period + n_period / n_places - 1) / (n_period / n_places) <= n_places)
        return WF_OK;
    WF_TRY(WFI_GROW(p->ctx, p->rings, p->n_rings, p->ring_capacity, "the memory plan"));
    const wfi_block *first = &p->blocks[list[0]];
    size_t stride = wfi_round_up(first->bytes, wfi_places_align(&m->places, first));
    int64_t first_micro = wfi_first_micro(p, 0, wfi_mesh_at(&p->mesh, WFI_DP, m->rank));
    wfi_ring ring = {wfi_round_up(work_begin(m), wfi_places_align(&m->places, first)), stride,
                     n_places};
    m->rings_bytes = ring.begin + (size_t)n_places * stride - (work_begin(m) - m->rings_bytes);
    p->rings[p->n_rings++] = ring;
    for (int32_t k = 0; k < n; k++) {
        p->ring_of[list[k]] = p->n_rings;
        p->blocks[list[k]].offset =
            wfi_ring_offset(&ring, p->blocks[list[k]].name.micro, first_micro);
    }
    return WF_OK;
}

static wf_status add_rings(placement *m, const wfi_rank *rank) {
    int32_t n = list_named(m, rank);
    for (int32_t k = 0, end; k < n; k = end) {
        for (end = k + 1; end < n && has_same_name(m, m->list[k], m->list[end]);) end++;
        WF_TRY(add_ring(m, m->list + k, end - k));
    }
    return WF_OK;
}

/* Tries rings, and keeps the plan without them if that needs no more. */
static wf_status place_in_rings(placement *m, const wfi_rank *rank) {
    wf_program *p = m->p;
    wfi_arena_plan before = *m->arena;
    int32_t n_rings = p->n_rings, peak = m->peak;
    if (before.peak_bytes <= before.bound_bytes + before.bound_bytes / GOOD_PARTS) return WF_OK;
    bool was_quick = is_quick(m);
    m->has_turns = false;
    for (int32_t b = rank->first_block; b < rank->end_block; b++) m->saved[b] = p->blocks[b].offset;
    WF_TRY(add_rings(m, rank));
    bool has_rings = p->n_rings > n_rings;
    wf_status status = has_rings || was_quick ? place_blocks(m) : WF_OK;
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

/* Whether the blocks of two ranks, pair by pair, have the same offsets. */
static bool is_alike(const placement *m, const wfi_rank *a, const wfi_rank *b) {
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

static void copy_offsets(placement *m, const wfi_rank *from, wfi_rank *to) {
    int32_t apart = to->first_block - from->first_block;
    for (int32_t b = from->first_block; b < from->end_block; b++)
        m->p->blocks[b + apart].offset = m->p->blocks[b].offset;
    for (int32_t b = from->first_block; b < from->end_block && m->p->ring_of; b++)
        m->p->ring_of[b + apart] = m->p->ring_of[b];
    memcpy(to->arenas, from->arenas, sizeof to->arenas);
    if (m->peak >= 0) m->peak += apart;
}

static wf_status place_rank(placement *m, wfi_rank *rank) {
    for (int space = 0; space < WFI_N_SPACES; space++) {
        m->places.space = (wfi_space)space;
        m->arena = &rank->arenas[space];
        m->has_turns = m->n_period && space == WFI_SPACE_DEVICE;
        WF_TRY(place_blocks(m));
        if (m->has_turns) WF_TRY(place_in_rings(m, rank));
    }
    return WF_OK;
}

/* Ranks of one stage often differ by the slices that they have and by nothing here. */
static wf_status place_ranks(placement *m) {
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
static bool fits_chain(const placement *m, int32_t b) {
    bool fits = true;
    for (; m->places.next[b] >= 0; b = m->places.next[b])
        fits &= wfi_ends_before(&m->lives[b], &m->lives[m->places.next[b]]);
    return fits;
}

/* The chain becomes two, each of every other block. */
static void halve_chain(const placement *m, int32_t *next, int32_t first) {
    m->takes_place[next[first]] = false;
    for (int32_t b = first, one = next[first]; one >= 0; b = one, one = next[one])
        next[b] = next[one];
}

static bool fit_turns(const placement *m, int32_t *next) {
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
    placement m = {.p = p, .n_records = n_records, .n_period = n_period};
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
