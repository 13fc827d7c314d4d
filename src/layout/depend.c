/* Dependencies: derived from the reads and writes of instructions, in the order of emission, then
 * reduced to those that no others imply. A stream runs its own list in order, so only other streams
 * of the rank need to be named.
 */
#include "layout/layout.h"

#include <string.h>

/* Some bytes of a block, and the instructions that touched them since the last write. */
typedef struct stretch {
    size_t end;   /* in the block; the next one begins there */
    int32_t next; /* of the block, or -1 */
    int32_t writer;
    int32_t reader[WFI_N_STREAMS]; /* the latest of each stream */
} stretch;

/* Ranks are emitted one after the other, and a dependency stays on its rank. So each rank is
 * processed alone, with the arrays of the one before. */
typedef struct dependence {
    wf_program *p;
    int32_t first, first_block; /* of the rank */
    stretch *stretches;         /* the first of each block, then those cut off from others */
    int32_t n_stretches;
    size_t stretch_capacity;
    /* The stretch that was found last, its block and begin: pieces come in their order. */
    int32_t near, near_block;
    size_t near_begin;
    int32_t *clock; /* [clock_capacity] the rank's instructions, WFI_N_STREAMS each */
    size_t clock_capacity;
    int32_t last[WFI_N_STREAMS]; /* latest instruction, or -1 */
    int32_t *candidates;
    size_t candidate_capacity;
    int32_t n_candidates;
} dependence;

/* The stretch that begins at `at`: the one that contains it is cut in two. */
static wf_status cut(dependence *d, int32_t block, size_t at, int32_t *index_out) {
    block -= d->first_block;
    bool is_near = d->near_block == block && d->near_begin <= at;
    int32_t k = is_near ? d->near : block;
    size_t begin = is_near ? d->near_begin : 0;
    for (; d->stretches[k].end <= at; k = d->stretches[k].next) begin = d->stretches[k].end;
    if (begin < at) {
        WF_TRY(
            WFI_GROW(d->p->ctx, d->stretches, d->n_stretches, d->stretch_capacity, "dependencies"));
        stretch *first = &d->stretches[k];
        k = d->n_stretches++;
        d->stretches[k] = *first;
        first->end = at;
        first->next = k;
    }
    *index_out = d->near = k;
    d->near_block = block;
    d->near_begin = at;
    return WF_OK;
}

/* The stretches of a reference: from the first on, to the one that ends where it does. */
static wf_status find_stretches(dependence *d, const wfi_reference *r, int32_t *first_out) {
    int32_t ignored;
    WF_TRY(cut(d, r->block, r->offset, first_out));
    if (d->stretches[*first_out].end == r->offset + r->bytes) return WF_OK;
    return cut(d, r->block, r->offset + r->bytes, &ignored);
}

static wf_status add_candidate(dependence *d, int32_t i) {
    if (i < 0) return WF_OK;
    for (int32_t k = 0; k < d->n_candidates; k++)
        if (d->candidates[k] == i) return WF_OK;
    WF_TRY(
        WFI_GROW(d->p->ctx, d->candidates, d->n_candidates, d->candidate_capacity, "dependencies"));
    int32_t k = d->n_candidates++; /* kept in descending order */
    for (; k > 0 && d->candidates[k - 1] < i; k--) d->candidates[k] = d->candidates[k - 1];
    d->candidates[k] = i;
    return WF_OK;
}

static int32_t next_stretch(const dependence *d, const wfi_reference *r, int32_t at) {
    bool is_last = d->stretches[at].end >= r->offset + r->bytes;
    return is_last ? -1 : d->stretches[at].next;
}

static wf_status collect(dependence *d, int32_t i) {
    wfi_instruction *now = &d->p->instructions[i];
    d->n_candidates = 0;
    for (int32_t k = 0; k < now->n_depends; k++) WF_TRY(add_candidate(d, now->depends[k]));
    for (int32_t k = 0; k < now->n_references; k++) {
        const wfi_reference *r = &now->references[k];
        int32_t first;
        if (!r->bytes) continue;
        WF_TRY(find_stretches(d, r, &first));
        for (int32_t at = first; at >= 0; at = next_stretch(d, r, at)) {
            WF_TRY(add_candidate(d, d->stretches[at].writer));
            for (int s = 0; s < WFI_N_STREAMS && r->access & WFI_WRITE; s++)
                WF_TRY(add_candidate(d, d->stretches[at].reader[s]));
        }
    }
    for (int32_t k = 0; k < now->n_references; k++) {
        const wfi_reference *r = &now->references[k];
        int32_t first;
        if (!r->bytes) continue;
        WF_TRY(find_stretches(d, r, &first));
        for (int32_t at = first; at >= 0; at = next_stretch(d, r, at)) {
            stretch *h = &d->stretches[at];
            if (!(r->access & WFI_WRITE)) h->reader[now->stream] = i;
            for (int s = 0; s < WFI_N_STREAMS && r->access & WFI_WRITE; s++) h->reader[s] = -1;
            if (r->access & WFI_WRITE) h->writer = i;
        }
    }
    return WF_OK;
}

static void join(int32_t *clock, const int32_t *other) {
    for (int s = 0; s < WFI_N_STREAMS; s++)
        if (other[s] > clock[s]) clock[s] = other[s];
}

static int32_t *clock_of(const dependence *d, int32_t i) {
    return d->clock + (size_t)(i - d->first) * WFI_N_STREAMS;
}

static wf_status reduce(dependence *d, int32_t i) {
    wf_program *p = d->p;
    wfi_instruction *now = &p->instructions[i];
    int32_t *clock = clock_of(d, i), *last = &d->last[now->stream];
    if (*last >= 0)
        memcpy(clock, clock_of(d, *last), WFI_N_STREAMS * sizeof *clock);
    else
        memset(clock, 0, WFI_N_STREAMS * sizeof *clock);
    now->position = *last < 0 ? 0 : p->instructions[*last].position + 1;
    *last = i;
    int32_t n = 0;
    for (int32_t k = 0; k < d->n_candidates; k++) {
        const wfi_instruction *other = &p->instructions[d->candidates[k]];
        if (clock[other->stream] > other->position) continue; /* implied */
        join(clock, clock_of(d, d->candidates[k]));
        d->candidates[n++] = d->candidates[k];
    }
    clock[now->stream] = now->position + 1;
    now->depends = wfi_pool_alloc(&p->pool, (size_t)n, sizeof *now->depends);
    if (!now->depends) return WF_NO_MEMORY;
    if (n) memcpy(now->depends, d->candidates, (size_t)n * sizeof *now->depends);
    now->n_depends = n;
    return WF_OK;
}

static wf_status list_streams(wf_program *p) {
    for (int32_t i = 0; i < p->n_instructions; i++)
        p->ranks[p->instructions[i].rank].n_stream[p->instructions[i].stream]++;
    for (int32_t k = 0; k < p->n_lowered; k++)
        for (int s = 0; s < WFI_N_STREAMS; s++) {
            int32_t r = p->lowered[k];
            size_t n = (size_t)p->ranks[r].n_stream[s];
            p->ranks[r].stream[s] = wfi_pool_alloc(&p->pool, n, sizeof(int32_t));
            if (!p->ranks[r].stream[s]) return WF_NO_MEMORY;
        }
    for (int32_t i = 0; i < p->n_instructions; i++) {
        const wfi_instruction *now = &p->instructions[i];
        p->ranks[now->rank].stream[now->stream][now->position] = i;
    }
    return WF_OK;
}

/* An array of at least n elements, with any content. */
#define MAKE_ROOM(d, array, n, capacity)                                                           \
    make_room((d)->p->ctx, (void **)&(array), (size_t)(n), &(capacity), sizeof *(array))

static wf_status make_room(wf_context *ctx, void **array, size_t n, size_t *capacity,
                           size_t elem_bytes) {
    if (*array && n <= *capacity) return WF_OK;
    wfi_free(ctx, *array);
    *array = wfi_alloc(ctx, n, elem_bytes, "dependencies");
    *capacity = n;
    return *array ? WF_OK : WF_NO_MEMORY;
}

/* Finds the dependencies of one rank's instructions, from `first` to *end_out. */
static wf_status depend_rank(dependence *d, int32_t first, int32_t *end_out) {
    const wf_program *p = d->p;
    const wfi_rank *rank = &p->ranks[p->instructions[first].rank];
    int32_t end = first;
    while (end < p->n_instructions && p->instructions[end].rank == p->instructions[first].rank)
        end++;
    *end_out = end;
    d->first = first;
    d->first_block = rank->first_block;
    d->near_block = -1;
    d->n_stretches = rank->end_block - rank->first_block;
    WF_TRY(MAKE_ROOM(d, d->stretches, d->n_stretches, d->stretch_capacity));
    WF_TRY(MAKE_ROOM(d, d->clock, (end - first) * WFI_N_STREAMS, d->clock_capacity));
    /* no reader or writer; no end */
    memset(d->stretches, -1, (size_t)d->n_stretches * sizeof *d->stretches);
    memset(d->last, -1, sizeof d->last);
    for (int32_t i = first; i < end; i++) {
        WF_TRY(collect(d, i));
        WF_TRY(reduce(d, i));
    }
    return WF_OK;
}

wf_status wfi_program_depend(wf_program *p) {
    dependence d = {.p = p};
    wf_status status = WF_OK;
    for (int32_t i = 0; i < p->n_instructions && status == WF_OK;) status = depend_rank(&d, i, &i);
    wfi_free(p->ctx, d.stretches);
    wfi_free(p->ctx, d.clock);
    wfi_free(p->ctx, d.candidates);
    return status == WF_OK ? list_streams(p) : status;
}
