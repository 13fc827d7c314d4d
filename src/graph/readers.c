/* An index of readers by value: counted, then filled. */
#include "graph/readers.h"

/* Adds one to to[value] for each input that a live node reads. */
static void count(const wf_graph *g, int32_t *to) {
    for (int32_t n = 0; n < g->n_nodes; n++)
        for (int i = 0; i < g->nodes[n].n_in && !g->nodes[n].dead; i++)
            if (g->nodes[n].in[i] >= 0) to[g->nodes[n].in[i]]++;
}

/* From the last to the first, so that first[v] ends where v's readers begin. */
static void fill(const wf_graph *g, const wfi_readers *readers) {
    for (int32_t n = g->n_nodes - 1; n >= 0; n--)
        for (int i = 0; i < g->nodes[n].n_in && !g->nodes[n].dead; i++)
            if (g->nodes[n].in[i] >= 0) readers->nodes[--readers->first[g->nodes[n].in[i]]] = n;
}

wf_status wfi_readers_find(const wf_graph *g, wfi_readers *readers_out) {
    wfi_readers readers;
    size_t n_values = (size_t)g->n_values;
    readers.first = wfi_alloc(g->ctx, n_values + 1, sizeof *readers.first, "readers");
    if (!readers.first) return WF_NO_MEMORY;
    count(g, readers.first);
    for (int32_t v = 0; v < g->n_values; v++) readers.first[v + 1] += readers.first[v];
    readers.nodes =
        wfi_alloc(g->ctx, (size_t)readers.first[n_values], sizeof *readers.nodes, "readers");
    if (!readers.nodes) {
        wfi_free(g->ctx, readers.first);
        return WF_NO_MEMORY;
    }
    fill(g, &readers);
    *readers_out = readers;
    return WF_OK;
}

void wfi_readers_release(wf_context *ctx, wfi_readers *readers) {
    wfi_free(ctx, readers->first);
    wfi_free(ctx, readers->nodes);
    *readers = (wfi_readers){0};
}
