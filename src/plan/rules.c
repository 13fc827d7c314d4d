/* Which strategy each unit follows, and where. */
#include "plan/plan.h"

#include <string.h>

int wfi_plan_rule_width(const wfi_plan_rule *rule, int64_t n_micro) {
    return (int)wfi_min_i64(rule->n, n_micro);
}

bool wfi_plan_names_unit(const wf_graph *g, int32_t unit, const char *name, size_t n) {
    const char *full = g->units[unit].name;
    return !strncmp(full, name, n) && (full[n] == 0 || full[n] == '.');
}

static bool is_named(const wfi_plan_rule *r, const wf_graph *g, int32_t unit) {
    return r->unit ? wfi_plan_names_unit(g, unit, r->unit, strlen(r->unit)) : unit != g->loss_unit;
}

wf_status wfi_plan_refuse_unit(const wf_plan *plan, const wf_graph *g, const char *name, size_t n,
                               int position) {
    wfi_text names = {.ctx = plan->ctx};
    for (int32_t u = 0; u < g->n_units; u++)
        wfi_text_add(&names, "%s%s", u ? ", " : "", g->units[u].name);
    wf_status status = wfi_text_status(&names);
    if (status == WF_OK)
        status = wfi_fail(plan->ctx, WF_INVALID_ARG,
                          "plan: no unit is called '%.*s' (position %d); the units are %.400s",
                          (int)n, name, position, names.data);
    wfi_free(plan->ctx, names.data);
    return status;
}

/* Writes the rule of each unit, or -1. */
static wf_status find_rules(const wf_plan *plan, const wf_graph *g, int32_t *rule_out) {
    for (int32_t u = 0; u < g->n_units; u++) rule_out[u] = -1;
    for (int k = 0; k < plan->n_rules; k++) {
        const wfi_plan_rule *r = &plan->rules[k];
        bool found = !r->unit;
        for (int32_t u = 0; u < g->n_units; u++) {
            if (!is_named(r, g, u)) continue;
            if (rule_out[u] >= 0)
                return wfi_fail(plan->ctx, WF_INVALID_ARG,
                                "plan: unit %s is named twice, as '%s' and as '%s' (position %d)",
                                g->units[u].name, plan->rules[rule_out[u]].unit, r->unit,
                                r->position);
            rule_out[u] = k;
            found = true;
        }
        if (!found) return wfi_plan_refuse_unit(plan, g, r->unit, strlen(r->unit), r->position);
    }
    return WF_OK;
}

static wfi_unit_placement place_unit(const wf_plan *plan, const wf_graph *g, int32_t unit,
                                     int32_t rule, int64_t n_micro) {
    if (!plan->n_rules)
        return (wfi_unit_placement){.strategy = plan->strategy, .n_replicas = plan->dp};
    if (rule >= 0)
        return (wfi_unit_placement){.strategy = plan->rules[rule].strategy,
                                    .n_replicas = wfi_plan_rule_width(&plan->rules[rule], n_micro)};
    return (wfi_unit_placement){.strategy = &wfi_strategy_dp,
                                .first_dp = unit == g->loss_unit ? plan->output : 0,
                                .n_replicas = 1};
}

wf_status wfi_plan_place(const wf_plan *plan, const wf_graph *g, const int32_t *first_unit,
                         int64_t n_micro, wfi_unit_placement *placement_out) {
    int32_t *rules = wfi_alloc(plan->ctx, (size_t)g->n_units, sizeof *rules, "a plan");
    if (!rules) return WF_NO_MEMORY;
    wf_status status = find_rules(plan, g, rules);
    int32_t stage = 0;
    for (int32_t u = 0; u < g->n_units && status == WF_OK; u++) {
        if (u == first_unit[stage + 1]) stage++;
        placement_out[u] = place_unit(plan, g, u, rules[u], n_micro);
        placement_out[u].stage = stage;
        placement_out[u].pp = wfi_schedule_device_of(plan->schedule, plan->pp, stage);
        placement_out[u].n_parts = plan->shard ? plan->shard : placement_out[u].n_replicas;
    }
    wfi_free(plan->ctx, rules);
    return status;
}
