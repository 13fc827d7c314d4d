/* State between runs: rank 0's trainer has it, and gives it to workers and servers before a run. */
#include "api/share.h"
#include "workers/run.h"

#include <string.h>

static wf_trainer *root(const wf_workers *w) {
    return wfi_workers_is_root(w) ? w->ranks->trainer : NULL;
}

wf_trainer *wf_workers_trainer(wf_workers *w) {
    return root(w);
}

wf_status wfi_workers_tell(wf_workers *w, int from, void *data, size_t bytes) {
    if (!w->job) return WF_OK;
    return wf_group_broadcast(w->world, data, data, (int64_t)(bytes / 4), WF_I32, from, NULL);
}

/* Server 0 goes on counting, wherever it is. */
wf_status wfi_workers_tell_staleness(wf_workers *w, int from) {
    int64_t n = (int64_t)w->n_staleness;
    WF_TRY(wfi_workers_tell(w, from, &n, sizeof n));
    for (w->n_staleness = 0; (int64_t)w->n_staleness < n; w->n_staleness++)
        WF_TRY(WFI_GROW(w->ctx, w->staleness, w->n_staleness, w->staleness_capacity, "staleness"));
    return wfi_workers_tell(w, from, w->staleness, w->n_staleness * sizeof *w->staleness);
}

/* ---- weights of all workers' trainers ---- */

static wf_status copy_here(wf_workers *w) {
    for (int k = 1; k < w->n_here; k++)
        WF_TRY(wf_trainer_copy_weights(w->ranks[k].trainer, w->ranks->trainer, NULL));
    return WF_OK;
}

/* Processes without a trainer take part, too. */
static wf_status broadcast_tensor(wf_workers *w, const wfi_value *value, size_t bytes) {
    int64_t n_words = (int64_t)((bytes + 3) / 4);
    wf_trainer *own = w->n_here ? w->ranks->trainer : NULL;
    char *data = wfi_alloc(w->ctx, (size_t)n_words, sizeof(int32_t), value->name);
    if (!data) return WF_NO_MEMORY;
    wf_status status =
        wfi_workers_is_root(w) ? wf_trainer_read(own, value->name, data, bytes) : WF_OK;
    if (status == WF_OK) status = wfi_workers_tell(w, 0, data, (size_t)n_words * sizeof(int32_t));
    if (status == WF_OK && own && !wfi_workers_is_root(w))
        status = wf_trainer_write(own, value->name, data, bytes);
    wfi_free(w->ctx, data);
    return status;
}

/* Copies the weights once after the state has changed, because messages have only trained
 * parameters. */
wf_status wfi_workers_replicate_weights(wf_workers *w) {
    const wf_graph *g = w->vector.program->graph;
    if (w->is_replicated) return WF_OK;
    if (!w->job) WF_TRY(copy_here(w));
    for (int32_t v = 0; v < g->n_values && w->job; v++)
        if (wfi_value_is_state(&g->values[v]))
            WF_TRY(broadcast_tensor(w, &g->values[v], wfi_value_bytes(g, v)));
    w->is_replicated = true;
    return WF_OK;
}

/* ---- a server's range ---- */

static wfi_server *find_server(const wf_workers *w, int number) {
    for (int k = 0; k < w->n_servers_here; k++)
        if (w->servers[k].number == number) return &w->servers[k];
    return NULL;
}

/* A transfer of one vector of a server: the parameters, a state, or the buffers, which server 0
 * has. `to_server`: from rank 0's trainer, otherwise to it. */
typedef struct exchange {
    int server;
    wfi_image image;
    int state;
    bool to_server;
} exchange;

static void *vector_at(const wfi_server *s, const exchange *x) {
    if (x->image == WFI_IMAGE_BUFFERS) return s->buffers;
    if (x->image == WFI_IMAGE_PARAMETERS) return s->parameters;
    return s->states + (size_t)x->state * (s->end - s->first);
}

wf_status wfi_workers_pass(wf_workers *w, int from, int to, void *data, size_t bytes) {
    int own = w->job ? wf_job_rank(w->job) : 0;
    int64_t n_words = (int64_t)(bytes / 4);
    if (!w->job || from == to) return WF_OK;
    if (own == from) return wf_group_send(w->world, data, n_words, WF_I32, to, NULL);
    return own == to ? wf_group_recv(w->world, data, n_words, WF_I32, from, NULL) : WF_OK;
}

static wf_status exchange_vector(wf_workers *w, exchange x) {
    wfi_server *s = find_server(w, x.server);
    const wfi_vector *l = &w->vector;
    bool is_root = wfi_workers_is_root(w), is_bytes = x.image == WFI_IMAGE_BUFFERS;
    size_t first = is_bytes ? 0 : wfi_vector_cut(l, w->n_servers, x.server),
           end = is_bytes ? wfi_vector_buffer_bytes(l)
                          : wfi_vector_cut(l, w->n_servers, x.server + 1),
           bytes = (end - first) * (is_bytes ? 1 : sizeof(float));
    int server = wfi_workers_server_rank(w, x.server);
    if (!bytes || (!s && !is_root)) return WF_OK;
    void *own = s ? NULL : wfi_alloc(w->ctx, bytes, 1, "a vector"), *data = own;
    if (s) data = vector_at(s, &x);
    if (!data) return WF_NO_MEMORY;
    wf_status status = WF_OK;
    if (is_root && x.to_server)
        status = wfi_image_move(root(w), l, x.image, x.state, first, end, data, true);
    if (status == WF_OK)
        status =
            wfi_workers_pass(w, x.to_server ? 0 : server, x.to_server ? server : 0, data, bytes);
    if (status == WF_OK && is_root && !x.to_server)
        status = wfi_image_move(root(w), l, x.image, x.state, first, end, data, false);
    wfi_free(w->ctx, own);
    return status;
}

static wf_status exchange_all(wf_workers *w, bool to_server) {
    int n_states = wfi_recipe_n_states(&w->recipe);
    for (int k = 0; k < w->n_servers; k++) {
        WF_TRY(exchange_vector(w, (exchange){k, WFI_IMAGE_PARAMETERS, 0, to_server}));
        for (int state = 0; state < n_states; state++)
            WF_TRY(exchange_vector(w, (exchange){k, WFI_IMAGE_STATES, state, to_server}));
    }
    return exchange_vector(w, (exchange){0, WFI_IMAGE_BUFFERS, 0, to_server});
}

wf_status wfi_workers_replicate(wf_workers *w) {
    WF_TRY(wfi_workers_replicate_weights(w));
    return exchange_all(w, true);
}

wf_status wfi_workers_collect(wf_workers *w) {
    WF_TRY(exchange_all(w, false));
    if (wfi_workers_is_root(w)) wfi_trainer_count_to(root(w), w->n_steps);
    return WF_OK;
}
