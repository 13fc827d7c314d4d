/* Costs measured: a trainer of its own runs microbatches of zeros, traced. */
#include "api/trainer.h"
#include "nn/model.h"

/* Steps, the first of which does not count. */
#define N_STEPS 3

/* As many microbatches as keep all stages busy for a while, B and W apart where the plan has a
 * schedule. */
static wf_status make_plan(const wf_plan *plan, wf_plan **plan_out) {
    WF_TRY(wfi_plan_copy(plan, plan_out));
    wf_plan *split = *plan_out;
    if (!split->n_rules) {
        if (split->chunks || split->schedule->n_chunks > 1) wfi_plan_drop_cut(split);
        split->schedule = &wfi_schedule_zb1;
        split->chunks = split->hold = 0;
    }
    wfi_plan_drop_lanes(split);
    wf_status status = wfi_plan_complete(split);
    if (status != WF_OK) wf_plan_destroy(split);
    return status;
}

static wf_recipe make_recipe(const wf_recipe *recipe, const wf_plan *plan) {
    wf_recipe r = *recipe;
    int64_t size = (r.batch + r.n_micro - 1) / r.n_micro,
            n_replicas = wfi_min_i64(plan->dp, r.n_micro),
            per_replica = wfi_min_i64(r.n_micro / n_replicas, 2 * plan->pp);
    r.n_micro = per_replica * n_replicas;
    r.batch = size * r.n_micro;
    r.n_lanes = n_replicas;
    r.lr = 0; /* zeros are no samples: the model is not to go anywhere */
    return r;
}

static wf_status run_steps(wf_trainer *t) {
    const wf_graph *g = wfi_trainer_graph(t);
    size_t n_values = (size_t)g->n_values;
    wf_feed *feeds = wfi_alloc(t->ctx, n_values, sizeof *feeds, "inputs");
    if (!feeds) return WF_NO_MEMORY;
    wf_status status = WF_OK;
    int n = 0;
    for (int32_t v = 0; v < g->n_values && status == WF_OK; v++) {
        if (g->values[v].kind != WFI_VALUE_INPUT) continue;
        size_t bytes = wfi_value_bytes(g, v) * (size_t)t->recipe.n_micro;
        feeds[n] = (wf_feed){g->values[v].name, wfi_alloc(t->ctx, 1, bytes, "inputs"), bytes};
        if (!feeds[n++].data) status = WF_NO_MEMORY;
    }
    wf_step_result ignored;
    for (int s = 0; s < N_STEPS && status == WF_OK; s++) {
        WFI_PROGRESS(t->ctx, "measuring step %d of %d", s + 1, N_STEPS);
        status = wf_trainer_step(t, feeds, n, t->recipe.batch, &ignored);
    }
    for (int k = 0; k < n; k++) wfi_free(t->ctx, (void *)(uintptr_t)feeds[k].data);
    wfi_free(t->ctx, feeds);
    return status;
}

/* A trainer that has run some traced steps with equal shares. */
static wf_status run_traced(wf_context *ctx, const wf_model *model, const wf_recipe *recipe,
                            const wf_plan *plan, const wf_trainer_config *config,
                            wf_trainer **trainer_out) {
    const wf_trainer_config defaults = WF_TRAINER_CONFIG_INIT;
    wf_trainer_config traced = config ? *config : defaults;
    wf_recipe r;
    WF_TRY(wf_recipe_resolve(ctx, recipe, model, plan, &r));
    r = make_recipe(&r, plan);
    traced.trace = 1;
    traced.profile = traced.keep_gradients = traced.forward_only = 0;
    traced.device_memory_bytes = 0; /* the cap is for the plan; its schedule may need less */
    wf_plan *split;
    WF_TRY(make_plan(plan, &split));
    wf_status status = wf_trainer_create(ctx, model, &r, split, &traced, trainer_out);
    wf_plan_destroy(split);
    if (status != WF_OK) return status;
    status = run_steps(*trainer_out);
    if (status != WF_OK) wf_trainer_destroy(*trainer_out);
    return status;
}

wf_status wf_costs_measure(wf_context *ctx, const wf_model *model, const wf_recipe *recipe,
                           const wf_plan *plan, const wf_trainer_config *config,
                           wf_costs **costs_out) {
    wf_trainer *trainer;
    WF_TRY(run_traced(ctx, model, recipe, plan, config, &trainer));
    wf_status status = wf_trainer_costs(trainer, costs_out);
    wf_trainer_destroy(trainer);
    return status;
}

/* The time that the busiest rank of each replica computes in a step. */
static void find_times(const wf_plan *plan, const wf_timeline *timeline, double *times) {
    wfi_mesh mesh = wfi_plan_mesh(plan);
    for (int r = 0; r < wf_timeline_n_ranks(timeline); r++) {
        double *time = &times[wfi_mesh_at(&mesh, WFI_DP, r)];
        if (wf_timeline_rank(timeline, r).compute_us > *time)
            *time = wf_timeline_rank(timeline, r).compute_us;
    }
}

static wf_status share(wf_plan *plan, int64_t n_lanes, const wf_trainer *trainer) {
    wf_timeline *timeline;
    WF_TRY(wf_trainer_timeline(trainer, &timeline));
    double *times = wfi_alloc(plan->ctx, (size_t)plan->dp, sizeof *times, "shares of lanes");
    if (times) find_times(plan, timeline, times);
    wf_status status = times ? wfi_plan_share_lanes(plan, n_lanes, times) : WF_NO_MEMORY;
    wfi_free(plan->ctx, times);
    wf_timeline_destroy(timeline);
    return status;
}

wf_status wf_plan_measure_lanes(wf_context *ctx, const wf_model *model, const wf_recipe *recipe,
                                wf_plan *plan, const wf_trainer_config *config) {
    wf_trainer *trainer;
    wf_recipe r;
    if (!plan->measures_lanes) return WF_OK;
    WF_TRY(wf_recipe_resolve(ctx, recipe, model, plan, &r));
    WF_TRY(run_traced(ctx, model, recipe, plan, config, &trainer));
    wf_status status = share(plan, r.n_lanes, trainer);
    wf_trainer_destroy(trainer);
    return status;
}
