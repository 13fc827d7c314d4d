/* The order of instructions. Private. */
#pragma once

#include "program/program.h"

/* The offset of a reference in the tensor that its block is named for. */
static inline size_t wfi_reference_begin(const wf_program *p, const wfi_reference *r) {
    return r->offset + (size_t)p->blocks[r->block].begin;
}
/* How many instructions run together from place k of the program's order on, where the first of
 * them stands. */
static inline int32_t wfi_n_together(const wf_program *p, int32_t k) {
    const wfi_instruction *now = &p->instructions[p->order[k]];
    if (wfi_type_of(now)->class == WFI_CLASS_TRANSFER) return 2;
    return wfi_type_of(now)->class == WFI_CLASS_CHANGE ? p->groups[now->group].n_lowered : 1;
}

/* Whether b is a's part on another rank: they do the same to blocks of the same names. */
bool wfi_same_collective(const wf_program *p, const wfi_instruction *a, const wfi_instruction *b);

/* How many of each stream of its rank happen before instruction i, or are it. */
static inline const int32_t *wfi_clock_of(const wf_program *p, int32_t i) {
    return p->clock + (size_t)i * WFI_N_STREAMS;
}
/* Compares two instructions of one rank. */
static inline bool wfi_happens_before(const wf_program *p, int32_t a, int32_t b) {
    const wfi_instruction *i = &p->instructions[a];
    return a != b && wfi_clock_of(p, b)[i->stream] > i->position;
}
