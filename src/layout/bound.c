/* The lower bound of any packing: bytes that may be alive at once.
 */
#include "layout/bound.h"

#include <string.h>

/* Blocks that may be alive at once are looked for from so many moments on, and from so many of the
 * largest blocks. */
#define N_MOMENTS 8
#define N_SEEDS   64

/* Streams may be ahead of each other or behind. To the block `seed`, or if that is -1 those that
 * are alive at that place of the program's order, come others, by size, that may be alive at the
 * same time as all of these. */
static size_t find_alive(wfi_packing *m, int32_t seed, int32_t order, size_t *packed_bytes_out) {
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

/* Bytes alive at each place of the program's order. Returns the most. */
static size_t sum_alive(const wfi_packing *m) {
    size_t now = 0, most = 0;
    int32_t n = m->n_order[m->rank];
    memset(m->alive, 0, (size_t)(n + 1) * sizeof *m->alive);
    for (int32_t k = 0; k < m->n_every; k++) {
        const wfi_life *l = &m->lives[m->every[k]];
        size_t bytes = m->p->blocks[m->every[k]].bytes;
        m->alive[l->first_order] += bytes;
        m->alive[wfi_min_i64(l->last_order + 1, n)] -= bytes;
    }
    for (int32_t k = 0; k < n; k++) {
        m->alive[k] = now += m->alive[k];
        if (now > most) most = now;
    }
    return most;
}

void wfi_find_needed(wfi_packing *m) {
    size_t *needed = &m->needed_bytes[m->places.space];
    size_t own = m->arena->state_bytes + m->records_bytes + sum_alive(m);
    if (own > *needed) *needed = own;
}

void wfi_find_bound(wfi_packing *m, bool all) {
    int32_t n_tries = all ? N_MOMENTS + N_SEEDS : 1;
    (void)sum_alive(m);
    wfi_arena_plan *r = m->arena;
    int32_t peak = -1;
    size_t base = wfi_work_begin(m),
           fixed_bytes = r->state_bytes + m->records_bytes + m->halved_bytes + m->rings_bytes;
    r->bound_bytes = fixed_bytes;
    m->least_bytes = base;
    n_tries = (int32_t)wfi_min_i64(n_tries, m->n_every);
    for (int32_t k = 0; k < n_tries && (k == 0 || m->places.n_looks < WFI_MANY_LOOKS); k++) {
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
