/* Memory in time: the blocks alive on a rank at each moment of a timeline. A block is alive from
 * the begin of the first instruction that touches it to the end of the last.
 */
#include "show/timeline.h"

#include <math.h>
#include <stdlib.h>

static wf_memory_kind kind_of(const wfi_block *block) {
    if (block->space == WFI_SPACE_HOST) return WF_MEMORY_HOST;
    if (block->space == WFI_SPACE_DISK) return WF_MEMORY_DISK;
    switch (block->name.kind) {
    case WFI_BLOCK_PARAM:
        return block->is_state ? WF_MEMORY_PARAMETERS : WF_MEMORY_GATHERED;
    case WFI_BLOCK_BUFFER:
        return WF_MEMORY_PARAMETERS;
    case WFI_BLOCK_STATE:
        return WF_MEMORY_STATE;
    case WFI_BLOCK_GRADIENT:
    case WFI_BLOCK_TIED:
        return WF_MEMORY_GRADIENTS;
    case WFI_BLOCK_INPUT:
    case WFI_BLOCK_VALUE:
    case WFI_BLOCK_SAVED:
    case WFI_BLOCK_SAVED_W:
    case WFI_BLOCK_REMADE:
    case WFI_BLOCK_REMADE_W:
    case WFI_BLOCK_FOR_WEIGHT:
    case WFI_BLOCK_STATS:
    case WFI_BLOCK_HIDDEN:
    case WFI_BLOCK_NEXT_HIDDEN:
    case WFI_BLOCK_RECORD:
        return WF_MEMORY_ACTIVATIONS;
    default:
        return WF_MEMORY_WORKSPACE;
    }
}

/* Bytes come or go. */
typedef struct event {
    double us;
    wf_memory_kind kind;
    int64_t bytes;
} event;

/* A block that ends at a moment and one that begins then are not alive together. */
static int compare(const void *a, const void *b) {
    const event *x = a, *y = b;
    if (x->us != y->us) return x->us < y->us ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

/* First and last use of a block; not at all: from INFINITY on. n: blocks of the step. */
typedef struct life {
    double first_us, last_us;
    int64_t n;
} life;

/* How many microbatches instruction i of a short form is made for. The period after a cut stands
 * for those that are left out, too. */
static int64_t count_micros(const wf_program *p, int32_t i) {
    for (int32_t k = 0; k < p->n_lowered * p->n_cuts; k++)
        if (p->repeats[k].end <= i && i < p->repeats[k].after) return 1 + p->n_times;
    return 1;
}

/* Records stay until the report, so all of the step's count. */
static void find_lives(const wf_program *p, const double *begin_us, const double *end_us,
                       life *lives) {
    for (int32_t b = 0; b < p->n_blocks; b++) lives[b] = (life){INFINITY, 0, 1};
    for (int32_t i = 0; i < p->n_instructions; i++)
        for (int32_t r = 0; r < p->instructions[i].n_references; r++) {
            int32_t b = p->instructions[i].references[r].block;
            if (begin_us[i] < lives[b].first_us) lives[b].first_us = begin_us[i];
            if (end_us[i] > lives[b].last_us) lives[b].last_us = end_us[i];
            if (p->blocks[b].name.kind == WFI_BLOCK_RECORD && lives[b].n == 1)
                lives[b].n = count_micros(p, i);
        }
}

static int find_events(const wf_program *p, int32_t rank, const life *lives, double step_us,
                       event *events) {
    int n = 0;
    for (int32_t b = p->ranks[rank].first_block; b < p->ranks[rank].end_block; b++) {
        const wfi_block *block = &p->blocks[b];
        if (!block->is_state && !(lives[b].first_us < INFINITY)) continue;
        int64_t bytes = (int64_t)block->bytes * lives[b].n;
        events[n++] =
            (event){block->is_state ? 0 : fmax(lives[b].first_us, 0), kind_of(block), bytes};
        events[n++] = (event){block->is_state ? step_us : lives[b].last_us, kind_of(block), -bytes};
    }
    if (n) qsort(events, (size_t)n, sizeof *events, compare);
    return n;
}

static size_t sum_of(const wf_memory_moment *moment) {
    size_t bytes = 0;
    for (int k = 0; k < WF_N_MEMORY_KINDS; k++) bytes += moment->bytes[k];
    return bytes;
}

static void make_moments(const event *events, int n, double step_us, wfi_moments *out) {
    wf_memory_moment now = {0};
    int n_all = 0, at = 0;
    for (int i = 0; i < n; i++) n_all += i + 1 == n || events[i + 1].us > events[i].us;
    int per_moment = (n_all + WFI_MAX_MOMENTS - 1) / WFI_MAX_MOMENTS;
    for (int i = 0; i < n && events[i].us < step_us; i++) {
        now.bytes[events[i].kind] += (size_t)events[i].bytes;
        if (i + 1 < n && events[i + 1].us <= events[i].us) continue;
        now.us = events[i].us;
        bool is_new = at++ % per_moment == 0;
        wf_memory_moment *last = &out->items[out->n - !is_new];
        if (is_new) out->n++;
        if (is_new || sum_of(&now) > sum_of(last)) *last = now;
    }
}

wf_status wfi_timeline_find_moments(const wf_program *p, const double *begin_us,
                                    const double *end_us, wf_timeline *t) {
    wf_status status = WF_NO_MEMORY;
    size_t n = (size_t)p->n_blocks;
    life *lives = wfi_alloc(p->ctx, n, sizeof *lives, "a timeline");
    event *events = wfi_alloc(p->ctx, 2 * n, sizeof *events, "a timeline");
    if (!lives || !events) goto done;
    find_lives(p, begin_us, end_us, lives);
    for (int32_t k = 0; k < p->n_lowered; k++) {
        int32_t r = p->lowered[k];
        wfi_moments *m = &t->moments[r];
        m->items = wfi_pool_alloc(&t->pool, WFI_MAX_MOMENTS, sizeof *m->items);
        if (!m->items) goto done;
        int n_events = find_events(p, r, lives, t->step_us, events);
        make_moments(events, n_events, t->step_us, m);
        m->items[0].us = 0;
    }
    for (int32_t r = 0; r < p->n_ranks; r++) t->moments[r] = t->moments[p->ranks[r].like];
    status = WF_OK;
done:
    wfi_free(p->ctx, lives);
    wfi_free(p->ctx, events);
    return status;
}
