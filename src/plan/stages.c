/* Which units form which pipeline stage: by the cuts given, or balanced by their costs. */
#include "plan/balance.h"

#include <string.h>

/* "layer3" names the unit of that name, or the first of "layer3.0", "layer3.1", ... */
static int32_t find_unit(const wf_graph *g, const char *name, size_t n) {
    for (int32_t u = 0; u < g->n_units; u++)
        if (!strncmp(g->units[u].name, name, n) &&
            (g->units[u].name[n] == 0 || g->units[u].name[n] == '.'))
            return u;
    return -1;
}

static wf_status stages_by_cut(const wf_plan *plan, const wf_graph *g, int32_t *first_unit_out) {
    int stage = 1, n = wfi_plan_n_stages(plan, g->n_units);
    for (const char *at = plan->cut; *at; stage++) {
        size_t length = strcspn(at, "+");
        int32_t u = find_unit(g, at, length);
        if (u < 0)
            return wfi_fail(plan->ctx, WF_INVALID_ARG,
                            "plan: no unit is called '%.*s'; `weft plan` lists the units",
                            (int)length, at);
        if (stage == n)
            return wfi_fail(plan->ctx, WF_INVALID_ARG,
                            "plan: cut=%s makes more than %d stages; name %d units", plan->cut, n,
                            n - 1);
        if (u <= first_unit_out[stage - 1])
            return wfi_fail(plan->ctx, WF_INVALID_ARG,
                            "plan: cut '%.*s' leaves a stage without units; cuts go in the model's "
                            "order and never at its first unit",
                            (int)length, at);
        if (!wfi_unit_may_begin_stage(g, u))
            return wfi_fail(plan->ctx, WF_INVALID_ARG,
                            "plan: cut '%.*s' lies between slices that are summed; a stage may "
                            "begin at the first slice or after the last",
                            (int)length, at);
        first_unit_out[stage] = u;
        at += length + (at[length] == '+');
    }
    if (stage != n)
        return wfi_fail(plan->ctx, WF_INVALID_ARG,
                        "plan: %d stages on pp=%d ranks need %d cuts, cut=%s names %d", n, plan->pp,
                        n - 1, plan->cut, stage - 1);
    return WF_OK;
}

/* As the model marks them; false if it marks another number of stages. */
static bool stages_marked(const wf_plan *plan, const wf_graph *g, int32_t *first_unit_out) {
    int n = 1, n_stages = wfi_plan_n_stages(plan, g->n_units);
    for (int32_t u = 1; u < g->n_units; u++)
        if (g->units[u].begins_stage && n++ < n_stages) first_unit_out[n - 1] = u;
    return n == n_stages;
}

wf_status wfi_plan_stages(const wf_plan *plan, const wf_graph *g, const wf_costs *costs,
                          int n_micro, int32_t *first_unit_out) {
    int n_stages = wfi_plan_n_stages(plan, g->n_units), n_most = 0;
    for (int32_t u = 0; u < g->n_units; u++)
        n_most += plan->pp == 1 || wfi_unit_may_begin_stage(g, u);
    if (n_stages > n_most && plan->pp <= n_most)
        return wfi_fail(
            plan->ctx, WF_INVALID_ARG,
            "plan: pp=%d ranks with %d stages each by schedule=%s, but the model has %d "
            "units; a rank can have at most %d stages",
            plan->pp, n_stages / plan->pp, plan->schedule->name, n_most, n_most / plan->pp);
    if (n_stages > n_most)
        return wfi_fail(plan->ctx, WF_INVALID_ARG,
                        "plan: pp=%d stages, but the model has %d units; pp can be at most that",
                        plan->pp, n_most);
    first_unit_out[0] = 0;
    first_unit_out[n_stages] = g->n_units;
    if (plan->cut && strcmp(plan->cut, WFI_CUT_BALANCED))
        return stages_by_cut(plan, g, first_unit_out);
    if (n_stages == g->n_units) {
        for (int32_t u = 0; u < n_stages; u++) first_unit_out[u] = u;
        return WF_OK;
    }
    if (!plan->cut && stages_marked(plan, g, first_unit_out)) return WF_OK;
    return wfi_balance(plan, g, costs, n_micro, first_unit_out);
}

wf_status wfi_plan_costs(const wf_plan *plan, const wf_graph *g, wf_costs **costs_out) {
    if (!plan->costs) return wfi_costs_compute(g, costs_out);
    WF_TRY(wfi_costs_suit(plan->ctx, plan->costs, g, costs_out));
    wf_status status = wfi_costs_complete(g, *costs_out); /* of this graph's repetitions */
    if (status != WF_OK) wf_costs_destroy(*costs_out);
    return status;
}
