/* Terms: the content of a block of memory, as a formula instead of as numbers. Private.
 *
 * A term is the hash of the operation that made it and of the terms it read. Two programs that give
 * a block the same term compute the same bits in it, because every kernel's result depends on its
 * operands alone. So equal terms prove that a program computes the result of one rank.
 */
#pragma once

#include "program/program.h"

typedef uint64_t wfi_term; /* 0: bytes that were never written, or that were overwritten */

static inline wfi_term wfi_term_mix(wfi_term a, uint64_t b) {
    uint64_t x = (a ^ (b + 0x9E3779B97F4A7C15u + (a << 6) + (a >> 2))) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 29)) * 0x94D049BB133111EBu;
    x ^= x >> 32;
    return x ? x : 1;
}
static inline wfi_term wfi_term_start(int what, int32_t id, int64_t micro) {
    return wfi_term_mix(wfi_term_mix(wfi_term_mix(1, (uint64_t)what), (uint64_t)id),
                        (uint64_t)micro);
}

/* The kinds of terms that are no instruction's name. */
enum {
    WFI_TERM_INITIAL = 1000,
    WFI_TERM_ADD,
    WFI_TERM_ANY_ORDER,
    WFI_TERM_SLOT,
    WFI_TERM_OTHER, /* results of ranks that are not lowered, at the end of the step */
    WFI_TERM_PART = 2000
};

/* The term that an instruction of that kind writes into its reference k, made of the terms that it
 * reads: in[n], in the order of its references. `id`: which tied weight, or 0. */
wfi_term wfi_term_made(wfi_instruction_kind kind, int32_t id, int32_t k, const wfi_term *in,
                       int32_t n);
static inline wfi_term wfi_term_fold(wfi_term left, wfi_term right) {
    return wfi_term_made(WFI_FOLD, 0, 0, (const wfi_term[]){left, right}, 2);
}
/* Sums `n` terms over the tree of lanes.h. */
wfi_term wfi_term_tree(const wfi_term *leaves, int64_t n);
/* The same for a sum that is made in some other order, the same on all ranks. */
wfi_term wfi_term_any_order(const wfi_term *leaves, int64_t n);

/* Applies a segment to the terms in its slots: `in` is read, `out` gets the term of every slot that
 * is written, and keeps the others. For GRADIENT and TIED it is the summand. */
void wfi_term_segment(const wfi_segment *segment, int64_t micro, const wfi_term *in, wfi_term *out);

/* The ideal: the computation of one rank with the recipe, one microbatch after the other. Found by
 * names of used copies, without their turns. */
typedef struct wfi_ideal wfi_ideal;
wf_status wfi_ideal_create(const wf_program *p, wfi_ideal **ideal_out);
void wfi_ideal_destroy(wfi_ideal *ideal);
/* A slice's summand, of a VALUE that slices sum. */
static inline wfi_name wfi_slice_summand(wfi_name value, int32_t slice) {
    return wfi_in_accumulator(value, 1 + slice);
}
/* During the step; 0 if there is no such value. PARAM, BUFFER, STATE, HIDDEN: before it. */
wfi_term wfi_ideal_find(const wfi_ideal *ideal, wfi_name name);
/* The summand of n replicas of a unit's stage, from the first on, for its gradient. */
wfi_term wfi_ideal_part(const wfi_ideal *ideal, int32_t unit, int32_t first, int32_t n);
/* Returns the part of n slices, from the first on, of a VALUE that slices sum, or, along the lane
 * that ends with the microbatch, of a TIED that all slices use. */
wfi_term wfi_ideal_slices(const wfi_ideal *ideal, wfi_name name, int32_t first, int32_t n);
/* A NORM of the unit's gradient, once that is summed. */
wfi_term wfi_ideal_norm(const wfi_ideal *ideal, int32_t unit);
/* PARAM, BUFFER, STATE and HIDDEN (of a microbatch) of a unit after the step; the sum of its
 * GRADIENT. */
wfi_term wfi_ideal_after(const wfi_ideal *ideal, wfi_block_kind kind, int32_t unit, int64_t micro);
