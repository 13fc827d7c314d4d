/* Which units a plan spreads. */
#include "plan/plan.h"

#include <string.h>

int wfi_spread_width(const wfi_spread *spread, int64_t n_micro) {
    return (int)wfi_min_i64(spread->n, n_micro);
}

/* "layer3" is the unit of that name, and "layer3.0", "layer3.1", ... */
static bool is_named(const wfi_spread *s, const wf_graph *g, int32_t unit) {
    if (!s->unit) return unit != g->loss_unit;
    size_t n = strlen(s->unit);
    const char *name = g->units[unit].name;
    return !strncmp(name, s->unit, n) && (name[n] == 0 || name[n] == '.');
}

static wf_status refuse_unknown(const wf_plan *plan, const wf_graph *g, const wfi_spread *s) {
    wfi_text names;
    wfi_text_init(&names, plan->ctx);
    for (int32_t u = 0; u < g->n_units; u++)
        wfi_text_add(&names, "%s%s", u ? ", " : "", g->units[u].name);
    wf_status status = wfi_text_status(&names);
    if (status == WF_OK)
        status = wfi_fail(plan->ctx, WF_INVALID_ARG,
                          "plan: no unit is called '%s' (position %d); the units are %.400s",
                          s->unit, s->position, names.data);
    wfi_free(plan->ctx, names.data);
    return status;
}

wf_status wfi_plan_find_spreads(const wf_plan *plan, const wf_graph *g, int32_t *spread_out) {
    for (int32_t u = 0; u < g->n_units; u++) spread_out[u] = -1;
    for (int k = 0; k < plan->n_spreads; k++) {
        const wfi_spread *s = &plan->spreads[k];
        bool found = !s->unit;
        for (int32_t u = 0; u < g->n_units; u++) {
            if (!is_named(s, g, u)) continue;
            if (spread_out[u] >= 0)
                return wfi_fail(plan->ctx, WF_INVALID_ARG,
                                "plan: unit %s is named twice, as '%s' and as '%s' (position %d)",
                                g->units[u].name, plan->spreads[spread_out[u]].unit, s->unit,
                                s->position);
            spread_out[u] = k;
            found = true;
        }
        if (!found) return refuse_unknown(plan, g, s);
    }
    return WF_OK;
}
