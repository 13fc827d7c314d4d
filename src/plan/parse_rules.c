/* The keys of a plan that give the model, or units of it, a strategy over ranks 0 to N - 1:
 * dataparallel=N, UNIT:dp=N, UNIT:dataparallel=N, output=R. */
#include "plan/parse.h"

#include <stdio.h>
#include <string.h>

/* A strategy's name, or "UNIT:" and one. NULL: it is none; "dp" alone is an axis of the mesh. */
static const wfi_strategy *read_key(const char *key, size_t *n_unit_out) {
    const char *colon = strrchr(key, ':');
    const wfi_strategy *strategy = wfi_strategy_find(colon ? colon + 1 : key);
    *n_unit_out = colon ? (size_t)(colon - key) : 0;
    return colon || strategy != &wfi_strategy_dp ? strategy : NULL;
}

/* As a user types it. */
static wf_status name_rule(const wf_plan *plan, const wfi_plan_rule *r, char **name_out) {
    *name_out = wfi_sprintf(plan->ctx, "%s%s%s=%d", r->unit ? r->unit : "", r->unit ? ":" : "",
                            r->strategy->name, r->n);
    return *name_out ? WF_OK : WF_NO_MEMORY;
}

static bool same_unit(const wfi_plan_rule *r, const char *unit, size_t n) {
    return r->unit ? strlen(r->unit) == n && n && !strncmp(r->unit, unit, n) : n == 0;
}

wf_status wfi_plan_parse_rule(wf_plan *plan, const wfi_pair *pair, bool *found_out) {
    size_t n_unit;
    wfi_plan_rule r = {.position = pair->position};
    r.strategy = read_key(pair->key, &n_unit);
    if (n_unit && !strcmp(pair->key + n_unit, ":zero"))
        return wfi_fail(plan->ctx, WF_INVALID_ARG,
                        "plan: '%s' at position %d: zero divides the state of the whole model over "
                        "dp; write dp=N,zero=%s",
                        pair->key, pair->position, pair->value);
    *found_out = r.strategy;
    if (!*found_out) return WF_OK;
    if (strchr(pair->key, ':') && !n_unit)
        return wfi_fail(plan->ctx, WF_INVALID_ARG,
                        "plan: '%s' at position %d names no unit; write UNIT%s", pair->key,
                        pair->position, pair->key);
    WF_TRY(wfi_plan_parse_number(pair, 1, &r.n));
    for (int k = 0; k < plan->n_rules; k++)
        if (same_unit(&plan->rules[k], pair->key, n_unit))
            return wfi_fail(plan->ctx, WF_INVALID_ARG,
                            "plan: the strategy of %.*s is given twice, again at position %d",
                            n_unit ? (int)n_unit : 9, n_unit ? pair->key : "the model",
                            pair->position);
    if (plan->n_rules == WFI_MAX_RULES)
        return wfi_fail(plan->ctx, WF_INVALID_ARG, "plan: more than %d units are named",
                        WFI_MAX_RULES);
    if (!plan->rules)
        plan->rules = wfi_alloc(plan->ctx, WFI_MAX_RULES, sizeof *plan->rules, "a plan");
    if (!plan->rules) return WF_NO_MEMORY;
    if (n_unit) r.unit = wfi_sprintf(plan->ctx, "%.*s", (int)n_unit, pair->key);
    if (n_unit && !r.unit) return WF_NO_MEMORY;
    plan->rules[plan->n_rules++] = r;
    return WF_OK;
}

/* ---- combinations of keys ---- */

wf_status wfi_plan_refuse_with_rules(const wf_plan *plan, wfi_plan_key key, const char *advice) {
    char *name;
    WF_TRY(name_rule(plan, &plan->rules[0], &name));
    wf_status status =
        wfi_fail(plan->ctx, WF_INVALID_ARG, "plan: %s at position %d does not go with %s; %s",
                 wf_plan_key((int)key), plan->position[key], name, advice);
    wfi_free(plan->ctx, name);
    return status;
}

static wf_status check_allreduce(const wf_plan *plan) {
    bool is_used = plan->allreduce == wfi_allreduce_find("root") ||
                   plan->allreduce == wfi_allreduce_find("auto");
    for (int k = 0; k < plan->n_rules; k++)
        is_used |= plan->rules[k].strategy->gradient == WFI_REPLICATE;
    return is_used ? WF_OK
                   : wfi_plan_refuse_with_rules(plan, WFI_PLAN_ALLREDUCE,
                                                "gradients are summed on the root alone: leave it "
                                                "out, or choose dp");
}

static wf_status check_output(const wf_plan *plan) {
    if (plan->output < plan->rules[0].n) return WF_OK;
    return wfi_fail(plan->ctx, WF_INVALID_ARG,
                    "plan: output=%d at position %d, but dataparallel=%d has ranks 0 to %d",
                    plan->output, plan->position[WFI_PLAN_OUTPUT], plan->rules[0].n,
                    plan->rules[0].n - 1);
}

wf_status wfi_plan_check_rules(wf_plan *plan) {
    if (!plan->n_rules) return WF_OK;
    WF_TRY(check_output(plan));
    WF_TRY(check_allreduce(plan));
    for (int k = 0; k < plan->n_rules; k++) {
        const wfi_plan_rule *r = &plan->rules[k];
        if (!r->unit && plan->n_rules > 1)
            return wfi_fail(plan->ctx, WF_INVALID_ARG,
                            "plan: dataparallel=%d at position %d applies to all units; leave out "
                            "either it or the named units",
                            r->n, r->position);
        if (r->n > plan->dp) plan->dp = r->n;
    }
    plan->position[WFI_PLAN_DP] = 0; /* from here on dp is the widest of the rules */
    return WF_OK;
}

void wfi_plan_rules_text(const wf_plan *plan, wfi_text *text) {
    for (int k = 0; k < plan->n_rules; k++) {
        const wfi_plan_rule *r = &plan->rules[k];
        wfi_text_add(text, "%s%s%s%s=%d", k ? "," : "", r->unit ? r->unit : "", r->unit ? ":" : "",
                     r->strategy->name, r->n);
    }
}
