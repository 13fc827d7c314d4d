/* The host memory and the traffic of workers and servers, as the plan counts them. */
#include "workers/run.h"

static bool are_processes(const wf_workers *w) {
    return w->job || w->config.plan_only == 2;
}

static size_t of_local(const wf_workers *w, int rank) {
    size_t n = wfi_image_bytes(&w->vector, WFI_IMAGE_PARAMETERS);
    int n_workers = wfi_workers_first(w, rank + 1) - wfi_workers_first(w, rank);
    size_t states = n_workers > 1 ? wfi_image_bytes(&w->vector, WFI_IMAGE_STATES) : 0;
    /* Threads share the common parameters and the momentum. */
    size_t common = are_processes(w) || !rank ? 2 * n : 0;
    return common +
           (size_t)n_workers * (wfi_round_up(n, WFI_ALIGN_BYTES) + states +
                                wfi_round_up(wfi_vector_buffer_bytes(&w->vector), WFI_ALIGN_BYTES));
}

static size_t bytes_to(const wf_workers *w, int server) {
    return wfi_message_bytes(w, server) + (server ? 0 : wfi_asking_bytes(w));
}

/* A worker on the server's rank shares its messages with it. */
static size_t of_messages(const wf_workers *w, int rank) {
    size_t bytes = 0;
    for (int worker = 0; worker < w->n_workers; worker++)
        for (int k = 0; k < w->n_servers; k++) {
            bool is_mine = wfi_workers_rank_of(w, worker) == rank;
            bool serves = are_processes(w) && wfi_workers_server_rank(w, k) == rank;
            bytes += is_mine || serves ? bytes_to(w, k) : 0;
        }
    return bytes;
}

static size_t of_servers(const wf_workers *w, int rank) {
    size_t bytes = 0, n_vectors = 1 + (size_t)wfi_recipe_n_states(&w->recipe);
    for (int k = 0; k < w->n_servers; k++) {
        size_t n = wfi_vector_cut(&w->vector, w->n_servers, k + 1) -
                   wfi_vector_cut(&w->vector, w->n_servers, k);
        if (wfi_workers_server_rank(w, k) != rank) continue;
        bytes += n_vectors * n * sizeof(float) + (k ? 0 : wfi_vector_buffer_bytes(&w->vector));
    }
    return bytes;
}

size_t wfi_workers_host_bytes(const wf_workers *w, int rank) {
    if (w->recipe.update == WF_UPDATE_LOCAL) return of_local(w, rank);
    return of_messages(w, rank) + of_servers(w, rank);
}

/* A worker's messages to servers on other ranks, or the answers of a rank's servers to them. */
static uint64_t sent_async(const wf_workers *w, int rank) {
    uint64_t bytes = 0;
    for (int worker = 0; worker < w->n_workers; worker++)
        for (int k = 0; k < w->n_servers; k++) {
            bool is_mine = wfi_workers_rank_of(w, worker) == rank;
            if (is_mine != (wfi_workers_server_rank(w, k) == rank)) bytes += bytes_to(w, k);
        }
    return bytes;
}

uint64_t wfi_local_average_bytes(const wf_workers *w) {
    const wf_graph *g = w->vector.program->graph;
    uint64_t n = (uint64_t)w->n_ranks, bytes = wfi_image_bytes(&w->vector, WFI_IMAGE_PARAMETERS);
    for (int32_t v = 0; v < g->n_values; v++)
        if (wfi_local_averages(&g->values[v])) bytes += wfi_value_bytes(g, v);
    return 2 * (n - 1) * (bytes / n);
}

uint64_t wfi_workers_sent_bytes(const wf_workers *w, int rank) {
    if (w->recipe.update != WF_UPDATE_LOCAL) return sent_async(w, rank);
    return wfi_local_average_bytes(w) / (uint64_t)w->recipe.local_steps;
}
