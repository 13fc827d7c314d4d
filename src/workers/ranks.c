/* The trainers of ranks with workers, and the vector of their parameters. */
#include "compile/compile.h"
#include "workers/run.h"

/* Gradients need no optimizer: its state is on the servers, and between runs on rank 0. */
static wf_recipe without_state(const wf_workers *w) {
    wf_recipe recipe = w->own;
    recipe.optimizer = WF_SGD;
    recipe.momentum = recipe.nesterov = 0;
    return recipe;
}

/* So that memory is known, and is enough, before the first step. */
static wf_status prepare_parts(const wfi_worker_rank *rank) {
    const wf_workers *w = rank->all;
    wf_program_kind kind = wfi_workers_is_async(w) ? WF_PROGRAM_GRADIENT : WF_PROGRAM_TRAIN;
    for (int k = 0; k < rank->n; k++) {
        int64_t ignored, n_samples;
        wfi_ready *ready;
        wf_recipe_part(&w->recipe, w->recipe.batch, w->n_workers, rank->workers[k].number, &ignored,
                       &n_samples);
        WF_TRY(wfi_trainer_ready(rank->trainer, kind, n_samples, &ready));
    }
    return WF_OK;
}

static wf_status create_trainer(wfi_worker_rank *rank, const wf_model *model, const wf_plan *plan,
                                const wfi_device_list *list) {
    wf_workers *w = rank->all;
    const wf_trainer_config defaults = WF_TRAINER_CONFIG_INIT;
    wf_trainer_config config = w->config.trainer ? *w->config.trainer : defaults;
    wfi_device_list own = {.n = 1, .n_places = list->n_places};
    own.kind[0] = list->kind[rank->rank];
    own.place[0] = list->place[rank->rank];
    bool is_divided = w->job && !config.devices;
    if (is_divided) own.place[0] = (int16_t)wf_job_local_rank(w->job);
    if (is_divided) own.n_places = wf_job_n_local_ranks(w->job);
    config.devices = NULL;
    config.job = NULL;
    config.trace = config.own_batch = config.forward_only = config.keep_gradients = 0;
    bool is_whole = !wfi_workers_is_async(w) || !rank->rank;
    wf_recipe recipe = is_whole ? w->own : without_state(w);
    WF_TRY(wfi_trainer_create_on(w->ctx, model, &recipe, plan, &config, &own,
                                 is_whole ? WF_PROGRAM_TRAIN : WF_PROGRAM_GRADIENT,
                                 &rank->trainer));
    /* WEFT_SLOW_RANK counts the plan's ranks, but each trainer has one rank, number 0. */
    wfi_slow slow = rank->trainer->slow;
    rank->trainer->workers[0].slow_factor = slow.rank == rank->rank ? slow.factor : 1;
    return prepare_parts(rank);
}

static wf_status create_rank(wf_workers *w, const wf_model *model, const wf_plan *plan,
                             const wfi_device_list *list, int number) {
    wfi_worker_rank *rank = &w->ranks[w->n_here++];
    int first = wfi_workers_first(w, number);
    *rank = (wfi_worker_rank){.all = w, .rank = number};
    rank->n = wfi_workers_first(w, number + 1) - first;
    rank->workers = wfi_pool_array(&w->pool, (size_t)rank->n, sizeof *rank->workers, "workers");
    WF_TRY(wfi_pool_status(&w->pool));
    for (int k = 0; k < rank->n; k++) rank->workers[k].number = first + k;
    return create_trainer(rank, model, plan, list);
}

wf_status wfi_workers_create_ranks(wf_workers *w, const wf_model *model, const wf_plan *plan) {
    const char *devices = w->config.trainer ? w->config.trainer->devices : NULL;
    int n_all = wf_plan_n_ranks(w->plan);
    wfi_device_list list;
    WF_TRY(wfi_devices_parse(w->ctx, devices, n_all, &list));
    if (list.n != n_all)
        return wfi_fail(w->ctx, WF_INVALID_ARG, "'%s' has %d devices, but the plan %s has %d ranks",
                        devices, list.n, wf_plan_text(w->plan), n_all);
    w->ranks = wfi_pool_array(&w->pool, (size_t)w->n_ranks, sizeof *w->ranks, "ranks");
    w->host_bytes = wfi_pool_array(&w->pool, (size_t)n_all, sizeof *w->host_bytes, "ranks");
    WF_TRY(wfi_pool_status(&w->pool));
    for (int r = 0; r < w->n_ranks; r++)
        if (wfi_workers_is_here(w, r)) WF_TRY(create_rank(w, model, plan, &list, r));
    return WF_OK;
}

/* ---- for the plan alone ---- */

static wf_status create_program(const wf_workers *w, const wf_model *model, const wf_plan *plan,
                                bool is_whole, int64_t n_samples, wf_program_kind kind,
                                const wf_program *like, wf_program **program_out) {
    wf_recipe recipe = is_whole ? w->own : without_state(w);
    recipe.batch = n_samples;
    return wfi_program_create(w->ctx, model, &recipe, plan, wfi_backend_of(&wfi_device_cpu), kind,
                              WFI_USE_RUN, like, program_out);
}

static void take_peaks(const wf_program *p, size_t peaks[WFI_N_SPACES]) {
    for (int s = 0; s < WFI_N_SPACES; s++)
        if (p->ranks[0].arenas[s].peak_bytes > peaks[s])
            peaks[s] = p->ranks[0].arenas[s].peak_bytes;
}

/* The peaks of a worker's part of so many samples. `first`: the first program of the trainer; its
 * state is in the arena. */
static wf_status plan_part(wf_workers *w, const wf_model *model, const wf_plan *plan,
                           const wf_program *first, bool is_whole, int64_t n_samples) {
    wf_program *p;
    wf_program_kind kind = wfi_workers_is_async(w) ? WF_PROGRAM_GRADIENT : WF_PROGRAM_TRAIN;
    wfi_planned *planned = &w->planned[w->n_planned++];
    *planned = (wfi_planned){.is_whole = is_whole, .n_samples = n_samples};
    WF_TRY(create_program(w, model, plan, is_whole, n_samples, kind, first, &p));
    take_peaks(p, planned->peaks);
    wf_program_destroy(p);
    return WF_OK;
}

static bool is_planned(const wf_workers *w, bool is_whole, int64_t n_samples) {
    bool is_in = false;
    for (int k = 0; k < w->n_planned; k++)
        is_in |= w->planned[k].is_whole == is_whole && w->planned[k].n_samples == n_samples;
    return is_in;
}

/* Parts have three sizes at most: of larger microbatches, of smaller ones, and of both. */
static wf_status plan_parts(wf_workers *w, const wf_model *model, const wf_plan *plan,
                            const wf_program *first, bool is_whole) {
    for (int k = 0; k < w->n_workers; k++) {
        int64_t ignored, n;
        wf_recipe_part(&w->recipe, w->recipe.batch, w->n_workers, k, &ignored, &n);
        if (!is_planned(w, is_whole, n)) WF_TRY(plan_part(w, model, plan, first, is_whole, n));
    }
    return WF_OK;
}

/* Rank 0 also has the optimizer's state, and tests. */
static wf_status create_programs(wf_workers *w, const wf_model *model, const wf_plan *plan) {
    wf_program *whole, *other;
    WF_TRY(create_program(w, model, plan, true, w->own.batch, WF_PROGRAM_TRAIN, NULL, &whole));
    w->program = whole;
    WF_TRY(plan_parts(w, model, plan, whole, true));
    WF_TRY(wf_program_plan_tests(whole, w->config.n_test, w->config.n_test_at_once));
    for (int k = 0; k < 2; k++)
        if (whole->tests[k]) take_peaks(whole->tests[k], w->test_peaks);
    if (!wfi_workers_is_async(w)) return WF_OK;
    WF_TRY(create_program(w, model, plan, false, w->own.batch, WF_PROGRAM_GRADIENT, NULL, &other));
    wf_status status = plan_parts(w, model, plan, other, false);
    wf_program_destroy(other);
    return status;
}

/* A process without workers knows the vector from a program that it does not run. */
wf_status wfi_workers_create_vector(wf_workers *w, const wf_model *model, const wf_plan *plan) {
    if (w->config.plan_only)
        WF_TRY(create_programs(w, model, plan));
    else if (!w->n_here)
        WF_TRY(wf_program_create(w->ctx, model, &w->own, plan, WF_PROGRAM_GRADIENT, &w->program));
    const wf_program *p = w->n_here ? w->ranks->trainer->ready[0]->program : w->program;
    if (p->graph->n_hidden)
        return wfi_fail(w->ctx, WF_UNSUPPORTED,
                        "workers: a recurrent model goes on with its hidden state from batch to "
                        "batch, which only update=sync does");
    return wfi_vector_create(w->ctx, p, &w->vector);
}
