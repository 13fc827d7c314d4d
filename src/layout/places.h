/* Where blocks of one arena lie, of which each gets the lowest offset that is free for it. Private.
 */
#pragma once

#include "program/stage.h"

#define WFI_N_SPANS 64

typedef struct wfi_life {
    int32_t first;                   /* instruction that touches it first, or -1 */
    int32_t first_order, last_order; /* places in the rank's order */
    int32_t settled_order;           /* from there on all instructions happen after its uses */
    int32_t before[WFI_N_STREAMS];   /* how many of each stream happen before the first use */
    int32_t last[WFI_N_STREAMS];     /* positions + 1 of the latest use; 0 = none */
    /* A bit for each of WFI_N_SPANS equal parts of the rank's order: parts in which the block is
     * alive; alive from begin to end; alive or not yet settled. */
    uint64_t touches, covers, reaches;
} wfi_life;

/* [n_blocks] of the lowered ranks; adds to n_order [n_ranks] how many instructions each has. */
wf_status wfi_lives_find(const wf_program *p, wfi_life *lives, int32_t *n_order);

/* Whether every use of a happens before the first of b; both of one rank. */
static inline bool wfi_ends_before(const wfi_life *a, const wfi_life *b) {
    for (int s = 0; s < WFI_N_STREAMS; s++)
        if (a->last[s] > b->before[s]) return false;
    return true;
}

/* No decision depends on how many more looks there were. */
#define WFI_MOST_LOOKS 8000000

typedef struct wfi_places {
    wf_program *p;
    const wfi_life *lives; /* [n_blocks] */
    const int32_t *next;   /* [n_blocks] the block that takes its place one period later, or -1;
                              NULL: all have places of their own */
    wfi_space space;
    struct wfi_place_run *runs; /* [n_runs] in order of addresses */
    int32_t n_runs;
    size_t capacity;
    int64_t n_looks; /* how often two blocks' lives, or a block's and a place's, were compared */
} wfi_places;

/* The alignment of offsets in the space, and of a block's: blocks that are fetched from a file, or
 * evicted to one, need the alignment of its disk. */
static inline size_t wfi_places_align(const wfi_places *places, const wfi_block *block) {
    size_t align = wfi_space_align(places->space);
    bool is_moved = wfi_kept_space(places->p, block->name.kind) == WFI_SPACE_DISK;
    return is_moved && align < WFI_DIRECT_ALIGN ? WFI_DIRECT_ALIGN : align;
}

static inline int32_t wfi_places_next(const wfi_places *places, int32_t b) {
    return places->next ? places->next[b] : -1;
}
/* Gives block b, and those that take its place later, an offset, not below `base`. */
wf_status wfi_places_put(wfi_places *places, int32_t b, size_t base);
/* No block has one any more. */
void wfi_places_empty(wfi_places *places);
void wfi_places_release(wfi_places *places);
