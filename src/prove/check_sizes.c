/* The checker's part about bytes: every instruction is given exactly the memory that it touches,
 * within blocks that are large enough, within the arena. Instructions that take elements for F32,
 * because they sum them or move them by element, are given no other type.
 */
#include "program/clock.h"
#include "program/need.h"
#include "program/where.h"
#include "prove/check.h"

#include <stdio.h>

static wf_status refuse_reference(const wf_program *p, int32_t i, int32_t k, const char *what) {
    const wfi_reference *r = &p->instructions[i].references[k];
    const wfi_block *b = &p->blocks[r->block];
    char text[256];
    snprintf(text, sizeof text, "reference %d, %zu bytes at %zu of a %s of %zu: %s", k, r->bytes,
             r->offset, wfi_block_kind_name(b->name.kind), b->bytes, what);
    return wfi_check_refuse(p, i, text);
}

/* Instructions that are no segments compute in F32; segments read the types that values have. */
static bool is_f32(const wf_program *p, const wfi_instruction *now, const wfi_block *b) {
    const wf_graph *g = wfi_program_graph_of(p, b->name.micro);
    bool counts = now->kind == WFI_FOLD || now->kind == WFI_TIE || now->kind == WFI_CHANGE;
    int32_t value = b->name.kind == WFI_BLOCK_VALUE  ? b->name.owner
                    : b->name.kind == WFI_BLOCK_TIED ? g->weight_gradients[b->name.owner].param
                                                     : -1;
    return !counts || value < 0 || wfi_value_at(g, value)->dtype == WF_F32;
}

static wf_status check_reference(const wf_program *p, int32_t i, int32_t k) {
    const wfi_instruction *now = &p->instructions[i];
    const wfi_reference *r = &now->references[k];
    const wfi_block *b = &p->blocks[r->block];
    char what[64];
    wfi_need need;
    if (!wfi_reference_needs(p, now, k, &need))
        return wfi_check_refuse(p, i, "names a unit, value or microbatch that does not exist");
    if (need.kind == WFI_N_BLOCK_KINDS)
        return refuse_reference(p, i, k, "the instruction does not use this block");
    if (b->name.kind != need.kind) {
        snprintf(what, sizeof what, "it needs a %s", wfi_block_kind_name(need.kind));
        return refuse_reference(p, i, k, what);
    }
    if (b->space != need.space) {
        snprintf(what, sizeof what, "it lies on the %s, and is needed on the %s",
                 wfi_space_name(b->space), wfi_space_name(need.space));
        return refuse_reference(p, i, k, what);
    }
    if (r->bytes != need.extent.bytes) {
        snprintf(what, sizeof what, "it needs %zu bytes", need.extent.bytes);
        return refuse_reference(p, i, k, what);
    }
    if (wfi_reference_begin(p, r) != need.extent.offset) {
        snprintf(what, sizeof what, "it needs those from %zu on", need.extent.offset);
        return refuse_reference(p, i, k, what);
    }
    if (r->access != need.access)
        return refuse_reference(p, i, k, "it reads where it should write, or the reverse");
    if (!is_f32(p, now, b))
        return refuse_reference(p, i, k, "it reads the elements as F32, which they are not");
    if (!r->bytes) return WF_OK;
    if (r->bytes > b->bytes || r->offset > b->bytes - r->bytes)
        return refuse_reference(p, i, k, "it reaches outside its block");
    if ((b->offset + r->offset) %
        (b->name.kind == WFI_BLOCK_NORM ? sizeof(double) : WFI_ALIGN_BYTES))
        return refuse_reference(p, i, k, "it does not begin at a cache line");
    return WF_OK;
}

/* Checks that a block fits into the rank's arena of its space, whether an instruction touches it or
 * not. */
static wf_status check_block(const wf_program *p, const wfi_block *b) {
    size_t peak = p->ranks[b->rank].arenas[b->space].peak_bytes;
    size_t needed = b->is_state ? wfi_moved_extent(p, b->name, b->rank).bytes : 0;
    const char *unit = b->is_state ? p->graph->units[b->name.owner].name : "";
    if (b->bytes > peak || b->offset > peak - b->bytes)
        return wfi_fail(p->ctx, WF_BUG,
                        "check: rank %d, %s%s%s: %zu bytes at %zu reach outside the arena of %zu",
                        b->rank, wfi_block_kind_name(b->name.kind), *unit ? " of unit " : "", unit,
                        b->bytes, b->offset, peak);
    if (b->bytes < needed)
        return wfi_fail(p->ctx, WF_BUG, "check: rank %d, %s of unit %s: %zu bytes, it needs %zu",
                        b->rank, wfi_block_kind_name(b->name.kind), unit, b->bytes, needed);
    return WF_OK;
}

wf_status wfi_check_sizes(const wf_program *p) {
    for (int32_t b = 0; b < p->n_blocks; b++) WF_TRY(check_block(p, &p->blocks[b]));
    for (int32_t i = 0; i < p->n_instructions; i++)
        for (int32_t k = 0; k < p->instructions[i].n_references; k++)
            WF_TRY(check_reference(p, i, k));
    return WF_OK;
}
