/* The order of accesses to the same bytes: part 3 of the checker. */
#include "prove/access.h"
#include "program/clock.h"
#include "program/stage.h"
#include "prove/check.h"

#include <stdlib.h>

typedef struct border {
    int32_t arena; /* rank and space */
    size_t at;
} border;

static border border_of(const wfi_block *b, size_t at) {
    return (border){b->rank * WFI_N_SPACES + (int32_t)b->space, b->offset + at};
}

static int compare_borders(const void *a, const void *b) {
    const border *x = a, *y = b;
    if (x->arena != y->arena) return (x->arena > y->arena) - (x->arena < y->arena);
    return (x->at > y->at) - (x->at < y->at);
}

/* A reference to a part of its block; those to the whole add no border. */
static bool is_part(const wf_program *p, const wfi_reference *r) {
    return r->bytes && (r->offset || r->bytes != p->blocks[r->block].bytes);
}

static size_t count_borders(const wf_program *p) {
    size_t n = 4 * (size_t)p->n_blocks;
    for (int32_t i = 0; i < p->n_instructions; i++)
        for (int32_t k = 0; k < p->instructions[i].n_references; k++)
            n += 2 * (size_t)is_part(p, &p->instructions[i].references[k]);
    return n;
}

static void add_borders(border *borders, size_t *n, const wfi_block *b, wfi_extent extent) {
    if (!extent.bytes) return;
    borders[(*n)++] = border_of(b, extent.offset);
    borders[(*n)++] = border_of(b, extent.offset + extent.bytes);
}

/* The part of a block of state that a step changes: the trained parameters only. A forward run
 * changes the first replica's caches and hidden state. */
wfi_extent wfi_changed_part(const wf_program *p, const wfi_block *b) {
    wfi_extent part = {(size_t)b->begin, b->bytes};
    if (!wfi_differentiates(p)) {
        bool runs = wfi_stage_member_on(p, wfi_program_stage_of(p, b->name.owner), b->rank) == 0;
        part.bytes = b->name.kind == WFI_BLOCK_BUFFER && runs
                         ? p->graph->units[b->name.owner].cache_bytes
                     : b->name.kind == WFI_BLOCK_HIDDEN && runs ? b->bytes
                                                                : 0;
    }
    bool is_updated = b->name.kind == WFI_BLOCK_PARAM || b->name.kind == WFI_BLOCK_STATE;
    if (is_updated && !wfi_updates(p)) part.bytes = 0;
    if (b->name.kind == WFI_BLOCK_PARAM) part = wfi_trained_extent(p, b->name.owner, part);
    return (wfi_extent){0, part.bytes};
}

static size_t list_borders(const wf_program *p, border *borders) {
    size_t n = 0;
    for (int32_t b = 0; b < p->n_blocks; b++) {
        const wfi_block *block = &p->blocks[b];
        add_borders(borders, &n, block, (wfi_extent){0, block->bytes});
        if (block->is_state) add_borders(borders, &n, block, wfi_changed_part(p, block));
    }
    for (int32_t i = 0; i < p->n_instructions; i++)
        for (int32_t k = 0; k < p->instructions[i].n_references; k++) {
            const wfi_reference *r = &p->instructions[i].references[k];
            if (is_part(p, r))
                add_borders(borders, &n, &p->blocks[r->block], (wfi_extent){r->offset, r->bytes});
        }
    qsort(borders, n, sizeof *borders, compare_borders);
    size_t n_unique = 0;
    for (size_t k = 0; k < n; k++)
        if (!n_unique || compare_borders(&borders[n_unique - 1], &borders[k]))
            borders[n_unique++] = borders[k];
    return n_unique;
}

static int32_t find_border(const border *borders, size_t n, border what) {
    const border *found = bsearch(&what, borders, n, sizeof *borders, compare_borders);
    return (int32_t)(found - borders);
}

/* Divides each arena at every border. Memory is reused at the same places, so there are
 * far fewer stretches than blocks. */
wf_status wfi_accesses_find(const wf_program *p, wfi_accesses *a) {
    const char *what = "the program check";
    size_t n_blocks = (size_t)p->n_blocks;
    bool has_rows = p->plan->divides_rows;
    *a = (wfi_accesses){.p = p};
    border *borders = wfi_alloc(p->ctx, count_borders(p), sizeof *borders, what);
    a->ranges = wfi_alloc(p->ctx, n_blocks, sizeof *a->ranges, what);
    a->uses = has_rows ? wfi_alloc(p->ctx, n_blocks, sizeof *a->uses, what) : NULL;
    size_t n = borders ? list_borders(p, borders) : 0;
    a->stretches = wfi_alloc(p->ctx, n, sizeof *a->stretches, what);
    bool ok = borders && a->ranges && a->stretches && (a->uses || !has_rows);
    for (size_t k = 0; k < n && ok; k++)
        a->stretches[k] = (wfi_stretch){.begin = borders[k].at, .user = -1, .owner = -1};
    for (int32_t b = 0; b < p->n_blocks && ok; b++) {
        const wfi_block *block = &p->blocks[b];
        if (!block->bytes) continue;
        a->ranges[b] = (wfi_range){find_border(borders, n, border_of(block, 0)),
                                   find_border(borders, n, border_of(block, block->bytes))};
    }
    wfi_free(p->ctx, borders);
    return ok ? WF_OK : WF_NO_MEMORY;
}

void wfi_accesses_release(wfi_accesses *a) {
    if (!a->p) return;
    wfi_free(a->p->ctx, a->stretches);
    wfi_free(a->p->ctx, a->ranges);
    wfi_free(a->p->ctx, a->uses);
}

/* Which of the block's stretches begins at `at`; the end, if none does. */
static int32_t find_stretch(const wfi_accesses *a, wfi_range block, size_t at) {
    while (block.first < block.end) {
        int32_t middle = block.first + (block.end - block.first) / 2;
        if (a->stretches[middle].begin < at)
            block.first = middle + 1;
        else
            block.end = middle;
    }
    return block.first;
}

wfi_range wfi_range_of(const wfi_accesses *a, const wfi_reference *r) {
    wfi_range block = a->ranges[r->block];
    size_t begin = a->p->blocks[r->block].offset + r->offset;
    if (!is_part(a->p, r)) return r->bytes ? block : (wfi_range){0, 0};
    return (wfi_range){find_stretch(a, block, begin), find_stretch(a, block, begin + r->bytes)};
}

static bool is_ordered(const wfi_access_history *h, const int32_t *clock, wfi_stream own,
                       bool writes) {
    for (int s = 0; s < WFI_N_STREAMS; s++) {
        int32_t before = clock[s] - (s == (int)own);
        if (h->writes[s] > before || (writes && h->reads[s] > before)) return false;
    }
    return true;
}

/* A block of which each rank along `tp` accesses some rows: the ranks that follow access other rows
 * at the same time. So it has all its bytes from its first access to its last one. */
static bool is_of_rows(const wfi_accesses *a, int32_t block) {
    return a->uses && a->p->blocks[block].name.kind == WFI_BLOCK_VALUE;
}

/* Whether the block may use a stretch: it has it, or those that had it have ended. */
static bool takes(const wfi_accesses *a, wfi_stretch *s, int32_t block, const int32_t *clock,
                  wfi_stream stream) {
    int32_t before = s->user;
    s->user = block;
    return before == block || before < 0 || !is_of_rows(a, before) ||
           is_ordered(&a->uses[before], clock, stream, true);
}

static bool takes_all(wfi_accesses *a, int32_t block, const int32_t *clock, wfi_stream stream) {
    wfi_access_history *use = &a->uses[block];
    bool is_first = true, does = true;
    for (int s = 0; s < WFI_N_STREAMS; s++) is_first &= !use->reads[s];
    for (int32_t at = a->ranges[block].first; at < a->ranges[block].end && does; at++) {
        wfi_stretch *s = &a->stretches[at];
        bool has = s->user == block;
        does = has || (is_first && is_ordered(&s->history, clock, stream, true));
        does &= takes(a, s, block, clock, stream);
    }
    use->reads[stream] = clock[stream];
    return does;
}

/* Accesses through other references of the same instruction count, too: a kernel that overwrites
 * its input computes another result. */
wf_status wfi_accesses_check(wfi_accesses *a, int32_t i) {
    const wf_program *p = a->p;
    const wfi_instruction *now = &p->instructions[i];
    const int32_t *clock = wfi_clock_of(p, i);
    for (int32_t k = 0; k < now->n_references; k++) {
        const wfi_reference *r = &now->references[k];
        wfi_range touched = wfi_range_of(a, r);
        bool may = !is_of_rows(a, r->block) || takes_all(a, r->block, clock, now->stream);
        for (int32_t at = touched.first; at < touched.end; at++) {
            wfi_access_history *h = &a->stretches[at].history;
            may &= takes(a, &a->stretches[at], r->block, clock, now->stream);
            if (!may || !is_ordered(h, clock, now->stream, r->access & WFI_WRITE))
                return wfi_check_refuse(
                    p, i,
                    "touches bytes that another stream, another block or another of its "
                    "own references may be using (a dependency is missing)");
            if (r->access & WFI_READ) h->reads[now->stream] = now->position + 1;
            if (r->access & WFI_WRITE) h->writes[now->stream] = now->position + 1;
        }
    }
    return WF_OK;
}
