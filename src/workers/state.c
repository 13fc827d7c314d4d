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
    if (status == WF_OK)
        status = wf_group_broadcast(w->world, data, data, n_words, WF_I32, 0, NULL);
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

/* A transfer of one vector of a server: the parameters, or a state. `to_server`: from rank 0's
 * trainer, otherwise to it. */
typedef struct exchange {
    int server;
    wfi_image image;
    int state;
    bool to_server;
} exchange;

static float *vector_at(const wfi_server *s, const exchange *x) {
    if (x->image == WFI_IMAGE_PARAMETERS) return s->parameters;
    return s->states + (size_t)x->state * (s->end - s->first);
}

static wf_status with_trainer(const wf_workers *w, const exchange *x, size_t first, size_t end,
                              float *data) {
    const wf_trainer *t = root(w);
    return x->to_server ? wfi_image_read(t, &w->vector, x->image, x->state, first, end, data)
                        : wfi_image_write(t, &w->vector, x->image, x->state, first, end, data);
}

/* Between two processes; in pieces of no more than a message. */
static wf_status with_peer(wf_workers *w, const exchange *x, wfi_server *s, size_t first,
                           size_t end) {
    int server = wfi_workers_server_rank(w, x->server), peer = s ? 0 : server;
    bool sends = x->to_server == !s;
    float *data =
        s ? vector_at(s, x) : wfi_alloc(w->ctx, end - first + 1, sizeof *data, "a vector");
    if (!data) return WF_NO_MEMORY;
    wf_status status = !s && sends ? with_trainer(w, x, first, end, data) : WF_OK;
    if (status == WF_OK)
        status = sends ? wf_group_send(w->world, data, (int64_t)(end - first), WF_F32, peer, NULL)
                       : wf_group_recv(w->world, data, (int64_t)(end - first), WF_F32, peer, NULL);
    if (status == WF_OK && !s && !sends) status = with_trainer(w, x, first, end, data);
    if (!s) wfi_free(w->ctx, data);
    return status;
}

static wf_status exchange_vector(wf_workers *w, const exchange *x) {
    wfi_server *s = find_server(w, x->server);
    size_t first = wfi_vector_cut(&w->vector, w->n_servers, x->server),
           end = wfi_vector_cut(&w->vector, w->n_servers, x->server + 1);
    if (s && wfi_workers_is_root(w)) return with_trainer(w, x, first, end, vector_at(s, x));
    return s || wfi_workers_is_root(w) ? with_peer(w, x, s, first, end) : WF_OK;
}

/* Server 0 has the buffers. */
static wf_status exchange_buffers(wf_workers *w, bool to_server) {
    wfi_server *s = find_server(w, 0);
    size_t bytes = wfi_vector_buffer_bytes(&w->vector);
    int server = wfi_workers_server_rank(w, 0);
    char *data = s ? s->buffers : NULL, *own = NULL;
    if (!bytes || (!s && !wfi_workers_is_root(w))) return WF_OK;
    if (!s && !(data = own = wfi_alloc(w->ctx, bytes, 1, "buffers"))) return WF_NO_MEMORY;
    wf_status status = WF_OK;
    bool is_here = s && wfi_workers_is_root(w), sends = to_server == wfi_workers_is_root(w);
    if (wfi_workers_is_root(w) && to_server)
        status = wfi_image_read(root(w), &w->vector, WFI_IMAGE_BUFFERS, 0, 0, bytes, data);
    if (status == WF_OK && !is_here)
        status =
            sends
                ? wf_group_send(w->world, data, (int64_t)(bytes / 4), WF_I32, s ? 0 : server, NULL)
                : wf_group_recv(w->world, data, (int64_t)(bytes / 4), WF_I32, s ? 0 : server, NULL);
    if (status == WF_OK && wfi_workers_is_root(w) && !to_server)
        status = wfi_image_write(root(w), &w->vector, WFI_IMAGE_BUFFERS, 0, 0, bytes, data);
    wfi_free(w->ctx, own);
    return status;
}

static wf_status exchange_all(wf_workers *w, bool to_server) {
    int n_states = wfi_recipe_n_states(&w->recipe);
    for (int k = 0; k < w->n_servers; k++) {
        WF_TRY(exchange_vector(w, &(exchange){k, WFI_IMAGE_PARAMETERS, 0, to_server}));
        for (int state = 0; state < n_states; state++)
            WF_TRY(exchange_vector(w, &(exchange){k, WFI_IMAGE_STATES, state, to_server}));
    }
    return exchange_buffers(w, to_server);
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
