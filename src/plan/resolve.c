/* The recipe resolved for a plan. */
#include "kernel/tuned.h"
#include "plan/lanes.h"
#include "plan/plan.h"
#include "plan/workers.h"
#include "recipe/defaults.h"
#include "recipe/recipe.h"

#include <stdio.h>
#include <string.h>
#include <weft/info.h>

/* The divisors of `n` next to `near`, for the sentence that refuses it. */
static void nearest_divisors(int64_t n, int64_t near, int64_t *below_out, int64_t *above_out) {
    int64_t below = wfi_min_i64(near, n), above = wfi_min_i64(wfi_max_i64(near, 1), n);
    while (below > 1 && n % below) below--;
    while (above < n && n % above) above++;
    *below_out = wfi_max_i64(below, 1);
    *above_out = above;
}

static int cores_per_rank(const wf_plan *plan) {
    int n = wf_info_limits().n_cores, n_ranks = plan ? wf_plan_n_ranks(plan) : 1;
    return n / n_ranks > 1 ? n / n_ranks : 1;
}

/* ---- needs of a plan ---- */

/* Replicas that each sum whole subtrees of lanes. A rule has no more of them than microbatches, of
 * which there can be as many as samples if none are given. */
static int n_summing(const wf_recipe *r, const wf_plan *plan, int k) {
    if (!plan->n_rules) return plan->dp;
    return wfi_plan_rule_width(&plan->rules[k], r->n_micro ? r->n_micro : r->batch);
}

static int n_sums(const wf_plan *plan) {
    return plan->n_rules ? plan->n_rules : 1;
}

static bool lanes_suit(const wf_recipe *r, const wf_plan *plan, int64_t n_lanes) {
    bool suit = true;
    if (plan->lanes) return wfi_plan_n_lanes(plan) == n_lanes;
    if (plan->measures_lanes) return plan->dp <= n_lanes;
    for (int k = 0; k < n_sums(plan); k++) suit &= wfi_lanes_allow(n_lanes, n_summing(r, plan, k));
    return suit;
}

static int64_t lanes_needed(const wf_recipe *r, const wf_plan *plan) {
    int64_t most = wfi_max_i64(wfi_plan_n_lanes(plan), 1);
    for (int k = 0; k < n_sums(plan); k++) most = wfi_max_i64(most, n_summing(r, plan, k));
    return most;
}

/* "dp=4" or "layer3:dp=4", the first that the lanes do not suit. */
static void name_refused(const wf_recipe *r, const wf_plan *plan, int64_t n_lanes, char *text,
                         size_t bytes) {
    int k = 0;
    while (k + 1 < n_sums(plan) && wfi_lanes_allow(n_lanes, n_summing(r, plan, k))) k++;
    if (!plan->n_rules) {
        size_t at = (size_t)snprintf(text, bytes, plan->lanes ? "lanes=" : "dp=%d", plan->dp);
        for (int i = 0; plan->lanes && i < plan->n_shares && at < bytes; i++)
            at += (size_t)snprintf(text + at, bytes - at, "%s%d", i ? "+" : "", plan->lanes[i]);
        return;
    }
    const wfi_plan_rule *rule = &plan->rules[k];
    snprintf(text, bytes, "%s%s%s=%d", rule->unit ? rule->unit : "", rule->unit ? ":" : "",
             rule->strategy->name, rule->n);
}

/* Microbatches that so many lanes divide, next to `near`; 0: the batch has too few samples. */
static int64_t micro_for(const wf_recipe *r, int64_t near, int64_t n_lanes) {
    int64_t above = (near + n_lanes - 1) / n_lanes * n_lanes;
    return above <= r->batch ? above : r->batch / n_lanes * n_lanes;
}

/* For a few replicas: uneven shares of the recipe's lanes that keep its numbers. */
static void list_shares(const wf_plan *plan, int64_t n_lanes, char *text, size_t bytes) {
    size_t at = 0;
    bool needs_equal = plan->n_rules || plan->lanes || wfi_plan_moves_parameters(plan);
    if (needs_equal || plan->dp > 8 || plan->dp > n_lanes || n_lanes > 999) return;
    for (int64_t k = 0; k < plan->dp; k++)
        at += (size_t)snprintf(text + at, bytes - at, "%s%lld", k ? "+" : "lanes=",
                               (long long)(n_lanes / plan->dp + (k < n_lanes % plan->dp)));
    snprintf(text + at, bytes - at, " in the plan keeps its numbers; ");
}

/* `given` is the recipe before its defaults, r after. */
static wf_status refuse_lanes(wf_context *ctx, const wf_recipe *given, const wf_recipe *r,
                              const wf_plan *plan) {
    char what[128], micro[48] = "", shares[80] = "";
    int64_t n = lanes_needed(given, plan), n_micro = micro_for(r, given->n_micro, n);
    name_refused(given, plan, r->n_lanes, what, sizeof what);
    if (n > r->batch)
        return wfi_fail(ctx, WF_INVALID_ARG,
                        "plan: %s has more %s than the batch has samples, %lld", what,
                        plan->lanes ? "lanes" : "replicas", (long long)r->batch);
    if (!lanes_suit(given, plan, n))
        return wfi_fail(ctx, WF_INVALID_ARG,
                        "plan: no number of lanes suits both %s and the plan's other replicas",
                        what);
    if (given->n_micro && n_micro != given->n_micro)
        snprintf(micro, sizeof micro, " --micro %lld", (long long)n_micro);
    list_shares(plan, r->n_lanes, shares, sizeof shares);
    return wfi_fail(
        ctx, WF_INVALID_ARG,
        "plan: %s needs %lld lanes, and this recipe has %lld; %s--lanes %lld%s is another "
        "recipe, with other numbers on one rank, too",
        what, (long long)n, (long long)r->n_lanes, shares, (long long)n, micro);
}

/* Ranks along tp that the heads of attention allow: "2, 3 or 6". */
static void list_tp(int64_t n_heads, char *text, size_t bytes) {
    size_t at = 0;
    text[0] = 0;
    for (int64_t n = 2; n <= n_heads && at + 32 < bytes; n++) {
        if (n_heads % n) continue;
        const char *before = !at ? "" : n == n_heads ? " or " : ", ";
        at += (size_t)snprintf(text + at, bytes - at, "%s%lld", before, (long long)n);
    }
}

static wf_status refuse_slices(wf_context *ctx, const wf_model *model, const wf_recipe *r,
                               const wf_plan *plan) {
    wfi_model_facts facts;
    char others[160];
    WF_TRY(wfi_recipe_look(model, 1, &facts));
    if (facts.n_heads && facts.n_heads % plan->tp) {
        list_tp(facts.n_heads, others, sizeof others);
        return wfi_fail(ctx, WF_INVALID_ARG,
                        "plan: tp=%d does not divide the %lld heads of attention; tp=%s would",
                        plan->tp, (long long)facts.n_heads, *others ? others : "1");
    }
    if (model) WF_TRY(wfi_recipe_check_slices(model, plan->tp));
    return wfi_fail(ctx, WF_INVALID_ARG,
                    "plan: tp=%d needs %d slices, and this recipe has %lld; --slices %d is another "
                    "recipe, with other numbers on one rank, too",
                    plan->tp, plan->tp, (long long)r->n_slices, plan->tp);
}

static wf_status check_slices(wf_context *ctx, const wf_recipe *r, const wf_model *model,
                              const wf_plan *plan) {
    if (wfi_lanes_allow(r->n_slices, plan->tp)) return WF_OK;
    return refuse_slices(ctx, model, r, plan);
}

/* ---- resolving ---- */

/* `given` is the recipe before its defaults. */
static wf_status check_micro(wf_context *ctx, const wf_recipe *given, const wf_recipe *r) {
    int64_t below, above;
    if (r->n_micro > r->batch)
        return wfi_fail(ctx, WF_INVALID_ARG,
                        "recipe: %lld %s of a batch of %lld; there can be %lld at most",
                        (long long)r->n_micro, given->n_micro ? "microbatches" : "lanes",
                        (long long)r->batch, (long long)r->batch);
    if (r->n_micro % r->n_lanes == 0) return WF_OK;
    nearest_divisors(r->n_micro, r->n_lanes, &below, &above);
    char other[32] = "";
    if (above != below) snprintf(other, sizeof other, " or %lld", (long long)above);
    return wfi_fail(ctx, WF_INVALID_ARG,
                    "recipe: %lld lanes do not divide %lld microbatches; %lld%s would",
                    (long long)r->n_lanes, (long long)r->n_micro, (long long)below, other);
}

/* `follows`: lanes and slices that are open follow the plan where the model's do not suit it. */
static wf_status resolve(wf_context *ctx, const wf_recipe *recipe, const wf_model *model,
                         const wf_plan *plan, bool follows, wf_recipe *resolved_out) {
    WF_TRY(wfi_check_struct(ctx, recipe, sizeof *recipe, "wf_recipe"));
    wf_recipe r = *recipe;
    WF_TRY(wfi_recipe_check(ctx, &r));
    if (r.tuned) {
        WF_TRY(wfi_tuned_check(ctx, r.tuned));
        WF_TRY(wfi_context_keep(ctx, r.tuned, &r.tuned));
    }
    WF_TRY(wfi_recipe_fill(model, &r));
    bool is_sync = r.update == WF_UPDATE_SYNC;
    WF_TRY(wfi_recipe_resolve_workers(ctx, &r, plan, follows && !recipe->n_lanes));
    if (follows && is_sync && !recipe->n_lanes && !lanes_suit(recipe, plan, r.n_lanes))
        r.n_lanes = lanes_needed(recipe, plan);
    if (follows && !recipe->n_slices && !wfi_lanes_allow(r.n_slices, plan->tp))
        r.n_slices = plan->tp;
    if (!r.n_micro) r.n_micro = r.n_lanes;
    if (!r.n_threads) r.n_threads = cores_per_rank(plan);
    WF_TRY(check_micro(ctx, recipe, &r));
    if (plan && is_sync && !lanes_suit(recipe, plan, r.n_lanes))
        return refuse_lanes(ctx, recipe, &r, plan);
    if (plan) WF_TRY(check_slices(ctx, &r, model, plan));
    *resolved_out = r;
    return WF_OK;
}

wf_status wf_recipe_resolve(wf_context *ctx, const wf_recipe *recipe, const wf_model *model,
                            const wf_plan *plan, wf_recipe *resolved_out) {
    return resolve(ctx, recipe, model, plan, false, resolved_out);
}

wf_status wf_recipe_resolve_for(wf_context *ctx, const wf_recipe *recipe, const wf_model *model,
                                const wf_plan *plan, wf_recipe *resolved_out) {
    return resolve(ctx, recipe, model, plan, true, resolved_out);
}

wf_status wfi_recipe_resolve_forward(wf_context *ctx, const wf_recipe *recipe,
                                     const wf_model *model, const wf_plan *plan,
                                     wf_recipe *resolved_out) {
    WF_TRY(wfi_check_struct(ctx, recipe, sizeof *recipe, "wf_recipe"));
    wf_recipe r = *recipe;
    if (!r.n_threads) r.n_threads = cores_per_rank(plan);
    WF_TRY(resolve(ctx, &r, model, NULL, false, &r));
    WF_TRY(check_slices(ctx, &r, model, plan));
    *resolved_out = r;
    return WF_OK;
}
