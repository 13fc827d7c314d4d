/* Accesses to the bytes of arenas, in order. Private to src/prove. */
#pragma once

#include "program/program.h"
#include "prove/term.h"

typedef struct wfi_access_history {
    int32_t reads[WFI_N_STREAMS], writes[WFI_N_STREAMS]; /* positions + 1 of the latest */
} wfi_access_history;

/* A stretch of an arena that no border of a block or of a reference divides. */
typedef struct wfi_stretch {
    size_t begin;
    wfi_access_history history;
    int32_t user;  /* the block that accessed it last, or -1 */
    int32_t owner; /* the block that wrote it last, or -1 */
    wfi_term term; /* its term, for the bytes that the block has here (wfi_block.begin) */
} wfi_stretch;

typedef struct wfi_stretches {
    int32_t first, end; /* stretches */
} wfi_stretches;

typedef struct wfi_accesses {
    const wf_program *p;
    wfi_stretch *stretches;   /* of all arenas, each arena's in order of addresses */
    wfi_stretches *ranges;    /* [block] */
    int32_t *next;            /* [block] the stretch behind the part that was found last */
    wfi_access_history *uses; /* [block] all accesses to it, as reads; NULL: ranks access no rows */
    bool *has_lost;           /* [block] another one has taken a stretch of it; with `uses` */
} wfi_accesses;

/* Finds the stretches; none is accessed yet. The caller releases, also after an error. */
wf_status wfi_accesses_find(const wf_program *p, wfi_accesses *a);
void wfi_accesses_release(wfi_accesses *a);
/* The stretches that the reference covers. */
wfi_stretches wfi_range_of(const wfi_accesses *a, const wfi_reference *r);
/* The part of a block of state that a step changes. */
wfi_extent wfi_changed_part(const wf_program *p, const wfi_block *b);
/* Adds the accesses of instruction i. Errors: BUG: one is not ordered with an earlier one. */
wf_status wfi_accesses_check(wfi_accesses *a, int32_t i);
