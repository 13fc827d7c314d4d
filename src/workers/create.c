/* Workers and servers on ranks and processes. */
#include "workers/norm.h"

#include "base/env.h"
#include "nn/model.h"

#include <string.h>

int wfi_workers_server_rank(const wf_workers *w, int server) {
    bool is_beside = w->plan->serves_at_workers || !w->plan->n_servers;
    return is_beside ? server : w->n_ranks + server;
}

static int rank_of(const wf_workers *w, int worker) {
    int rank = 0;
    while (wfi_workers_first(w, rank + 1) <= worker) rank++;
    return rank;
}

wfi_one_worker *wfi_workers_find(const wf_workers *w, int number) {
    for (int k = 0; k < w->n_here; k++)
        for (int i = 0; i < w->ranks[k].n; i++)
            if (w->ranks[k].workers[i].number == number) return &w->ranks[k].workers[i];
    return NULL;
}

static bool is_here(const wf_workers *w, int rank) {
    return !w->job || wf_job_rank(w->job) == rank;
}

static bool is_async(const wf_workers *w) {
    return w->recipe.update == WF_UPDATE_ASYNC;
}

/* ---- what the workers are ---- */

static wf_status check(const wf_workers *w, const wf_model *model, const wf_recipe *recipe) {
    int n_job = w->job ? wf_job_n_ranks(w->job) : 0, n_plan = wf_plan_n_ranks(w->plan);
    if (recipe->update == WF_UPDATE_SYNC)
        return wfi_fail(w->ctx, WF_INVALID_ARG,
                        "workers: the recipe has update=sync, which is a trainer's; take "
                        "update=async or update=local");
    if (!w->config.read && !w->config.plan_only)
        return wfi_fail(w->ctx, WF_INVALID_ARG, "workers: config.read is NULL: nothing feeds them");
    if (w->job && n_job != n_plan)
        return wfi_fail(w->ctx, WF_INVALID_ARG, "plan: %s has %d ranks, and the job has %d",
                        wf_plan_text(w->plan), n_plan, n_job);
    if (!is_async(w) && (w->config.record || w->config.replay))
        return wfi_fail(w->ctx, WF_INVALID_ARG,
                        "workers: a record is of update=async; other updates repeat their numbers "
                        "by themselves");
    if (w->config.record && w->config.replay)
        return wfi_fail(w->ctx, WF_INVALID_ARG,
                        "workers: a replay repeats %s, and writes no record of its own",
                        w->config.replay);
    (void)model;
    return WF_OK;
}

/* The plan of one worker. */
static wf_status make_plan(const wf_workers *w, wf_plan **plan_out) {
    WF_TRY(wfi_plan_copy(w->plan, plan_out));
    (*plan_out)->dp = 1;
    (*plan_out)->n_servers = 0;
    (*plan_out)->serves_at_workers = false;
    wfi_free(w->ctx, (*plan_out)->devices);
    (*plan_out)->devices = NULL;
    (*plan_out)->n_devices = 0;
    wf_status status = wfi_plan_complete(*plan_out);
    if (status != WF_OK) wf_plan_destroy(*plan_out);
    return status;
}

/* ---- trainers ---- */

/* Gradients need no optimizer: its state is on the servers, and between runs on rank 0. */
static wf_recipe without_state(const wf_workers *w) {
    wf_recipe recipe = w->own;
    recipe.optimizer = WF_SGD;
    recipe.momentum = recipe.nesterov = 0;
    return recipe;
}

static wf_status create_trainer(wfi_worker_rank *rank, const wf_model *model, const wf_plan *plan,
                                const wfi_device_list *list) {
    wf_workers *w = rank->all;
    const wf_trainer_config defaults = WF_TRAINER_CONFIG_INIT;
    wf_trainer_config config = w->config.trainer ? *w->config.trainer : defaults;
    wfi_device_list own = {.n = 1, .n_places = list->n_places};
    own.kinds[0] = list->kinds[rank->rank];
    own.place[0] = list->place[rank->rank];
    bool is_divided = w->job && !config.devices;
    if (is_divided) own.place[0] = wf_job_local_rank(w->job);
    if (is_divided) own.n_places = wf_job_n_local_ranks(w->job);
    config.devices = NULL;
    config.job = NULL;
    config.trace = config.own_batch = config.forward_only = config.keep_gradients = 0;
    bool is_whole = !is_async(w) || !rank->rank;
    wf_recipe recipe = is_whole ? w->own : without_state(w);
    WF_TRY(wfi_trainer_create_on(w->ctx, model, &recipe, plan, &config, &own,
                                 is_whole ? WF_PROGRAM_TRAIN : WF_PROGRAM_GRADIENT,
                                 &rank->trainer));
    /* WEFT_SLOW_RANK counts the plan's ranks, but each trainer has one rank, number 0. */
    wfi_slow slow = rank->trainer->slow;
    rank->trainer->workers[0].slow_factor = slow.rank == rank->rank ? slow.factor : 1;
    if (is_async(w)) WF_TRY(wf_trainer_prepare_gradients(rank->trainer, w->own.batch));
    return WF_OK;
}

static wf_status create_rank(wf_workers *w, const wf_model *model, const wf_plan *plan,
                             const wfi_device_list *list, int number) {
    wfi_worker_rank *rank = &w->ranks[w->n_here++];
    int first = wfi_workers_first(w, number);
    *rank = (wfi_worker_rank){.all = w, .rank = number};
    rank->n = wfi_workers_first(w, number + 1) - first;
    rank->workers = wfi_alloc(w->ctx, (size_t)rank->n, sizeof *rank->workers, "workers");
    if (!rank->workers) return WF_NO_MEMORY;
    for (int k = 0; k < rank->n; k++) rank->workers[k].number = first + k;
    return create_trainer(rank, model, plan, list);
}

static wf_status create_ranks(wf_workers *w, const wf_model *model, const wf_plan *plan) {
    const char *devices = w->config.trainer ? w->config.trainer->devices : NULL;
    int n_all = wf_plan_n_ranks(w->plan);
    wfi_device_list list;
    WF_TRY(wfi_devices_parse(w->ctx, devices, n_all, &list));
    if (list.n != n_all)
        return wfi_fail(w->ctx, WF_INVALID_ARG, "devices '%s' are %d, but the plan %s has %d ranks",
                        devices, list.n, wf_plan_text(w->plan), n_all);
    w->ranks = wfi_alloc(w->ctx, (size_t)w->n_ranks, sizeof *w->ranks, "ranks");
    w->host_bytes = wfi_alloc(w->ctx, (size_t)n_all, sizeof *w->host_bytes, "ranks");
    if (!w->ranks || !w->host_bytes) return WF_NO_MEMORY;
    for (int r = 0; r < w->n_ranks; r++)
        if (is_here(w, r)) WF_TRY(create_rank(w, model, plan, &list, r));
    return WF_OK;
}

/* What a rank runs, for the plan alone: rank 0 also has the optimizer's state. */
static wf_status create_programs(wf_workers *w, const wf_model *model, const wf_plan *plan) {
    const wfi_backend *backend = wfi_backend_of(&wfi_device_cpu);
    wf_program *whole;
    WF_TRY(wfi_program_create(w->ctx, model, &w->own, plan, backend, WF_PROGRAM_TRAIN, WFI_USE_RUN,
                              NULL, &whole));
    w->programs[0] = whole;
    if (!is_async(w)) return WF_OK;
    WF_TRY(wfi_program_create(w->ctx, model, &w->own, plan, backend, WF_PROGRAM_GRADIENT,
                              WFI_USE_RUN, whole, &w->programs[1]));
    wf_recipe recipe = without_state(w);
    return wfi_program_create(w->ctx, model, &recipe, plan, backend, WF_PROGRAM_GRADIENT,
                              WFI_USE_RUN, NULL, &w->programs[2]);
}

/* A process without workers knows the vector from a program that it does not run. */
static wf_status create_vector(wf_workers *w, const wf_model *model, const wf_plan *plan) {
    if (w->config.plan_only)
        WF_TRY(create_programs(w, model, plan));
    else if (!w->n_here)
        WF_TRY(
            wf_program_create(w->ctx, model, &w->own, plan, WF_PROGRAM_GRADIENT, &w->programs[0]));
    const wf_program *p = w->n_here ? w->ranks->trainer->ready[0]->program : w->programs[0];
    if (p->graph->n_hidden)
        return wfi_fail(w->ctx, WF_UNSUPPORTED,
                        "workers: a recurrent model goes on with its hidden state from batch to "
                        "batch, which only update=sync does");
    return wfi_vector_create(w->ctx, p, &w->vector);
}

/* ---- groups ---- */

static bool serves(const wf_workers *w, int rank) {
    bool is_one = false;
    for (int k = 0; k < w->n_servers; k++) is_one |= wfi_workers_server_rank(w, k) == rank;
    return is_one;
}

static wf_status create_groups(wf_workers *w) {
    wf_group_config config = WF_GROUP_CONFIG_INIT;
    int own = wf_job_rank(w->job);
    config.timeout_ms = w->timeout_ms;
    WF_TRY(wf_group_create(w->job, &config, &w->world));
    if (!is_async(w)) return WF_OK;
    w->pairs = wfi_alloc(w->ctx, (size_t)w->n_workers, sizeof(wf_group *), "groups");
    if (!w->pairs) return WF_NO_MEMORY;
    for (int k = 0; k < w->n_workers; k++) {
        bool is_in = serves(w, own) || rank_of(w, k) == own;
        WF_TRY(wf_group_split(w->world, is_in ? 0 : -1, own, &config, &w->pairs[k]));
    }
    return wf_group_split(w->world, serves(w, own) ? 0 : -1, own, &config, &w->among_servers);
}

/* The rank in a worker's group. */
static int rank_in_pair(const wf_workers *w, int worker, int rank) {
    int n = 0;
    for (int r = 0; r < rank; r++) n += serves(w, r) || rank_of(w, worker) == r;
    return n;
}

/* ---- channels ---- */

/* Of `rank`, to `peer`. */
static wf_status open_channel(wf_workers *w, wfi_channel *c, size_t bytes, int worker, int rank,
                              int peer) {
    bool is_remote = w->job && peer != rank;
    c->bytes = bytes;
    c->crosses = peer != rank;
    w->host_bytes[rank] += bytes;
    if (!is_remote) {
        c->buffer = wfi_alloc(w->ctx, bytes, 1, "messages");
        return c->buffer ? WF_OK : WF_NO_MEMORY;
    }
    c->group = w->pairs[worker];
    c->peer = rank_in_pair(w, worker, peer);
    return wf_group_alloc(c->group, bytes, &c->buffer);
}

static void close_channel(wf_workers *w, wfi_channel *c) {
    (void)wfi_channel_settle(c); /* after a failure messages may be under way: they fail, too */
    if (c->group)
        wf_group_free(c->group, c->buffer);
    else
        wfi_free(w->ctx, c->buffer);
    c->buffer = NULL;
}

static wf_status open_worker(wf_workers *w, wfi_one_worker *one, int rank) {
    size_t n = (size_t)w->n_servers;
    one->pushing = wfi_alloc(w->ctx, n, sizeof *one->pushing, "channels");
    one->has_answer = wfi_alloc(w->ctx, n, sizeof *one->has_answer, "channels");
    if (!one->pushing || !one->has_answer) return WF_NO_MEMORY;
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
    int peer = rank_of(w, worker);
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
    s->parameters = wfi_alloc(w->ctx, n + 1, sizeof *s->parameters, "a server's parameters");
    s->states = wfi_alloc(w->ctx, n_states * n + 1, sizeof *s->states, "a server's state");
    s->served = wfi_alloc(w->ctx, (size_t)w->n_workers, sizeof *s->served, "workers");
    size_t n_buffers = number ? 0 : wfi_vector_buffer_bytes(&w->vector);
    s->buffers = wfi_alloc(w->ctx, n_buffers + 1, 1, "a server's buffers");
    if (!s->parameters || !s->states || !s->served || !s->buffers) return WF_NO_MEMORY;
    w->host_bytes[s->rank] += (n_states + 1) * n * sizeof(float) + n_buffers;
    for (int k = 0; k < w->n_workers; k++) WF_TRY(open_served(s, k));
    return WF_OK;
}

static wf_status create_servers(wf_workers *w) {
    size_t n_squares = wfi_norm_blocks(&w->vector, wfi_vector_n(&w->vector));
    w->servers = wfi_alloc(w->ctx, (size_t)w->n_servers, sizeof *w->servers, "servers");
    w->takes_part = wfi_alloc(w->ctx, (size_t)w->n_workers, sizeof *w->takes_part, "workers");
    for (int k = 0; k < 2; k++)
        w->squares[k] = wfi_alloc(w->ctx, n_squares + 1, sizeof(double), "sums of squares");
    if (!w->servers || !w->takes_part || !w->squares[0] || !w->squares[1]) return WF_NO_MEMORY;
    for (int k = 0; k < w->n_here; k++)
        for (int i = 0; i < w->ranks[k].n; i++)
            WF_TRY(open_worker(w, &w->ranks[k].workers[i], w->ranks[k].rank));
    for (int k = 0; k < w->n_servers; k++)
        if (is_here(w, wfi_workers_server_rank(w, k))) WF_TRY(create_server(w, k));
    return WF_OK;
}

/* ---- life ---- */

static wf_status create(wf_workers *w, const wf_model *model, const wf_recipe *recipe,
                        const wf_plan *plan) {
    int64_t env_ms;
    WF_TRY(wfi_plan_copy(plan, &w->plan));
    WF_TRY(check(w, model, recipe));
    WF_TRY(wf_recipe_resolve(w->ctx, recipe, model, plan, &w->recipe));
    WF_TRY(wfi_env_count(w->ctx, WFI_WEFT_TIMEOUT_MS, &env_ms));
    w->timeout_ms = w->config.trainer ? w->config.trainer->timeout_ms : 0;
    if (!w->timeout_ms) w->timeout_ms = env_ms;
    w->own = wfi_recipe_of_worker(&w->recipe);
    w->n_workers = (int)w->recipe.n_workers;
    w->n_ranks = w->plan->dp;
    if (is_async(w)) w->n_servers = w->plan->n_servers ? w->plan->n_servers : 1;
    wf_plan *one;
    WF_TRY(make_plan(w, &one));
    wf_status status = w->config.plan_only ? WF_OK : create_ranks(w, model, one);
    if (status == WF_OK) status = create_vector(w, model, one);
    wf_plan_destroy(one);
    WF_TRY(status);
    if (w->config.plan_only) return WF_OK;
    if (w->job) WF_TRY(create_groups(w));
    if (!is_async(w)) return wfi_local_create(w);
    WF_TRY(wfi_order_create(w));
    WF_TRY(create_servers(w));
    return wfi_workers_open_record(w);
}

wf_status wf_workers_create(wf_context *ctx, const wf_model *model, const wf_recipe *recipe,
                            const wf_plan *plan, const wf_workers_config *config,
                            wf_workers **workers_out) {
    WF_TRY(wfi_check_struct(ctx, config, sizeof *config, "wf_workers_config"));
    WF_TRY(wfi_check_struct(ctx, recipe, sizeof *recipe, "wf_recipe"));
    wf_workers *w = wfi_alloc(ctx, 1, sizeof *w, "workers");
    if (!w) return WF_NO_MEMORY;
    w->ctx = ctx;
    w->config = *config;
    w->job = config->trainer ? config->trainer->job : NULL;
    w->recipe.update = recipe->update;
    wf_status status = create(w, model, recipe, plan);
    if (status != WF_OK) {
        if (w->job) wfi_failure_set(wfi_workers_failure(w), status, wf_context_error(ctx));
        wf_workers_destroy(w);
        return status;
    }
    w->config.trainer = NULL; /* the caller's, for the creation */
    *workers_out = w;
    return WF_OK;
}

static void destroy_worker(wf_workers *w, wfi_one_worker *one) {
    close_channel(w, &one->asking);
    for (int k = 0; k < w->n_servers && one->pushing; k++) close_channel(w, &one->pushing[k]);
    wfi_free(w->ctx, one->pushing);
    wfi_free(w->ctx, one->has_answer);
    wfi_free(w->ctx, one->image);
}

static void destroy_server(wfi_server *s) {
    wf_workers *w = s->all;
    for (int k = 0; k < w->n_workers && s->served; k++)
        for (int i = 0; i < 2; i++) close_channel(w, &s->served[k].own[i]);
    wfi_free(w->ctx, s->parameters);
    wfi_free(w->ctx, s->states);
    wfi_free(w->ctx, s->buffers);
    wfi_free(w->ctx, s->served);
}

static void destroy_groups(wf_workers *w) {
    wf_group_destroy(w->among_servers);
    for (int k = 0; k < w->n_workers && w->pairs; k++) wf_group_destroy(w->pairs[k]);
    wf_group_destroy(w->world);
    wfi_free(w->ctx, w->pairs);
}

void wf_workers_destroy(wf_workers *w) {
    if (!w) return;
    for (int k = 0; k < w->n_servers_here; k++) destroy_server(&w->servers[k]);
    for (int k = 0; k < w->n_here; k++) {
        for (int i = 0; i < w->ranks[k].n && w->ranks[k].workers; i++)
            destroy_worker(w, &w->ranks[k].workers[i]);
        wf_trainer_destroy(w->ranks[k].trainer);
        wfi_free(w->ctx, w->ranks[k].workers);
    }
    destroy_groups(w);
    wfi_vector_release(&w->vector);
    for (int k = 0; k < 3; k++) wf_program_destroy(w->programs[k]);
    wfi_record_release(&w->record);
    wfi_order_release(w);
    wfi_free(w->ctx, w->ranks);
    wfi_free(w->ctx, w->host_bytes);
    wfi_free(w->ctx, w->servers);
    wfi_free(w->ctx, w->takes_part);
    wfi_free(w->ctx, w->squares[0]);
    wfi_free(w->ctx, w->squares[1]);
    wfi_free(w->ctx, w->staleness);
    wfi_free(w->ctx, w->common);
    wfi_free(w->ctx, w->momentum);
    wf_plan_destroy(w->plan);
    wfi_free(w->ctx, w);
}

/* ---- reports ---- */

wf_status wf_workers_run(wf_workers *w, int64_t n_steps, wf_step_result *results_out,
                         int64_t *n_done_out) {
    *n_done_out = 0;
    if (n_steps < 1) return WF_OK;
    memset(results_out, 0, (size_t)n_steps * sizeof *results_out);
    return is_async(w) ? wfi_async_run(w, n_steps, results_out, n_done_out)
                       : wfi_local_run(w, n_steps, results_out, n_done_out);
}

/* ---- memory and traffic of ranks ---- */

static void count_channel(const wf_workers *w, const wfi_channel *c, bool is_server,
                          wf_workers_rank *r) {
    uint64_t n_out = is_server ? c->n_answered : c->n_sent,
             n_in = is_server ? c->n_sent : c->n_answered;
    if (c->group) n_in = n_out; /* the other side counts for itself: a message each way */
    (void)w;
    r->sent_bytes += n_out * c->bytes;
    r->received_bytes += n_in * c->bytes;
}

static void count_worker(const wf_workers *w, const wfi_one_worker *one, wf_workers_rank *r) {
    count_channel(w, &one->asking, false, r);
    for (int k = 0; k < w->n_servers && one->pushing; k++)
        count_channel(w, &one->pushing[k], false, r);
}

static void fill_rank(const wf_workers *w, int rank, wf_workers_rank *r) {
    for (int k = 0; k < w->n_here; k++) {
        if (w->ranks[k].rank != rank) continue;
        r->memory = wf_trainer_memory_of(w->ranks[k].trainer, 0);
        r->memory.planned_peak_bytes =
            wfi_trainer_planned_peak(w->ranks[k].trainer, 0, WFI_SPACE_DEVICE, true);
        for (int i = 0; i < w->ranks[k].n; i++) count_worker(w, &w->ranks[k].workers[i], r);
    }
    for (int k = 0; k < w->n_servers_here; k++) {
        const wfi_server *s = &w->servers[k];
        if (s->rank != rank) continue;
        if (!s->number)
            for (int i = 0; i < w->n_workers; i++) count_channel(w, s->served[i].asking, true, r);
        for (int i = 0; i < w->n_workers; i++) count_channel(w, s->served[i].pushing, true, r);
    }
    r->memory.is_measured = 1;
    r->memory.planned_host_peak_bytes += wfi_workers_host_bytes(w, rank);
    r->memory.measured_host_peak_bytes += w->host_bytes[rank];
    if (w->averages.sent_bytes) r->sent_bytes = w->averages.sent_bytes;
    if (w->averages.sent_bytes) r->received_bytes = w->averages.received_bytes;
    r->sent_bytes /= (uint64_t)wfi_max_i64(w->n_run, 1);
    r->received_bytes /= (uint64_t)wfi_max_i64(w->n_run, 1);
}

/* Of workers that only plan. */
static void plan_rank(const wf_workers *w, int rank, wf_workers_rank *r) {
    const wf_program *p = w->programs[!is_async(w) ? 0 : rank ? 2 : 1];
    if (rank < w->n_ranks) {
        r->memory.planned_peak_bytes = p->ranks[0].arenas[WFI_SPACE_DEVICE].peak_bytes;
        r->memory.planned_host_peak_bytes = p->ranks[0].arenas[WFI_SPACE_HOST].peak_bytes;
        r->memory.planned_disk_peak_bytes = p->ranks[0].arenas[WFI_SPACE_DISK].peak_bytes;
    }
    r->memory.planned_host_peak_bytes += wfi_workers_host_bytes(w, rank);
    r->sent_bytes = r->received_bytes = wfi_workers_sent_bytes(w, rank);
}

wf_status wf_workers_rank_get(wf_workers *w, int rank, wf_workers_rank *rank_out) {
    *rank_out = (wf_workers_rank){0};
    if (rank < 0 || rank >= wf_plan_n_ranks(w->plan)) return WF_OK;
    if (w->config.plan_only) {
        plan_rank(w, rank, rank_out);
        return WF_OK;
    }
    if (is_here(w, rank)) fill_rank(w, rank, rank_out);
    if (!w->job) return WF_OK;
    return wf_group_broadcast(w->world, rank_out, rank_out,
                              (int64_t)(sizeof *rank_out / sizeof(int32_t)), WF_I32, rank, NULL);
}

int wf_workers_n(const wf_workers *w) {
    return w->n_workers;
}

const wf_recipe *wf_workers_recipe(const wf_workers *w) {
    return &w->recipe;
}

int64_t wf_workers_n_steps(const wf_workers *w) {
    return w->n_steps;
}

int64_t wf_workers_staleness(const wf_workers *w, int64_t steps) {
    return steps >= 0 && (size_t)steps < w->n_staleness ? w->staleness[steps] : -1;
}

void wf_workers_place(const wf_workers *w, int rank, int *first_out, int *n_out, int *server_out) {
    bool works = rank >= 0 && rank < w->n_ranks;
    *first_out = works ? wfi_workers_first(w, rank) : 0;
    *n_out = works ? wfi_workers_first(w, rank + 1) - *first_out : 0;
    *server_out = -1;
    for (int k = 0; k < w->n_servers; k++)
        if (wfi_workers_server_rank(w, k) == rank) *server_out = k;
}

wf_status wf_workers_recorded(wf_context *ctx, const char *record, int *n_workers_out) {
    wfi_record r;
    WF_TRY(wfi_record_read(ctx, record, &r));
    *n_workers_out = r.n_workers;
    wfi_record_release(&r);
    return WF_OK;
}

int64_t wf_workers_batch(const wf_workers *w, int worker) {
    bool is_known = w->order.next_batch && worker >= 0 && worker < w->n_workers;
    return is_known ? w->order.next_batch[worker] : w->n_steps;
}
