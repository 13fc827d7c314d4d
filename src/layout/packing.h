/* What the files of the memory plan share: one rank, one space at a time. Private to src/layout. */
#pragma once

#include "layout/places.h"

typedef struct wfi_packing {
    wf_program *p;
    wfi_life *lives;       /* [n_blocks] */
    int32_t rank;          /* that is being planned */
    wfi_arena_plan *arena; /* of the rank, in the space that is being planned */
    wfi_places places;
    /* The rank's blocks except state: [n], but `spare` [n_blocks]. */
    int32_t *list, *spare;
    int32_t *every;    /* [n_every] also those that take the place of another one */
    bool *takes_place; /* [n_blocks] of an earlier one */
    bool *is_halved;   /* [n_blocks] of a chain that was halved */
    int32_t n_every;
    int64_t n_records;    /* with a short form: records of the whole step on a rank */
    size_t records_bytes; /* ... and their bytes, between state and all else */
    int64_t n_period;     /* microbatches after which a place is taken again */
    size_t halved_bytes;  /* after the records: blocks of halved chains, if they are placed */
    size_t rings_bytes;   /* after these */
    bool has_rings;       /* rings may follow */
    int32_t *chain;       /* [n_blocks] places.next of a large rank */
    size_t *saved;        /* [n_blocks] offsets of another plan of the rank */
    size_t *best;         /* [n_blocks] offsets of the best attempt, and its list */
    int32_t *best_list;
    double *keys; /* [n_blocks] */
    int32_t n;
    size_t least_bytes; /* the bound, if each block also takes the gap before the next one */
    size_t needed_bytes[WFI_N_SPACES]; /* the least that some rank needs */
    int32_t *n_order;                  /* [n_ranks] instructions */
    int32_t peak;  /* the block that is first used at the device's peak, or -1 */
    size_t *alive; /* [n_instructions + 1] */
} wfi_packing;

static inline size_t wfi_align_in_space(const wfi_packing *m, size_t at) {
    return wfi_round_up(at, wfi_space_align(m->places.space));
}
/* Where blocks that are no state begin. */
static inline size_t wfi_work_begin(const wfi_packing *m) {
    return wfi_align_in_space(m, m->arena->state_bytes) + m->records_bytes + m->halved_bytes +
           m->rings_bytes;
}

/* Good enough: within so many parts of the bound and a few bytes; after much work: within so many
 * parts. */
enum { WFI_GOOD_PARTS = 200, WFI_FAIR_PARTS = 50 };
static inline bool wfi_is_within(const wfi_packing *m, size_t parts) {
    return m->arena->peak_bytes <= m->least_bytes + m->least_bytes / parts + 4096;
}
/* Ranks with at least so many blocks are large. */
enum { WFI_LARGE = 4096 };
/* Whether the rank is large and takes no more than another one needs: a better plan of it would let
 * no smaller device do. */
static inline bool wfi_is_below_another(const wfi_packing *m) {
    return m->n_every >= WFI_LARGE && m->arena->peak_bytes <= m->needed_bytes[m->places.space];
}
/* Of a large rank, one attempt comes before rings, and the long search only where there are none:
 * it would take seconds, and seldom find a better plan. Blocks in chains get one attempt. */
static inline bool wfi_is_quick(const wfi_packing *m) {
    return m->chain || (m->has_rings && m->n >= WFI_LARGE);
}
