/* The recipe: checked and resolved. */
#include "kernel/tuned.h"
#include "plan/lanes.h"
#include "plan/part.h"
#include "plan/plan.h"
#include "plan/recipe_fields.h"

#include <math.h>
#include <string.h>
#include <weft/info.h>
#include <weft/recipe.h>

double wf_recipe_lr(const wf_recipe *r, int64_t step) {
    if (step < r->warmup_steps) return r->lr * (double)(step + 1) / (double)r->warmup_steps;
    int64_t n = r->schedule_steps;
    switch (r->lr_schedule) {
    case WF_LR_CONSTANT:
    case WF_LR_PLATEAU:
        break;
    case WF_LR_STEP:
        return n > 0 ? r->lr * pow(r->lr_gamma, (double)(step / n)) : r->lr;
    case WF_LR_COSINE: {
        if (n <= r->warmup_steps) return r->lr;
        double at = (double)(step - r->warmup_steps) / (double)(n - r->warmup_steps);
        return at >= 1 ? 0 : r->lr * 0.5 * (1 + cos(3.141592653589793 * at));
    }
    }
    return r->lr;
}

/* The divisors of `n` next to `near`, for the sentence that refuses it. */
static void nearest_divisors(int64_t n, int64_t near, int64_t *below_out, int64_t *above_out) {
    int64_t below = wfi_min_i64(near, n), above = wfi_min_i64(wfi_max_i64(near, 1), n);
    while (below > 1 && n % below) below--;
    while (above < n && n % above) above++;
    *below_out = wfi_max_i64(below, 1);
    *above_out = above;
}

static wf_status check_numbers(wf_context *ctx, const wf_recipe *r) {
    for (int k = 0; k < wfi_recipe_n_fields; k++) {
        const wfi_recipe_field *field = &wfi_recipe_fields[k];
        double value = wfi_recipe_number(r, field);
        const char *text = (const char *)r + field->offset;
        if (field->kind == WFI_RECIPE_NAMES && !memchr(text, 0, (size_t)field->most + 1))
            return wfi_fail(ctx, WF_INVALID_ARG, "recipe: %s has no end", field->name);
        if (value >= field->least && value <= field->most) continue; /* false for NaN */
        return wfi_fail(ctx, WF_INVALID_ARG,
                        "recipe: %s is %.15g; it must lie between %.15g and %.15g", field->name,
                        value, field->least, field->most);
    }
    WF_TRY(wfi_tuned_check(ctx, r->tuned.text));
    if (r->nesterov && r->momentum == 0)
        return wfi_fail(ctx, WF_INVALID_ARG, "recipe: nesterov needs a momentum above 0");
    if ((r->lr_schedule == WF_LR_STEP || r->lr_schedule == WF_LR_COSINE) && r->schedule_steps == 0)
        return wfi_fail(ctx, WF_INVALID_ARG,
                        "recipe: a step or cosine schedule needs to know its number of steps");
    return WF_OK;
}

static int cores_per_rank(const wf_plan *plan) {
    int n = wf_info_limits().n_cores;
    return n / wf_plan_n_ranks(plan) > 1 ? n / wf_plan_n_ranks(plan) : 1;
}

static wf_status refuse_lanes(wf_context *ctx, const wf_recipe *r, const char *unit,
                              const char *key, int n, int width) {
    return wfi_fail(ctx, WF_INVALID_ARG,
                    "recipe: the summation tree over %lld lanes has no %d whole subtrees for "
                    "%s%s%s=%d; %d lanes would do",
                    (long long)r->n_lanes, width, unit ? unit : "", unit ? ":" : "", key, n, width);
}

static wf_status check_slices(wf_context *ctx, const wf_recipe *r, const wf_plan *plan) {
    if (wfi_lanes_allow(r->n_slices, plan->tp)) return WF_OK;
    return wfi_fail(ctx, WF_INVALID_ARG,
                    "recipe: slices=%lld: the tree over which they are summed has no %d whole "
                    "subtrees for tp=%d; slices=%d would do",
                    (long long)r->n_slices, plan->tp, plan->tp, plan->tp);
}

static wf_status check_lanes(wf_context *ctx, const wf_recipe *r, const wf_plan *plan) {
    if (!plan->n_rules && !wfi_lanes_allow(r->n_lanes, plan->dp))
        return refuse_lanes(ctx, r, NULL, "dp", plan->dp, plan->dp);
    for (int k = 0; k < plan->n_rules; k++) {
        const wfi_plan_rule *s = &plan->rules[k];
        int width = wfi_plan_rule_width(s, r->n_micro);
        if (!wfi_lanes_allow(r->n_lanes, width))
            return refuse_lanes(ctx, r, s->unit, s->strategy->name, s->n, width);
    }
    return WF_OK;
}

wf_status wf_recipe_resolve(wf_context *ctx, const wf_recipe *recipe, const wf_plan *plan,
                            wf_recipe *resolved_out) {
    WF_TRY(wfi_check_struct(ctx, recipe, sizeof *recipe, "wf_recipe"));
    wf_recipe r = *recipe;
    int dp = wf_plan_dp(plan);
    WF_TRY(check_numbers(ctx, &r));
    /* A rule has no more replicas than microbatches. */
    if (r.n_lanes == 0)
        r.n_lanes = plan->n_rules ? wfi_min_i64(dp, r.n_micro ? r.n_micro : r.batch) : dp;
    if (r.n_micro == 0) r.n_micro = r.n_lanes;
    if (r.n_slices == 0) r.n_slices = plan->tp;
    if (r.n_threads == 0) r.n_threads = cores_per_rank(plan);
    int64_t below, above;
    if (r.n_micro > r.batch)
        return wfi_fail(ctx, WF_INVALID_ARG,
                        "recipe: %lld microbatches of a batch of %lld; there can be %lld at most",
                        (long long)r.n_micro, (long long)r.batch, (long long)r.batch);
    if (r.n_micro % r.n_lanes) {
        nearest_divisors(r.n_micro, r.n_lanes, &below, &above);
        return wfi_fail(ctx, WF_INVALID_ARG,
                        "recipe: %lld lanes do not divide %lld microbatches; %lld or %lld would",
                        (long long)r.n_lanes, (long long)r.n_micro, (long long)below,
                        (long long)above);
    }
    WF_TRY(check_lanes(ctx, &r, plan));
    WF_TRY(check_slices(ctx, &r, plan));
    *resolved_out = r;
    return WF_OK;
}

void wf_recipe_part(const wf_recipe *recipe, int64_t n_samples, int n_parts, int part,
                    int64_t *first_out, int64_t *n_out) {
    int64_t n_micro = recipe->n_micro / n_parts;
    *first_out = wfi_first_sample(n_samples, recipe->n_micro, part * n_micro);
    *n_out = wfi_first_sample(n_samples, recipe->n_micro, (part + 1) * n_micro) - *first_out;
}
