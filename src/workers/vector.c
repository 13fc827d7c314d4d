#include "workers/vector.h"

static void fill(wfi_vector *l) {
    const wf_graph *g = l->program->graph;
    for (int32_t u = 0; u < l->n_units; u++) {
        l->first[u + 1] = l->first[u] + g->units[u].trained_bytes / sizeof(float);
        l->first_buffer[u + 1] = l->first_buffer[u] + g->units[u].buffer_bytes;
    }
    for (int32_t s = 0; s < l->n_stats; s++) {
        size_t n = (size_t)wf_shape_n_elem(&g->values[g->stats[s].mean].shape);
        l->stats[s] = (wfi_vector_stat){l->n_stat_floats, n};
        l->n_stat_floats += 2 * n;
    }
}

wf_status wfi_vector_create(wf_context *ctx, const wf_program *program, wfi_vector *l) {
    const wf_graph *g = program->graph;
    *l = (wfi_vector){.program = program,
                      .n_units = g->n_units,
                      .n_stats = g->n_stats,
                      .n_micro = program->recipe.n_micro};
    wfi_pool_init(&l->pool, ctx);
    l->first = wfi_pool_alloc(&l->pool, (size_t)g->n_units + 1, sizeof *l->first);
    l->first_buffer = wfi_pool_alloc(&l->pool, (size_t)g->n_units + 1, sizeof *l->first_buffer);
    l->stats = wfi_pool_alloc(&l->pool, (size_t)g->n_stats + 1, sizeof *l->stats);
    if (!l->first || !l->first_buffer || !l->stats) return WF_NO_MEMORY;
    fill(l);
    return WF_OK;
}

void wfi_vector_release(wfi_vector *l) {
    if (l->program) wfi_pool_release(&l->pool);
    *l = (wfi_vector){0};
}

size_t wfi_vector_cut(const wfi_vector *l, int n_servers, int k) {
    size_t n = wfi_vector_n(l), at = n / (size_t)n_servers * (size_t)k;
    int32_t u = 0;
    if (k >= n_servers) return n;
    while (u + 1 < l->n_units && l->first[u + 1] <= at) u++;
    return at - (at - l->first[u]) % WFI_NORM_BLOCK_ELEMENTS;
}
