#include "execute/check/gaps.h"
#include "program/text.h"

#include <stdlib.h>

typedef struct range {
    size_t begin, end;
} range;

typedef struct rank_gaps {
    range *ranges; /* first the writable ranges, then the gaps between them; ascending */
    int32_t n;
    size_t capacity;
} rank_gaps;

struct wfi_gaps {
    const wf_program *p;
    const wfi_worker *workers;
    rank_gaps *ranks; /* [n_ranks] */
};

/* Each byte of the pattern differs by rank and address, so a copy from another gap is also
 * found. */
static unsigned char pattern(int32_t rank, size_t at) {
    uint64_t x = ((uint64_t)at ^ (uint64_t)rank << 48) * 0x9E3779B97F4A7C15u;
    return (unsigned char)((x ^ x >> 29) * 0xBF58476D1CE4E5B9u >> 56);
}

/* ---- writable ranges ---- */

static wf_status allow(wfi_gaps *g, const wfi_block *b, size_t offset, size_t bytes) {
    rank_gaps *rank = &g->ranks[b->rank];
    if (!bytes || b->space != WFI_SPACE_DEVICE) return WF_OK;
    WF_TRY(WFI_GROW(g->p->ctx, rank->ranges, rank->n, rank->capacity, "gaps in memory"));
    rank->ranges[rank->n++] = (range){b->offset + offset, b->offset + offset + bytes};
    return WF_OK;
}

/* Whether the values of a block are separate ranges, with gaps between them. */
static bool is_divided(wfi_block_kind kind) {
    return kind == WFI_BLOCK_WORKSPACE || kind == WFI_BLOCK_SAVED || kind == WFI_BLOCK_SAVED_W ||
           kind == WFI_BLOCK_FOR_WEIGHT || kind == WFI_BLOCK_PACKED;
}

static wf_status allow_operand(wfi_gaps *g, const wfi_instruction *now, const wfi_address *a,
                               size_t bytes) {
    if (a->slot < 0) return WF_OK;
    const wfi_reference *r = &now->references[a->slot];
    const wfi_block *b = &g->p->blocks[r->block];
    return is_divided(b->name.kind) ? allow(g, b, r->offset + a->offset, bytes) : WF_OK;
}

static wf_status allow_kernel(wfi_gaps *g, const wfi_instruction *now, const wfi_segment_step *step,
                              const wfi_kernel *kernel) {
    if (!kernel) return WF_OK;
    for (int i = 0; i < kernel->n_operands; i++)
        WF_TRY(allow_operand(g, now, &step->operand[i], kernel->bytes[i]));
    return allow_operand(g, now, &step->scratch, kernel->scratch_bytes);
}

static wf_status allow_instruction(wfi_gaps *g, const wfi_instruction *now) {
    for (int32_t k = 0; k < now->n_references; k++) {
        const wfi_reference *r = &now->references[k];
        const wfi_block *b = &g->p->blocks[r->block];
        if (!is_divided(b->name.kind)) WF_TRY(allow(g, b, r->offset, r->bytes));
    }
    for (int32_t s = 0; now->segment && s < now->segment->n_steps; s++) {
        const wfi_segment_step *step = &now->segment->steps[s];
        bool adds = step->kernel_add && !now->first;
        WF_TRY(allow_kernel(g, now, step, adds ? step->kernel_add : step->kernel));
    }
    return WF_OK;
}

/* ---- gaps ---- */

static int by_begin(const void *a, const void *b) {
    size_t x = ((const range *)a)->begin, y = ((const range *)b)->begin;
    return (x > y) - (x < y);
}

/* There is no more between them than there are of them, and one at the end. */
static wf_status invert(const wfi_gaps *g, int32_t number) {
    rank_gaps *rank = &g->ranks[number];
    range *r = rank->ranges;
    size_t at = 0;
    int32_t n = 0;
    WF_TRY(WFI_GROW(g->p->ctx, rank->ranges, rank->n, rank->capacity, "gaps in memory"));
    r = rank->ranges;
    qsort(r, (size_t)rank->n, sizeof *r, by_begin);
    for (int32_t k = 0; k < rank->n; k++) {
        range allowed = r[k];
        if (allowed.begin > at) r[n++] = (range){at, allowed.begin};
        if (allowed.end > at) at = allowed.end;
    }
    size_t end = g->p->ranks[number].arenas[WFI_SPACE_DEVICE].peak_bytes;
    if (at < end) r[n++] = (range){at, end};
    rank->n = n;
    return WF_OK;
}

static wf_status find_gaps(wfi_gaps *g) {
    const wf_program *p = g->p;
    for (int32_t b = 0; b < p->n_blocks; b++)
        if (p->blocks[b].is_state) WF_TRY(allow(g, &p->blocks[b], 0, p->blocks[b].bytes));
    for (int32_t i = 0; i < p->n_instructions; i++)
        WF_TRY(allow_instruction(g, &p->instructions[i]));
    for (int32_t r = 0; r < p->n_ranks; r++) WF_TRY(invert(g, r));
    return WF_OK;
}

/* ---- life ---- */

wf_status wfi_gaps_create(const wf_program *p, const wfi_worker *workers, wfi_gaps **gaps_out) {
    for (int32_t r = 0; r < p->n_ranks; r++) {
        const wfi_device_class *kind = wfi_plan_device(p->plan, r).kind;
        if (!kind->separate) continue;
        return wfi_fail(p->ctx, WF_UNSUPPORTED,
                        "WEFT_ARENA_GAP on %s devices: the host cannot see "
                        "their memory",
                        kind->name);
    }
    wfi_gaps *g = wfi_alloc(p->ctx, 1, sizeof *g, "gaps in memory");
    if (!g) return WF_NO_MEMORY;
    *g = (wfi_gaps){.p = p, .workers = workers};
    g->ranks = wfi_alloc(p->ctx, (size_t)p->n_ranks, sizeof *g->ranks, "gaps in memory");
    wf_status status = g->ranks ? find_gaps(g) : WF_NO_MEMORY;
    if (status != WF_OK) {
        wfi_gaps_destroy(g);
        return status;
    }
    *gaps_out = g;
    return WF_OK;
}

void wfi_gaps_destroy(wfi_gaps *g) {
    if (!g) return;
    for (int32_t r = 0; g->ranks && r < g->p->n_ranks; r++) wfi_free(g->p->ctx, g->ranks[r].ranges);
    wfi_free(g->p->ctx, g->ranks);
    wfi_free(g->p->ctx, g);
}

/* ---- a step ---- */

static void fill_rank(const wfi_gaps *g, int32_t rank) {
    unsigned char *base = (unsigned char *)g->workers[rank].arenas[WFI_SPACE_DEVICE].base;
    for (int32_t k = 0; k < g->ranks[rank].n; k++)
        for (size_t at = g->ranks[rank].ranges[k].begin; at < g->ranks[rank].ranges[k].end; at++)
            base[at] = pattern(rank, at);
}

void wfi_gaps_fill(const wfi_gaps *g) {
    for (int32_t r = 0; r < g->p->n_ranks; r++)
        if (g->workers[r].is_local) fill_rank(g, r);
}

/* Index of the first gap that ends at `at` or later. */
static int32_t find_gap(const rank_gaps *rank, size_t at) {
    int32_t low = 0, high = rank->n;
    WFI_BISECT(low, high, middle, rank->ranges[middle].end < at);
    return low;
}

static wf_status refuse(const wfi_gaps *g, int32_t i, const wfi_block *b, size_t at) {
    wfi_text text = {.ctx = g->p->ctx};
    wfi_instruction_text(g->p, i, &text);
    wf_status status = wfi_text_status(&text);
    if (status == WF_OK)
        status = wfi_fail(g->p->ctx, WF_BUG,
                          "memory: %s wrote outside its block: byte %td of a %s of %zu bytes",
                          text.data, (ptrdiff_t)at - (ptrdiff_t)b->offset,
                          wfi_block_kind_name(b->name.kind), b->bytes);
    wfi_free(g->p->ctx, text.data);
    return status;
}

static wf_status check_block(const wfi_gaps *g, int32_t i, const wfi_block *b) {
    const rank_gaps *rank = &g->ranks[b->rank];
    const unsigned char *base =
        (const unsigned char *)g->workers[b->rank].arenas[WFI_SPACE_DEVICE].base;
    for (int32_t k = find_gap(rank, b->offset);
         k < rank->n && rank->ranges[k].begin <= b->offset + b->bytes; k++)
        for (size_t at = rank->ranges[k].begin; at < rank->ranges[k].end; at++)
            if (base[at] != pattern(b->rank, at)) return refuse(g, i, b, at);
    return WF_OK;
}

wf_status wfi_gaps_check(const wfi_gaps *g, int32_t i) {
    const wfi_instruction *now = &g->p->instructions[i];
    if (!g->workers[now->rank].is_local) return WF_OK;
    for (int32_t k = 0; k < now->n_references; k++) {
        const wfi_block *b = &g->p->blocks[now->references[k].block];
        if (b->space == WFI_SPACE_DEVICE) WF_TRY(check_block(g, i, b));
    }
    return WF_OK;
}
