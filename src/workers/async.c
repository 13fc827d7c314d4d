/* Runs of asynchronous workers: threads for this process's workers and servers, and the steps
 * before and after. */
#include "workers/run.h"

/* A replay ends a part of its run after so many steps, to see whether it is to stop. */
#define REPLAYED_AT_ONCE 64

/* ---- threads ---- */

static void note_failure(wf_workers *w, wf_status status) {
    if (status != WF_OK) wfi_failure_set(wfi_workers_failure(w), status, wf_context_error(w->ctx));
}

static void *be_rank(void *self) {
    wfi_worker_rank *rank = self;
    note_failure(rank->all, wfi_worker_rank_run(rank, rank->all->starts));
    return NULL;
}

static void *be_server(void *self) {
    wfi_server *server = self;
    note_failure(server->all, wfi_server_run(server));
    return NULL;
}

static bool start(pthread_t *thread, void *(*be)(void *self), void *self) {
    return pthread_create(thread, NULL, be, self) == 0;
}

static wf_status run_threads(wf_workers *w) {
    bool ok = true;
    for (int k = 0; k < w->n_servers_here && ok; k++)
        ok = w->servers[k].has_thread = start(&w->servers[k].thread, be_server, &w->servers[k]);
    for (int k = 0; k < w->n_here && ok; k++)
        ok = w->ranks[k].has_thread = start(&w->ranks[k].thread, be_rank, &w->ranks[k]);
    if (!ok)
        note_failure(w, wfi_fail(w->ctx, WF_NO_MEMORY, "the system refused a thread for a worker"));
    for (int k = 0; k < w->n_here; k++)
        if (w->ranks[k].has_thread) pthread_join(w->ranks[k].thread, NULL);
    for (int k = 0; k < w->n_servers_here; k++)
        if (w->servers[k].has_thread) pthread_join(w->servers[k].thread, NULL);
    for (int k = 0; k < w->n_here; k++) w->ranks[k].has_thread = false;
    for (int k = 0; k < w->n_servers_here; k++) w->servers[k].has_thread = false;
    return wfi_failure_check(w->ctx, wfi_workers_failure(w));
}

/* ---- a part of a run ---- */

/* Sets the workers that take part, and their first batches. */
static void prepare_workers(wf_workers *w, int64_t n_pushes) {
    for (int k = 0; k < w->n_workers; k++) {
        const wfi_push *next =
            w->replays ? wfi_order_find(w, k, w->order.replayed, n_pushes) : NULL;
        wfi_one_worker *one = wfi_workers_find(w, k);
        w->takes_part[k] = w->starts || next;
        if (!one) continue;
        if (next) one->batch = next->batch;
        one->stage = next ? WFI_WORKER_READY : WFI_WORKER_ENDED;
    }
}

/* Server 0's process tells the others. */
static wf_status share_order(wf_workers *w, int64_t *n_done, wf_step_result *results) {
    wfi_order *o = &w->order;
    int from = wfi_workers_server_rank(w, 0);
    int64_t told[2] = {*n_done, (int64_t)o->replayed};
    WF_TRY(wfi_workers_tell(w, from, told, sizeof told));
    *n_done = told[0];
    o->replayed = (size_t)told[1];
    WF_TRY(wfi_workers_tell(w, from, results, (size_t)told[0] * sizeof *results));
    WF_TRY(wfi_workers_tell_staleness(w, from));
    return wfi_workers_tell(w, from, o->next_batch, (size_t)w->n_workers * sizeof *o->next_batch);
}

static wf_status run_part(wf_workers *w, int64_t n_steps, wf_step_result *results,
                          int64_t *n_done_out) {
    int64_t n_pushes = w->n_workers - w->recipe.n_backup;
    w->order.results = results;
    w->n_squares_in = 0;
    w->shown = 0;
    wfi_order_begin(w, n_steps, w->starts);
    prepare_workers(w, n_steps * n_pushes);
    WF_TRY(run_threads(w));
    *n_done_out = w->order.n_granted / n_pushes;
    if (*n_done_out) results[*n_done_out - 1].stop_reason = (int)w->order.stop_reason;
    WF_TRY(share_order(w, n_done_out, results));
    w->n_steps += *n_done_out;
    w->n_run += *n_done_out;
    w->has_parameters = true;
    return WF_OK;
}

/* ---- replays ---- */

/* Returns whether all workers' next pushes are of parameters that were read at this place of the
 * record or later, where a run began or was resumed. */
static bool begins_anew(const wf_workers *w, size_t at, int64_t version) {
    for (int k = 0; k < w->n_workers; k++) {
        const wfi_push *next = wfi_order_find(w, k, at, INT64_MAX);
        if (next && next->version < version) return false;
    }
    return true;
}

/* Steps of the record up to the next place where workers read parameters anew, n_steps at most. */
static int64_t steps_at_once(const wf_workers *w, int64_t n_steps) {
    int64_t most = w->recipe.n_backup ? 1 : wfi_min_i64(n_steps, REPLAYED_AT_ONCE), n = 1;
    size_t at = w->order.replayed + (size_t)w->n_workers;
    int64_t first = w->n_steps + 1, each = wfi_workers_sums(w) ? 1 : w->n_workers;
    while (n < most && !begins_anew(w, at, (first + n - 1) * each)) {
        at += (size_t)w->n_workers;
        n++;
    }
    return n;
}

static wf_status check_replay(const wf_workers *w, int64_t n_steps) {
    int64_t n_recorded = w->record.first_step + (int64_t)wfi_record_n_steps(&w->record);
    if (w->n_steps < w->record.first_step)
        return wfi_fail(w->ctx, WF_INVALID_ARG,
                        "%s begins after step %lld: resume from a checkpoint of that step",
                        w->config.replay, (long long)w->record.first_step);
    if (w->n_steps + n_steps <= n_recorded) return WF_OK;
    return wfi_fail(w->ctx, WF_INVALID_ARG,
                    "%s ends after step %lld, so it cannot be replayed up to step %lld",
                    w->config.replay, (long long)n_recorded, (long long)(w->n_steps + n_steps));
}

/* Checkpoints have only the newest parameters. */
static wf_status refuse_begin(const wf_workers *w) {
    return wfi_fail(w->ctx, WF_INVALID_ARG,
                    "%s: a replay cannot begin after step %lld, where workers had read older "
                    "parameters; begin where the recorded run began or was resumed",
                    w->config.replay, (long long)w->n_steps);
}

/* Without this, each process would stop at another moment. */
wf_status wfi_workers_agree_to_stop(wf_workers *w, int *reason_out) {
    int32_t own = wfi_workers_stops(w), all = own;
    if (w->job) WF_TRY(wf_group_all_reduce(w->world, &own, &all, 1, WF_I32, WF_MAX, NULL));
    *reason_out = all;
    return WF_OK;
}

static wf_status replay(wf_workers *w, int64_t n_steps, wf_step_result *results,
                        int64_t *n_done_out) {
    int64_t each = wfi_workers_sums(w) ? 1 : w->n_workers, n_done = 0;
    WF_TRY(check_replay(w, n_steps));
    for (int ends = 0; n_done < n_steps && !ends;) {
        int64_t n;
        bool is_new = begins_anew(w, w->order.replayed, w->n_steps * each);
        if (!w->has_parameters && !is_new) return refuse_begin(w);
        w->starts = w->recipe.n_backup || is_new;
        WF_TRY(run_part(w, steps_at_once(w, n_steps - n_done), results + n_done, &n));
        n_done += n;
        if (n_done < n_steps) WF_TRY(wfi_workers_agree_to_stop(w, &ends));
        results[n_done - 1].stop_reason = ends;
    }
    *n_done_out = n_done;
    return WF_OK;
}

/* ---- a run ---- */

wf_status wfi_async_run(wf_workers *w, int64_t n_steps, wf_step_result *results,
                        int64_t *n_done_out) {
    WF_TRY(wfi_workers_replicate(w));
    w->starts = true;
    WF_TRY(w->replays ? replay(w, n_steps, results, n_done_out)
                      : run_part(w, n_steps, results, n_done_out));
    WF_TRY(wfi_workers_collect(w));
    return wfi_workers_write_record(w);
}
