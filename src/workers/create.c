/* Creating, running and destroying workers. */
#include "workers/run.h"

#include "base/env.h"

#include <string.h>

/* ---- the configuration of the workers ---- */

static wf_status check(const wf_workers *w, const wf_recipe *recipe) {
    int n_job = w->job ? wf_job_n_ranks(w->job) : 0, n_plan = wf_plan_n_ranks(w->plan);
    if (recipe->update == WF_UPDATE_SYNC)
        return wfi_fail(w->ctx, WF_INVALID_ARG,
                        "workers: the recipe has update=sync, which needs a wf_trainer; take "
                        "update=async or update=local");
    if (!w->config.read && !w->config.plan_only)
        return wfi_fail(w->ctx, WF_INVALID_ARG,
                        "workers: config.read is NULL; workers need it for their data");
    if (w->job && n_job != n_plan)
        return wfi_fail(w->ctx, WF_INVALID_ARG, "plan: %s has %d ranks, and the job has %d",
                        wf_plan_text(w->plan), n_plan, n_job);
    if (!wfi_workers_is_async(w) && (w->config.record || w->config.replay))
        return wfi_fail(w->ctx, WF_INVALID_ARG,
                        "workers: only update=async writes or replays a record; other updates are "
                        "deterministic");
    if (w->config.record && w->config.replay)
        return wfi_fail(w->ctx, WF_INVALID_ARG,
                        "workers: a replay repeats %s, and writes no record of its own",
                        w->config.replay);
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

/* ---- life ---- */

static wf_status create(wf_workers *w, const wf_model *model, const wf_recipe *recipe,
                        const wf_plan *plan) {
    int64_t env_ms;
    WF_TRY(wfi_plan_copy(plan, &w->plan));
    WF_TRY(check(w, recipe));
    WF_TRY(wf_recipe_resolve(w->ctx, recipe, model, plan, &w->recipe));
    WF_TRY(wfi_env_count(w->ctx, WFI_WEFT_TIMEOUT_MS, &env_ms));
    w->timeout_ms = w->config.trainer ? w->config.trainer->timeout_ms : 0;
    if (!w->timeout_ms) w->timeout_ms = env_ms;
    w->own = wfi_recipe_of_worker(&w->recipe);
    w->n_workers = (int)w->recipe.n_workers;
    w->n_ranks = w->plan->dp;
    if (wfi_workers_is_async(w)) w->n_servers = w->plan->n_servers ? w->plan->n_servers : 1;
    wf_plan *one;
    WF_TRY(make_plan(w, &one));
    wf_status status = w->config.plan_only ? WF_OK : wfi_workers_create_ranks(w, model, one);
    if (status == WF_OK) status = wfi_workers_create_vector(w, model, one);
    wf_plan_destroy(one);
    WF_TRY(status);
    if (w->config.plan_only) return WF_OK;
    WF_TRY(wfi_workers_create_spans(w));
    if (w->job) WF_TRY(wfi_workers_create_groups(w));
    if (!wfi_workers_is_async(w)) return wfi_local_create(w);
    WF_TRY(wfi_order_create(w));
    WF_TRY(wfi_workers_create_servers(w));
    return wfi_workers_open_record(w);
}

/* The limit that offload= of a trainer obeys alone. */
static wf_status check_host_memory(const wf_workers *w) {
    size_t limit = w->config.trainer ? w->config.trainer->host_memory_bytes : 0;
    for (int r = 0; r < wf_plan_n_ranks(w->plan) && limit; r++) {
        size_t bytes = wfi_workers_host_bytes(w, r);
        for (int k = 0; k < w->n_here; k++)
            if (w->ranks[k].rank == r)
                bytes += wf_trainer_memory_of(w->ranks[k].trainer, 0).planned_host_peak_bytes;
        if (wfi_workers_is_here(w, r) && bytes > limit)
            return wfi_fail(w->ctx, WF_DOES_NOT_FIT,
                            "rank %d needs %zu bytes of host memory for its workers and servers; "
                            "it may have %zu",
                            r, bytes, limit);
    }
    return WF_OK;
}

wf_status wf_workers_create(wf_context *ctx, const wf_model *model, const wf_recipe *recipe,
                            const wf_plan *plan, const wf_workers_config *config,
                            wf_workers **workers_out) {
    WF_TRY(wfi_check_struct(ctx, config, sizeof *config, "wf_workers_config"));
    WF_TRY(wfi_check_struct(ctx, recipe, sizeof *recipe, "wf_recipe"));
    wf_workers *w = wfi_alloc(ctx, 1, sizeof *w, "workers");
    if (!w) return WF_NO_MEMORY;
    w->ctx = ctx;
    wfi_pool_init(&w->pool, ctx);
    w->config = *config;
    w->job = config->trainer ? config->trainer->job : NULL;
    w->recipe.update = recipe->update;
    wf_status status = create(w, model, recipe, plan);
    if (status == WF_OK) status = check_host_memory(w);
    if (status != WF_OK) {
        if (w->job) wfi_failure_set(wfi_workers_failure(w), status, wf_context_error(ctx));
        wf_workers_destroy(w);
        return status;
    }
    w->config.trainer = NULL; /* the caller's, for the creation */
    *workers_out = w;
    return WF_OK;
}

void wf_workers_destroy(wf_workers *w) {
    if (!w) return;
    for (int k = 0; k < w->n_servers_here; k++) wfi_workers_destroy_server(&w->servers[k]);
    for (int k = 0; k < w->n_here; k++) {
        for (int i = 0; i < w->ranks[k].n && w->ranks[k].workers; i++)
            wfi_workers_destroy_worker(w, &w->ranks[k].workers[i]);
        wf_trainer_destroy(w->ranks[k].trainer);
    }
    wfi_workers_destroy_groups(w);
    wfi_vector_release(&w->vector);
    wf_program_destroy(w->program);
    wfi_record_release(&w->record);
    wfi_free(w->ctx, w->staleness);
    wfi_pool_release(&w->pool);
    wf_plan_destroy(w->plan);
    wfi_free(w->ctx, w);
}

/* ---- reports ---- */

wf_status wf_workers_run(wf_workers *w, int64_t n_steps, wf_step_result *results_out,
                         int64_t *n_done_out) {
    *n_done_out = 0;
    if (n_steps < 1) return WF_OK;
    memset(results_out, 0, (size_t)n_steps * sizeof *results_out);
    return wfi_workers_is_async(w) ? wfi_async_run(w, n_steps, results_out, n_done_out)
                                   : wfi_local_run(w, n_steps, results_out, n_done_out);
}
