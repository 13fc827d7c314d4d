/* The order of accesses to the same bytes: part 3 of the checker. */
#include "prove/access.h"
#include "program/clock.h"
#include "program/stage.h"
#include "prove/check.h"

#include <stdlib.h>

typedef struct border {
    size_t at;
    int32_t arena; /* 1 + number of the rank's space; 0: a free entry of the table */
    int32_t index; /* of the stretch that begins here */
} border;

/* Each border once, by open addressing: thousands of blocks begin at the same place. */
typedef struct border_table {
    const wf_program *p;
    border *entries; /* [n_entries] a power of two */
    size_t n_entries, n;
} border_table;

static border border_of(const wfi_block *b, size_t at) {
    return (border){.at = b->offset + at, .arena = 1 + b->rank * WFI_N_SPACES + (int32_t)b->space};
}

static int compare_borders(const void *a, const void *b) {
    const border *x = a, *y = b;
    if (x->arena != y->arena) return (x->arena > y->arena) - (x->arena < y->arena);
    return (x->at > y->at) - (x->at < y->at);
}

static border *find_border(const border_table *t, border what) {
    uint64_t x = (what.at + ((uint64_t)what.arena << 48)) * 0x9E3779B97F4A7C15u;
    size_t k = (size_t)(x ^ x >> 32) & (t->n_entries - 1);
    while (t->entries[k].arena && compare_borders(&t->entries[k], &what))
        k = (k + 1) & (t->n_entries - 1);
    return &t->entries[k];
}

static wf_status grow_table(border_table *t) {
    border_table larger = {.p = t->p, .n = t->n};
    larger.n_entries = t->n_entries ? 2 * t->n_entries : 1024;
    larger.entries =
        wfi_alloc(t->p->ctx, larger.n_entries, sizeof *larger.entries, "the program check");
    if (!larger.entries) return WF_NO_MEMORY;
    for (size_t k = 0; k < t->n_entries; k++)
        if (t->entries[k].arena) *find_border(&larger, t->entries[k]) = t->entries[k];
    wfi_free(t->p->ctx, t->entries);
    *t = larger;
    return WF_OK;
}

static wf_status add_border(border_table *t, const wfi_block *b, size_t at) {
    if (2 * t->n >= t->n_entries) WF_TRY(grow_table(t));
    border what = border_of(b, at), *entry = find_border(t, what);
    t->n += !entry->arena;
    *entry = what;
    return WF_OK;
}

/* A reference to a part of its block; those to the whole add no border. */
static bool is_part(const wf_program *p, const wfi_reference *r) {
    return r->bytes && (r->offset || r->bytes != p->blocks[r->block].bytes);
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

/* Pieces of a block mostly follow each other. */
static wf_status add_parts(border_table *t, const wfi_instruction *now) {
    const wf_program *p = t->p;
    for (int32_t k = 0; k < now->n_references; k++) {
        const wfi_reference *r = &now->references[k], *before = k ? r - 1 : NULL;
        if (!is_part(p, r)) continue;
        bool follows = before && before->bytes && before->block == r->block &&
                       before->offset + before->bytes == r->offset;
        if (!follows) WF_TRY(add_border(t, &p->blocks[r->block], r->offset));
        WF_TRY(add_border(t, &p->blocks[r->block], r->offset + r->bytes));
    }
    return WF_OK;
}

static wf_status add_borders(border_table *t) {
    const wf_program *p = t->p;
    for (int32_t b = 0; b < p->n_blocks; b++) {
        const wfi_block *block = &p->blocks[b];
        if (!block->bytes) continue;
        WF_TRY(add_border(t, block, 0));
        WF_TRY(add_border(t, block, block->bytes));
        size_t changed_bytes = block->is_state ? wfi_changed_part(p, block).bytes : 0;
        if (changed_bytes) WF_TRY(add_border(t, block, changed_bytes));
    }
    for (int32_t i = 0; i < p->n_instructions; i++) WF_TRY(add_parts(t, &p->instructions[i]));
    return WF_OK;
}

static wf_status list_stretches(border_table *t, wfi_accesses *a) {
    border *sorted = wfi_alloc(t->p->ctx, t->n, sizeof *sorted, "the program check");
    a->stretches = wfi_alloc(t->p->ctx, t->n, sizeof *a->stretches, "the program check");
    bool ok = sorted && a->stretches;
    size_t n = 0;
    for (size_t k = 0; k < t->n_entries && ok; k++)
        if (t->entries[k].arena) sorted[n++] = t->entries[k];
    if (n) qsort(sorted, n, sizeof *sorted, compare_borders);
    for (size_t k = 0; k < n; k++) {
        find_border(t, sorted[k])->index = (int32_t)k;
        a->stretches[k] = (wfi_stretch){.begin = sorted[k].at, .user = -1, .owner = -1};
    }
    wfi_free(t->p->ctx, sorted);
    return ok ? WF_OK : WF_NO_MEMORY;
}

/* Divides each arena at every border. Memory is reused at the same places, so there are
 * far fewer stretches than blocks. */
wf_status wfi_accesses_find(const wf_program *p, wfi_accesses *a) {
    const char *what = "the program check";
    size_t n_blocks = (size_t)p->n_blocks;
    bool has_rows = p->plan->divides_rows;
    border_table table = {.p = p};
    *a = (wfi_accesses){.p = p};
    a->ranges = wfi_alloc(p->ctx, n_blocks, sizeof *a->ranges, what);
    a->next = wfi_alloc(p->ctx, n_blocks, sizeof *a->next, what);
    a->uses = has_rows ? wfi_alloc(p->ctx, n_blocks, sizeof *a->uses, what) : NULL;
    a->has_lost = wfi_alloc(p->ctx, has_rows ? n_blocks : 0, sizeof *a->has_lost, what);
    bool ok = a->ranges && a->next && (a->uses || !has_rows) && a->has_lost;
    wf_status status = ok ? add_borders(&table) : WF_NO_MEMORY;
    if (status == WF_OK) status = list_stretches(&table, a);
    for (int32_t b = 0; b < p->n_blocks && status == WF_OK; b++) {
        const wfi_block *block = &p->blocks[b];
        if (!block->bytes) continue;
        a->ranges[b] = (wfi_stretches){find_border(&table, border_of(block, 0))->index,
                                       find_border(&table, border_of(block, block->bytes))->index};
        a->next[b] = a->ranges[b].first;
    }
    wfi_free(p->ctx, table.entries);
    return status;
}

void wfi_accesses_release(wfi_accesses *a) {
    if (!a->p) return;
    wfi_free(a->p->ctx, a->stretches);
    wfi_free(a->p->ctx, a->ranges);
    wfi_free(a->p->ctx, a->next);
    wfi_free(a->p->ctx, a->uses);
    wfi_free(a->p->ctx, a->has_lost);
}

/* Which of the block's stretches begins at `at`; the end, if none does. It is near the first. */
static int32_t find_stretch(const wfi_accesses *a, wfi_stretches block, size_t at) {
    int32_t step = 1;
    for (; block.end - block.first > step && a->stretches[block.first + step].begin < at; step *= 2)
        block.first += step;
    if (block.end - block.first > step) block.end = block.first + step;
    WFI_BISECT(block.first, block.end, middle, a->stretches[middle].begin < at);
    return block.first;
}

/* References to pieces of a block come in their order, and begin again with the first one. */
wfi_stretches wfi_range_of(const wfi_accesses *a, const wfi_reference *r) {
    wfi_stretches block = a->ranges[r->block], found;
    size_t begin = a->p->blocks[r->block].offset + r->offset;
    int32_t *next = &a->next[r->block];
    if (!is_part(a->p, r)) return r->bytes ? block : (wfi_stretches){0, 0};
    found.first = a->stretches[*next].begin == begin ? *next : find_stretch(a, block, begin);
    bool is_one =
        found.first < block.end && a->stretches[found.first + 1].begin == begin + r->bytes;
    found.end = is_one ? found.first + 1
                       : find_stretch(a, (wfi_stretches){found.first, block.end}, begin + r->bytes);
    *next = found.end < block.end ? found.end : block.first;
    return found;
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
    if (before == block) return true;
    s->user = block;
    if (before < 0 || !is_of_rows(a, before)) return true;
    a->has_lost[before] = true;
    return is_ordered(&a->uses[before], clock, stream, true);
}

/* The first access takes all stretches of the block. Later ones need that it has lost none. */
static bool takes_all(wfi_accesses *a, int32_t block, const int32_t *clock, wfi_stream stream) {
    wfi_access_history *use = &a->uses[block];
    bool is_first = true, does = !a->has_lost[block];
    for (int s = 0; s < WFI_N_STREAMS; s++) is_first &= !use->reads[s];
    wfi_stretches all = is_first ? a->ranges[block] : (wfi_stretches){0, 0};
    for (int32_t at = all.first; at < all.end && does; at++) {
        wfi_stretch *s = &a->stretches[at];
        does = is_ordered(&s->history, clock, stream, true);
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
        wfi_stretches touched = wfi_range_of(a, r);
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
