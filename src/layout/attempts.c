/* Attempts: the blocks of a list are taken one by one, each at the lowest offset that is free. No
 * order is best for all programs: several are tried, and of each the blocks that end above the
 * bound come first in the next attempt; then a few of these are moved about in the best order, more
 * often if much is still lost. The best of all is kept.
 */
#include "layout/attempts.h"
#include "layout/bound.h"

#include <string.h>

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

static int compare(const wfi_packing *m, int32_t a, int32_t b) {
    if (m->keys[a] != m->keys[b]) return m->keys[a] < m->keys[b] ? 1 : -1;
    size_t x = m->p->blocks[a].bytes, y = m->p->blocks[b].bytes;
    return x != y ? (x < y) - (x > y) : (a > b) - (a < b);
}

void wfi_sort_blocks(const wfi_packing *m, int32_t *list, int32_t n) {
    if (n < 2) return;
    int32_t half = n / 2, i = 0, j = half, k = 0;
    wfi_sort_blocks(m, list, half);
    wfi_sort_blocks(m, list + half, n - half);
    while (i < half || j < n) {
        bool left = j == n || (i < half && compare(m, list[i], list[j]) <= 0);
        m->spare[k++] = left ? list[i++] : list[j++];
    }
    memcpy(list, m->spare, (size_t)n * sizeof *list);
}

static void sort_by(const wfi_packing *m, double (*key)(const wfi_block *, const wfi_life *),
                    int32_t *list, int32_t n) {
    for (int32_t k = 0; k < n; k++)
        m->keys[list[k]] = key(&m->p->blocks[list[k]], &m->lives[list[k]]);
    wfi_sort_blocks(m, list, n);
}

void wfi_sort_by_size(const wfi_packing *m, int32_t *list, int32_t n) {
    sort_by(m, size_key, list, n);
}

/* Those that end above the bound to the front, all else as it was. */
static void bring_forward(const wfi_packing *m) {
    int32_t n = 0, at = 0;
    for (int front = 1; front >= 0; front--)
        for (int32_t k = 0; k < m->n; k++) {
            const wfi_block *block = &m->p->blocks[m->list[k]];
            if ((block->offset + block->bytes > m->least_bytes) == front)
                m->spare[n++] = m->list[k];
        }
    for (; at < n; at++) m->list[at] = m->spare[at];
}

/* The offset at which the search for a place begins. After much work, a block that is as large as
 * the previous one and lives within its life starts at that one's offset, as no place below was
 * found. */
static size_t look_from(const wfi_packing *m, int32_t k, size_t base) {
    const wfi_life *own = &m->lives[m->list[k]];
    if (k == 0 || m->places.n_looks < WFI_MANY_LOOKS) return base;
    const wfi_life *before = &m->lives[m->list[k - 1]];
    const wfi_block *block = &m->p->blocks[m->list[k - 1]];
    bool is_inside =
        before->first_order <= own->first_order && block->bytes == m->p->blocks[m->list[k]].bytes;
    for (int s = 0; s < WFI_N_STREAMS; s++) is_inside &= own->last[s] <= before->last[s];
    return is_inside ? block->offset : base;
}

/* An attempt: each block of the list in turn, until one ends above `most_bytes`. */
static wf_status pack(wfi_packing *m, size_t base, size_t most_bytes, size_t *end_out) {
    wfi_places_empty(&m->places);
    *end_out = 0;
    for (int32_t k = 0; k < m->n && *end_out <= most_bytes; k++) {
        const wfi_block *block = &m->p->blocks[m->list[k]];
        WF_TRY(wfi_places_put(&m->places, m->list[k], look_from(m, k, base)));
        if (block->offset + block->bytes > *end_out) *end_out = block->offset + block->bytes;
    }
    return WF_OK;
}

/* Attempts with a few blocks of the best one's order moved; how many are. */
#define N_SHUFFLES 48
#define N_MOVED    4

static bool is_enough(const wfi_packing *m, size_t n_shuffles) {
    bool is_much = n_shuffles >= N_SHUFFLES || m->places.n_looks >= WFI_MANY_LOOKS;
    bool is_most = n_shuffles >= 4 * N_SHUFFLES || m->places.n_looks >= WFI_MOST_LOOKS;
    return wfi_is_within(m, WFI_GOOD_PARTS) || (is_much && wfi_is_within(m, WFI_FAIR_PARTS)) ||
           wfi_is_below_another(m) || is_most;
}

/* Packs the list, and keeps it if it is no worse than the best. Later steps that read the ends of
 * its blocks need `all` of them. */
static wf_status attempt(wfi_packing *m, bool all) {
    size_t end;
    WF_TRY(pack(m, wfi_work_begin(m), all ? SIZE_MAX : m->arena->peak_bytes, &end));
    if (end > m->arena->peak_bytes) return WF_OK;
    m->arena->peak_bytes = end;
    memcpy(m->best_list, m->list, (size_t)m->n * sizeof *m->list);
    for (int32_t i = 0; i < m->n; i++) m->best[m->list[i]] = m->p->blocks[m->list[i]].offset;
    return WF_OK;
}

/* The best list with a few of the blocks that ended above the bound anywhere before. */
static void move_some(const wfi_packing *m, uint64_t *random) {
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

wf_status wfi_place_best(wfi_packing *m) {
    uint64_t random = 1;
    for (size_t k = 0; k < WFI_COUNT(orders); k++) {
        if (k) sort_by(m, orders[k].key, m->list, m->n);
        for (int i = 0; i < orders[k].n_attempts; i++) {
            if (i) bring_forward(m);
            WF_TRY(attempt(m, true));
            if (is_enough(m, 0) || wfi_is_quick(m)) return WF_OK;
            if (k == 0 && i == 0) wfi_find_bound(m, true);
            if (is_enough(m, 0)) return WF_OK;
        }
    }
    for (size_t k = 0; !is_enough(m, k); k++) {
        move_some(m, &random);
        WF_TRY(attempt(m, false));
    }
    return WF_OK;
}
