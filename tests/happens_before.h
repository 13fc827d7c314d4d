/* What happens before what, by brute force: a search along the edges that the program lists.
 * The checker's clocks (layout/order.c) are compared with it, and it decides in their place
 * whether a broken program races.
 *
 * Edges: from each instruction of a stream to the next; from a dependency to who depends on it.
 * A send and its receive run together, and so do the members of a collective: the k-th that a rank
 * sends to another with the k-th that this one receives from it, the k-th of a group on each of
 * its ranks.
 */
#pragma once

#include "program/program.h"
#include "test.h"

typedef struct edge {
    int32_t to, next; /* next: edge of the same node, or -1 */
} edge;

typedef struct happens_before {
    int32_t n, n_edges;
    int32_t *node;  /* [n] instructions that run together are one node: the least of them */
    int32_t *first; /* [n] edge, or -1 */
    edge *edges;
    bool *reaches; /* [n][n] by nodes: along one edge or more */
} happens_before;

/* How many earlier ones of the stream do the same between the same ranks. */
static inline int32_t hb_count_earlier(const wf_program *p, const wfi_instruction *now) {
    int32_t n = 0;
    for (int32_t k = 0; k < now->position; k++) {
        const wfi_instruction *other = &p->instructions[p->ranks[now->rank].stream[now->stream][k]];
        n += other->peer == now->peer && other->group == now->group;
    }
    return n;
}

static inline bool hb_together(const wf_program *p, const wfi_instruction *a,
                               const wfi_instruction *b) {
    bool is_pair =
        a->kind == WFI_SEND && b->kind == WFI_RECEIVE && a->peer == b->rank && b->peer == a->rank;
    bool is_collective = a->stream == WFI_STREAM_REDUCE && b->stream == WFI_STREAM_REDUCE &&
                         a->group == b->group && a->rank != b->rank;
    return (is_pair || is_collective) && hb_count_earlier(p, a) == hb_count_earlier(p, b);
}

static inline void hb_add_edge(happens_before *hb, int32_t from, int32_t to) {
    from = hb->node[from];
    hb->edges[hb->n_edges] = (edge){hb->node[to], hb->first[from]};
    hb->first[from] = hb->n_edges++;
}

static inline void hb_search(happens_before *hb, int32_t from, int32_t *stack) {
    bool *reached = hb->reaches + (size_t)from * (size_t)hb->n;
    int32_t n_stack = 0;
    stack[n_stack++] = from;
    while (n_stack > 0)
        for (int32_t e = hb->first[stack[--n_stack]]; e >= 0; e = hb->edges[e].next) {
            if (reached[hb->edges[e].to]) continue;
            reached[hb->edges[e].to] = true;
            stack[n_stack++] = hb->edges[e].to;
        }
}

static inline happens_before hb_find(const wf_program *p) {
    size_t n = (size_t)p->n_instructions, n_most = n;
    for (size_t i = 0; i < n; i++) n_most += (size_t)p->instructions[i].n_depends;
    happens_before hb = {.n = p->n_instructions};
    hb.node = test_malloc(n * sizeof *hb.node);
    hb.first = test_malloc(n * sizeof *hb.first);
    hb.edges = test_malloc(n_most * sizeof *hb.edges);
    hb.reaches = test_calloc(n * n, sizeof *hb.reaches);
    int32_t *stack = test_malloc(n * sizeof *stack);
    for (int32_t i = 0; i < hb.n; i++) {
        hb.first[i] = -1;
        hb.node[i] = i;
        for (int32_t k = 0; k < i && hb.node[i] == i; k++)
            if (hb_together(p, &p->instructions[i], &p->instructions[k]) ||
                hb_together(p, &p->instructions[k], &p->instructions[i]))
                hb.node[i] = hb.node[k];
    }
    for (int32_t i = 0; i < hb.n; i++) {
        const wfi_instruction *now = &p->instructions[i];
        if (now->position > 0)
            hb_add_edge(&hb, p->ranks[now->rank].stream[now->stream][now->position - 1], i);
        for (int32_t d = 0; d < now->n_depends; d++) hb_add_edge(&hb, now->depends[d], i);
    }
    for (int32_t i = 0; i < hb.n; i++)
        if (hb.node[i] == i) hb_search(&hb, i, stack);
    test_free(stack);
    return hb;
}

static inline void hb_free(happens_before *hb) {
    test_free(hb->node);
    test_free(hb->first);
    test_free(hb->edges);
    test_free(hb->reaches);
}

/* Instructions that run together happen before each other. */
static inline bool hb_is_before(const happens_before *hb, int32_t a, int32_t b) {
    if (a == b) return false;
    int32_t x = hb->node[a], y = hb->node[b];
    return x == y || hb->reaches[(size_t)x * (size_t)hb->n + (size_t)y];
}
