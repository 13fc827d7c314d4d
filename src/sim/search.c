/* Plans of a search: their programs, whether these fit, and drafts of short steps. */
#include "sim/search.h"
#include "compile/compile.h"
#include "show/show.h"
#include "sim/step.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- peaks ---- */

size_t wfi_search_peak_of(const wf_program *p, wfi_space space, int32_t rank) {
    return wfi_program_largest(p, space, rank)->ranks[rank].arenas[space].peak_bytes;
}

int32_t wfi_search_largest(const wf_program *p, wfi_space space) {
    int32_t worst = 0;
    for (int32_t r = 1; r < p->n_ranks; r++)
        if (wfi_search_peak_of(p, space, r) > wfi_search_peak_of(p, space, worst)) worst = r;
    return worst;
}

size_t wfi_search_peak(const wf_program *p, wfi_space space) {
    return wfi_search_peak_of(p, space, wfi_search_largest(p, space));
}

bool wfi_search_fits(const wfi_search *s, const wf_program *p) {
    return wfi_search_peak(p, WFI_SPACE_DEVICE) <= s->device_bytes &&
           wfi_search_peak(p, WFI_SPACE_HOST) <= s->host_bytes;
}

/* ---- plans ---- */

bool wfi_search_may_divide(const wfi_search *s, int tp) {
    return wfi_lanes_allow(s->p->graph->n_slices, tp);
}

bool wfi_search_has_rows(const wfi_search *s, int tp) {
    const wf_graph *g = s->p->graph;
    bool has_rows = false;
    for (int32_t u = 0; u < g->n_units; u++) has_rows |= g->units[u].is_rows;
    return tp > 1 && has_rows && !g->has_uneven_rows;
}

wf_status wfi_search_plan(const wfi_search *s, int tp, bool sp, int dp, int pp, const char *keys,
                          wf_plan **plan_out) {
    char text[240];
    wf_plan *plan;
    WF_TRY(wfi_plan_copy(s->p->plan, &plan));
    wfi_plan_drop_rules(plan);
    if (pp != plan->pp) wfi_plan_drop_cut(plan);
    if (dp != plan->dp) wfi_plan_drop_lanes(plan);
    if (!plan->schedule->search || strstr(keys, "schedule")) plan->hold = 0;
    wfi_free(plan->ctx, plan->recompute);
    plan->recompute = NULL;
    memset(plan->offload, WFI_SPACE_DEVICE, sizeof plan->offload);
    plan->strategy = &wfi_strategy_dp;
    plan->shard = 0;
    plan->prefetch = WFI_DEFAULT_PREFETCH;
    snprintf(text, sizeof text, "tp=%d,sp=%s,dp=%d,pp=%d%s%s", tp, sp ? "on" : "off", dp, pp,
             *keys ? "," : "", keys);
    wf_status status = wfi_plan_set(plan, text);
    if (status == WF_INVALID_ARG && plan->lanes) { /* unequal shares do not go with all keys */
        wfi_plan_drop_lanes(plan);
        status = wfi_plan_set(plan, text);
    }
    if (status == WF_OK)
        *plan_out = plan;
    else
        wf_plan_destroy(plan);
    return status;
}

/* ---- programs ---- */

static bool is_found(const wfi_search *s, const char *plan, int64_t n_micro) {
    for (int k = 0; k < s->n_found; k++)
        if (s->found[k].n_micro == n_micro && !strcmp(s->found[k].plan, plan)) return true;
    return false;
}

static wf_status add_found(wfi_search *s, const wf_program *p) {
    if (is_found(s, p->plan->text, p->recipe.n_micro)) return WF_OK;
    wf_proposal found = {.n_micro = p->recipe.n_micro,
                         .n_lanes = p->recipe.n_lanes,
                         .n_slices = p->recipe.n_slices,
                         .peak_bytes = wfi_search_peak(p, WFI_SPACE_DEVICE)};
    WF_TRY(wfi_simulate_step(p, &found.step_us));
    WF_TRY(WFI_GROW(s->p->ctx, s->found, s->n_found, s->capacity, "proposals"));
    found.plan = wfi_strdup(s->p->ctx, p->plan->text);
    if (!found.plan) return WF_NO_MEMORY;
    s->found[s->n_found++] = found;
    return WF_OK;
}

wf_status wfi_search_create(const wf_program *p, const wf_model *model, const wf_recipe *recipe,
                            const wf_plan *plan, wfi_program_use use, wf_program **program_out) {
    return wfi_program_create(p->ctx, model, recipe, plan, p->backend, p->kind, use, NULL,
                              program_out);
}

static size_t most_state_bytes(const wf_program *p) {
    size_t most = 0;
    for (int32_t r = 0; r < p->n_ranks; r++) {
        size_t bytes = p->ranks[r].arenas[WFI_SPACE_DEVICE].state_bytes;
        if (bytes > most) most = bytes;
    }
    return most;
}

wf_status wfi_search_try(wfi_search *s, const wf_plan *plan, const wf_recipe *recipe,
                         bool *fits_out, size_t *state_bytes_out) {
    const wf_program *p = s->p;
    wf_program *other;
    *fits_out = false;
    *state_bytes_out = 0;
    WF_TRY(wfi_search_create(p, p->model, recipe, plan, WFI_USE_LOOK_SHORT, &other));
    *state_bytes_out = most_state_bytes(other);
    wf_status status = WF_OK;
    if (wfi_search_fits(s, other)) status = wf_program_plan_tests(other, p->n_test, p->n_at_once);
    if (status == WF_OK && wfi_search_fits(s, other)) {
        *fits_out = true;
        status = add_found(s, other);
    }
    wf_program_destroy(other);
    return status;
}

/* ---- drafts ---- */

bool wfi_search_shorten(const wf_plan *plan, wf_recipe *r) {
    int64_t n_lane = wfi_max_i64(2, 4 * wf_plan_n_ranks(plan) / r->n_lanes),
            n = r->n_lanes * n_lane;
    if (r->batch % r->n_micro || 2 * n > r->n_micro) return false;
    r->batch = r->batch / r->n_micro * n;
    r->n_micro = n;
    return true;
}

/* Finds the bounds of a step, in parts of the memory given. Of a program that cannot be lowered: 0.
 */
static wf_status draft(const wfi_search *s, const wf_plan *plan, const wf_recipe *recipe,
                       double *share_out, size_t *state_bytes_out) {
    wf_program *p;
    *share_out = 0;
    wf_status status = wfi_search_create(s->p, s->p->model, recipe, plan, WFI_USE_DRAFT, &p);
    if (status != WF_OK) return status == WF_NO_MEMORY ? status : WF_OK;
    *share_out = fmax((double)wfi_search_peak(p, WFI_SPACE_DEVICE) / (double)s->device_bytes,
                      (double)wfi_search_peak(p, WFI_SPACE_HOST) / (double)s->host_bytes);
    *state_bytes_out = most_state_bytes(p);
    wf_program_destroy(p);
    return WF_OK;
}

wf_status wfi_search_may_fit(const wfi_search *s, const wf_plan *plan, const wf_recipe *recipe,
                             bool *may_out, size_t *state_bytes_out) {
    wf_recipe shorter = *recipe;
    double share = 0;
    if (wfi_search_shorten(plan, &shorter))
        WF_TRY(draft(s, plan, &shorter, &share, state_bytes_out));
    if (share > 1 && share <= 1.25) WF_TRY(draft(s, plan, recipe, &share, state_bytes_out));
    *may_out = share <= 1;
    return WF_OK;
}
