/* Which units form which pipeline stage: by the cuts given, or balanced by FLOPs. */
#include "graph/op.h"
#include "plan/plan.h"

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
    int stage = 1;
    for (const char *at = plan->cut; *at; stage++) {
        size_t n = strcspn(at, "+");
        int32_t u = find_unit(g, at, n);
        if (u < 0)
            return wfi_fail(plan->ctx, WF_INVALID_ARG,
                            "plan: no unit is called '%.*s'; `weft plan` lists the units", (int)n,
                            at);
        if (stage == plan->pp)
            return wfi_fail(plan->ctx, WF_INVALID_ARG,
                            "plan: cut=%s makes more than pp=%d stages; name %d units", plan->cut,
                            plan->pp, plan->pp - 1);
        if (u <= first_unit_out[stage - 1])
            return wfi_fail(plan->ctx, WF_INVALID_ARG,
                            "plan: cut '%.*s' leaves a stage without units; cuts go in the model's "
                            "order and never at its first unit",
                            (int)n, at);
        first_unit_out[stage] = u;
        at += n + (at[n] == '+');
    }
    if (stage != plan->pp)
        return wfi_fail(plan->ctx, WF_INVALID_ARG, "plan: pp=%d needs %d cuts, cut=%s names %d",
                        plan->pp, plan->pp - 1, plan->cut, stage - 1);
    return WF_OK;
}

static void unit_flops(const wf_graph *g, double *flops_out) {
    for (int32_t u = 0; u < g->n_units; u++) flops_out[u] = 0;
    for (int32_t n = 0; n < g->n_nodes; n++) {
        const wfi_node *node = &g->nodes[n];
        if (!node->dead && node->op->flops) flops_out[node->unit] += node->op->flops(g, node);
    }
}

/* Smallest possible heaviest stage, by dynamic programming over (stages, units). */
static wf_status stages_balanced(const wf_plan *plan, const wf_graph *g, int32_t *first_unit_out) {
    int32_t n = g->n_units;
    int pp = plan->pp;
    size_t row = (size_t)n + 1;
    double *flops = wfi_alloc(g->ctx, row, sizeof *flops, "stages");
    double *best = wfi_alloc(g->ctx, row * ((size_t)pp + 1), sizeof *best, "stages");
    int32_t *from = wfi_alloc(g->ctx, row * ((size_t)pp + 1), sizeof *from, "stages");
    wf_status status = flops && best && from ? WF_OK : WF_NO_MEMORY;
    if (status == WF_OK) {
        unit_flops(g, flops);
        for (size_t i = 0; i < row * ((size_t)pp + 1); i++) best[i] = 1e300;
        best[0] = 0;
        for (int s = 1; s <= pp; s++)
            for (int32_t end = s; end <= n - (pp - s); end++) {
                double sum = 0;
                for (int32_t begin = end - 1; begin >= s - 1; begin--) {
                    sum += flops[begin];
                    double before = best[(size_t)(s - 1) * row + (size_t)begin];
                    double worst = before > sum ? before : sum;
                    if (worst < best[(size_t)s * row + (size_t)end]) {
                        best[(size_t)s * row + (size_t)end] = worst;
                        from[(size_t)s * row + (size_t)end] = begin;
                    }
                }
            }
        for (int32_t s = pp, end = n; s > 0; s--) {
            end = from[(size_t)s * row + (size_t)end];
            first_unit_out[s - 1] = end;
        }
    }
    wfi_free(g->ctx, flops);
    wfi_free(g->ctx, best);
    wfi_free(g->ctx, from);
    return status;
}

wf_status wfi_plan_stages(const wf_plan *plan, const wf_graph *g, int32_t *first_unit_out) {
    if (plan->pp > g->n_units)
        return wfi_fail(plan->ctx, WF_INVALID_ARG,
                        "plan: pp=%d stages, but the model has %d units; pp can be at most that",
                        plan->pp, g->n_units);
    first_unit_out[0] = 0;
    first_unit_out[plan->pp] = g->n_units;
    return plan->cut ? stages_by_cut(plan, g, first_unit_out)
                     : stages_balanced(plan, g, first_unit_out);
}
