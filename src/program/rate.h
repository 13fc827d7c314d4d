/* The time of an instruction that is no unit. Private. */
#pragma once

#include "program/program.h"

/* The other space of a fetch or an evict. */
static inline wfi_space wfi_moved_space(const wf_program *p, const wfi_instruction *now) {
    return p->blocks[now->references[now->kind == WFI_EVICT].block].space;
}
/* By which rate it takes time, if not as long as its unit. */
static inline wfi_rate wfi_instruction_rate(const wf_program *p, const wfi_instruction *now) {
    if (wfi_type_of(now)->cost == WFI_COST_SPACE)
        return wfi_moved_space(p, now) == WFI_SPACE_DISK ? WFI_RATE_DISK : WFI_RATE_HOST;
    if (now->kind == WFI_PACK) return WFI_RATE_PACK;
    if (now->kind == WFI_CHANGE) return WFI_RATE_REDUCE;
    if (now->kind == WFI_FOLD) return WFI_RATE_SUM;
    if (now->kind == WFI_TIE) return WFI_RATE_TIE;
    return wfi_type_of(now)->cost == WFI_COST_COPY ? WFI_RATE_COPY : WFI_RATE_UPDATE;
}
/* Returns the bytes that an instruction takes time for: those of its references, but a copy's once.
 * A member of an all-reduce of n bytes reads and writes n; of n ranks, the share of these that
 * another change moves. */
static inline double wfi_instruction_bytes(const wf_program *p, const wfi_instruction *i) {
    bool is_copy = i->kind == WFI_COPY || wfi_type_of(i)->cost == WFI_COST_SPACE;
    double bytes = 0, n = i->kind == WFI_CHANGE ? p->groups[i->group].n : 1;
    for (int32_t r = 0; r < (is_copy ? 1 : i->n_references); r++)
        bytes += (double)i->references[r].bytes;
    if (i->kind != WFI_CHANGE) return bytes;
    if (i->from != WFI_PARTIAL) return bytes * (1 - 1 / n);
    return i->to == WFI_REPLICATE ? bytes : bytes * (1 + 1 / n) / 2;
}
