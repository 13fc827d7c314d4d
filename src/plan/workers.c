/* Recipes with separate parameters for each worker, and the plans that place them. */
#include "plan/workers.h"
#include "plan/lanes.h"

static wf_status refuse(wf_context *ctx, const char *field, const char *why) {
    return wfi_fail(ctx, WF_INVALID_ARG, "recipe: %s %s", field, why);
}

/* Refuses fields without an effect, and fields that workers do not support. */
static wf_status check_fields(wf_context *ctx, const wf_recipe *r) {
    bool is_async = r->update == WF_UPDATE_ASYNC;
    if (r->update == WF_UPDATE_SYNC) return WF_OK;
    if (!is_async && !r->n_workers)
        return refuse(ctx, "update=local", "needs the number of workers: --workers M");
    if (r->n_backup && (!is_async || r->staleness))
        return refuse(ctx, "backup",
                      "drops gradients of synchronous steps: it needs update=async "
                      "and staleness=0");
    if (r->n_backup && r->n_workers && r->n_backup >= r->n_workers)
        return refuse(ctx, "backup", "leaves no worker whose gradient a step uses");
    if (r->ema > 0) return refuse(ctx, "ema", "averages the weights of update=sync; leave it out");
    if (r->lr_schedule == WF_LR_PLATEAU)
        return refuse(ctx, "lr_schedule=plateau", "goes with update=sync");
    return WF_OK;
}

static wf_status check_plan(wf_context *ctx, const wf_recipe *r, const wf_plan *plan) {
    bool is_cut = plan->pp > 1 || plan->tp > 1 || plan->n_rules || plan->lanes ||
                  plan->measures_lanes || plan->strategy != &wfi_strategy_dp;
    const char *update = r->update == WF_UPDATE_ASYNC ? "async" : "local";
    if (r->update != WF_UPDATE_ASYNC && plan->n_servers)
        return wfi_fail(ctx, WF_INVALID_ARG,
                        "plan: ps=%d: parameter servers need update=async in the recipe",
                        plan->n_servers);
    if (r->update == WF_UPDATE_SYNC) return WF_OK;
    if (is_cut)
        return wfi_fail(
            ctx, WF_INVALID_ARG,
            "plan: %s: with update=%s each worker has all parameters on one rank; leave out "
            "pp, tp, zero, lanes and strategies of units",
            plan->text, update);
    if (r->update == WF_UPDATE_ASYNC && plan->offload[WFI_OFFLOAD_STATE] != WFI_SPACE_DEVICE)
        return wfi_fail(ctx, WF_INVALID_ARG,
                        "plan: offload=state: with update=async the servers have the optimizer's "
                        "state, in host memory; leave it out");
    if (plan->dp > r->n_workers)
        return wfi_fail(ctx, WF_INVALID_ARG,
                        "plan: dp=%d has more ranks than the recipe's %lld workers", plan->dp,
                        (long long)r->n_workers);
    if (r->update == WF_UPDATE_LOCAL && !wfi_lanes_allow(r->n_workers, plan->dp))
        return wfi_fail(ctx, WF_INVALID_ARG,
                        "plan: dp=%d does not divide the %lld workers into equal parts of their "
                        "average's tree",
                        plan->dp, (long long)r->n_workers);
    return WF_OK;
}

/* Asynchronous sums may be those of a synchronous step, so workers own whole subtrees of lanes. */
static bool lanes_suit(const wf_recipe *r) {
    if (r->update == WF_UPDATE_LOCAL) return r->n_lanes % r->n_workers == 0;
    return wfi_lanes_allow(r->n_lanes, r->n_workers);
}

wf_status wfi_recipe_resolve_workers(wf_context *ctx, wf_recipe *r, const wf_plan *plan,
                                     bool opens_lanes) {
    WF_TRY(check_fields(ctx, r));
    if (r->update == WF_UPDATE_SYNC) return plan ? check_plan(ctx, r, plan) : WF_OK;
    if (!r->n_workers) r->n_workers = plan ? plan->dp : 1;
    WF_TRY(check_fields(ctx, r));
    if (plan) WF_TRY(check_plan(ctx, r, plan));
    if (opens_lanes && !lanes_suit(r)) r->n_lanes = r->n_workers;
    if (lanes_suit(r)) return WF_OK;
    return wfi_fail(ctx, WF_INVALID_ARG,
                    "recipe: %lld workers cannot share its %lld lanes equally; --lanes %lld is "
                    "another recipe, with other numbers",
                    (long long)r->n_workers, (long long)r->n_lanes, (long long)r->n_workers);
}

wf_recipe wfi_recipe_of_worker(const wf_recipe *recipe) {
    wf_recipe r = *recipe;
    int64_t n = recipe->n_workers, ignored;
    /* The first part of a batch is the largest. */
    wf_recipe_part(recipe, recipe->batch, (int)n, 0, &ignored, &r.batch);
    r.n_micro = recipe->n_micro / n;
    r.n_lanes = recipe->n_lanes / n;
    r.update = WF_UPDATE_SYNC;
    r.n_workers = r.n_backup = 0;
    return r;
}
