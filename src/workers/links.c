/* The links of workers and servers: groups between processes, and channels. */
#include "workers/norm.h"

/* ---- groups ---- */

static bool serves(const wf_workers *w, int rank) {
    bool is_one = false;
    for (int k = 0; k < w->n_servers; k++) is_one |= wfi_workers_server_rank(w, k) == rank;
    return is_one;
}

wf_status wfi_workers_create_groups(wf_workers *w) {
    wf_group_config config = WF_GROUP_CONFIG_INIT;
    int own = wf_job_rank(w->job);
    config.timeout_ms = w->timeout_ms;
    WF_TRY(wf_group_create(w->job, &config, &w->world));
    if (!wfi_workers_is_async(w)) return WF_OK;
    w->pairs = wfi_pool_array(&w->pool, (size_t)w->n_workers, sizeof(wf_group *), "groups");
    WF_TRY(wfi_pool_status(&w->pool));
    for (int k = 0; k < w->n_workers; k++) {
        bool is_in = serves(w, own) || wfi_workers_rank_of(w, k) == own;
        WF_TRY(wf_group_split(w->world, is_in ? 0 : -1, own, &config, &w->pairs[k]));
    }
    return wf_group_split(w->world, serves(w, own) ? 0 : -1, own, &config, &w->among_servers);
}

/* Returns the rank's number in a worker's group. */
static int rank_in_pair(const wf_workers *w, int worker, int rank) {
    int n = 0;
    for (int r = 0; r < rank; r++) n += serves(w, r) || wfi_workers_rank_of(w, worker) == r;
    return n;
}

/* ---- channels ---- */

/* Opens the channel of `rank` to `peer`. */
static wf_status open_channel(wf_workers *w, wfi_channel *c, size_t bytes, int worker, int rank,
                              int peer) {
    bool is_remote = w->job && peer != rank;
    c->bytes = bytes;
    c->crosses = peer != rank;
    w->host_bytes[rank] += bytes;
    if (!is_remote) {
        c->buffer = wfi_pool_array(&w->pool, bytes, 1, "messages");
        return wfi_pool_status(&w->pool);
    }
    c->group = w->pairs[worker];
    c->peer = rank_in_pair(w, worker, peer);
    return wf_group_alloc(c->group, bytes, &c->buffer);
}

static void close_channel(wfi_channel *c) {
    (void)wfi_channel_settle(c); /* after a failure messages may be under way: they fail, too */
    if (c->group) wf_group_free(c->group, c->buffer);
}

static wf_status open_worker(wf_workers *w, wfi_one_worker *one, int rank) {
    size_t n = (size_t)w->n_servers;
    one->pushing = wfi_pool_array(&w->pool, n, sizeof *one->pushing, "channels");
    one->has_answer = wfi_pool_array(&w->pool, n, sizeof *one->has_answer, "channels");
    WF_TRY(wfi_pool_status(&w->pool));
    WF_TRY(open_channel(w, &one->asking, wfi_asking_bytes(w), one->number, rank,
                        wfi_workers_server_rank(w, 0)));
    for (int k = 0; k < w->n_servers; k++)
        WF_TRY(open_channel(w, &one->pushing[k], wfi_message_bytes(w, k), one->number, rank,
                            wfi_workers_server_rank(w, k)));
    return WF_OK;
}

static wf_status open_served(wfi_server *s, int worker) {
    wf_workers *w = s->all;
    wfi_served *served = &s->served[worker];
    wfi_one_worker *one = wfi_workers_find(w, worker);
    served->asking = one ? &one->asking : &served->own[0];
    served->pushing = one ? &one->pushing[s->number] : &served->own[1];
    if (one) return WF_OK;
    int peer = wfi_workers_rank_of(w, worker);
    if (!s->number)
        WF_TRY(open_channel(w, served->asking, wfi_asking_bytes(w), worker, s->rank, peer));
    return open_channel(w, served->pushing, wfi_message_bytes(w, s->number), worker, s->rank, peer);
}

static wf_status create_server(wf_workers *w, int number) {
    wfi_server *s = &w->servers[w->n_servers_here++];
    *s = (wfi_server){.all = w, .number = number, .rank = wfi_workers_server_rank(w, number)};
    s->first = wfi_vector_cut(&w->vector, w->n_servers, number);
    s->end = wfi_vector_cut(&w->vector, w->n_servers, number + 1);
    size_t n = s->end - s->first, n_states = (size_t)wfi_recipe_n_states(&w->recipe);
    s->parameters = wfi_pool_array(&w->pool, n + 1, sizeof *s->parameters, "a server's parameters");
    s->states = wfi_pool_array(&w->pool, n_states * n + 1, sizeof *s->states, "a server's state");
    s->served = wfi_pool_array(&w->pool, (size_t)w->n_workers, sizeof *s->served, "workers");
    size_t n_buffers = number ? 0 : wfi_vector_buffer_bytes(&w->vector);
    s->buffers = wfi_pool_array(&w->pool, n_buffers + 1, 1, "a server's buffers");
    WF_TRY(wfi_pool_status(&w->pool));
    w->host_bytes[s->rank] += (n_states + 1) * n * sizeof(float) + n_buffers;
    for (int k = 0; k < w->n_workers; k++) WF_TRY(open_served(s, k));
    return WF_OK;
}

wf_status wfi_workers_create_servers(wf_workers *w) {
    size_t n_squares = wfi_norm_blocks(&w->vector, wfi_vector_n(&w->vector));
    w->servers = wfi_pool_array(&w->pool, (size_t)w->n_servers, sizeof *w->servers, "servers");
    w->takes_part =
        wfi_pool_array(&w->pool, (size_t)w->n_workers, sizeof *w->takes_part, "workers");
    for (int k = 0; k < 2; k++)
        w->squares[k] = wfi_pool_array(&w->pool, n_squares + 1, sizeof(double), "sums of squares");
    WF_TRY(wfi_pool_status(&w->pool));
    for (int k = 0; k < w->n_here; k++)
        for (int i = 0; i < w->ranks[k].n; i++)
            WF_TRY(open_worker(w, &w->ranks[k].workers[i], w->ranks[k].rank));
    for (int k = 0; k < w->n_servers; k++)
        if (wfi_workers_is_here(w, wfi_workers_server_rank(w, k))) WF_TRY(create_server(w, k));
    return WF_OK;
}

void wfi_workers_destroy_worker(wf_workers *w, wfi_one_worker *one) {
    close_channel(&one->asking);
    for (int k = 0; k < w->n_servers && one->pushing; k++) close_channel(&one->pushing[k]);
}

void wfi_workers_destroy_server(wfi_server *s) {
    wf_workers *w = s->all;
    for (int k = 0; k < w->n_workers && s->served; k++)
        for (int i = 0; i < 2; i++) close_channel(&s->served[k].own[i]);
}

void wfi_workers_destroy_groups(wf_workers *w) {
    wf_group_destroy(w->among_servers);
    for (int k = 0; k < w->n_workers && w->pairs; k++) wf_group_destroy(w->pairs[k]);
    wf_group_destroy(w->world);
}
