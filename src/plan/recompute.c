/* The key `recompute`: which units make their activations again instead of keeping them. */
#include "plan/parse.h"

/* A name, and perhaps this behind it. */
static const char cheap_only[] = ":selective";

/* The element that begins at `at`: its name is n_out long. Returns where the next one begins, or
 * NULL behind the last. */
static const char *next_element(const char *at, size_t *n_out, wfi_recompute *how_out) {
    size_t n = strcspn(at, "+"), n_suffix = sizeof cheap_only - 1;
    bool is_cheap = n >= n_suffix && !strncmp(at + n - n_suffix, cheap_only, n_suffix);
    *how_out = is_cheap ? WFI_RECOMPUTE_SELECTIVE : WFI_RECOMPUTE_ALL;
    *n_out = is_cheap ? n - n_suffix : n;
    return at[n] ? at + n + 1 : NULL;
}

wf_status wfi_plan_parse_recompute(wf_plan *plan, const wfi_pair *pair) {
    static const char *const words[] = {"none", "all", "selective", "auto"};
    bool is_whole = true;
    size_t n;
    wfi_recompute how;
    for (const char *at = pair->value; at;) {
        at = next_element(at, &n, &how);
        is_whole = is_whole && n;
    }
    if (!is_whole)
        return wfi_pair_refuse(pair, "none, all, selective, auto, or units such as A+B or "
                                     "A+B:selective");
    const char *value = pair->value;
    for (size_t k = 0; k < WFI_COUNT(words); k++)
        if (!strcasecmp(value, words[k])) value = words[k];
    if (value == words[0]) return WF_OK;
    plan->recompute = wfi_strdup(plan->ctx, value);
    return plan->recompute ? WF_OK : WF_NO_MEMORY;
}

static int32_t find_unit(const wf_graph *g, const char *name, size_t n) {
    for (int32_t u = 0; u < g->n_units; u++)
        if (strlen(g->units[u].name) == n && !strncmp(g->units[u].name, name, n)) return u;
    return -1;
}

/* The unit of that name; if there is none, those that it is the beginning of. */
static bool is_named(const wf_graph *g, int32_t unit, const char *name, size_t n) {
    int32_t exact = find_unit(g, name, n);
    return exact < 0 ? wfi_plan_names_unit(g, unit, name, n) : exact == unit;
}

static wf_status find_named(const wf_plan *plan, const wf_graph *g, wfi_recompute *how_out) {
    int position = plan->position[WFI_PLAN_RECOMPUTE];
    for (const char *at = plan->recompute; at;) {
        const char *name = at;
        bool found = false;
        wfi_recompute how;
        size_t n;
        at = next_element(at, &n, &how);
        for (int32_t u = 0; u < g->n_units; u++) {
            if (!is_named(g, u, name, n)) continue;
            if (how_out[u])
                return wfi_fail(plan->ctx, WF_INVALID_ARG,
                                "plan: recompute at position %d names unit %s twice", position,
                                g->units[u].name);
            how_out[u] = how;
            found = true;
        }
        if (!found) return wfi_plan_refuse_unit(plan, g, name, n, position);
    }
    return WF_OK;
}

/* How each unit's activations are kept, how_out[n_units]. */
static wf_status find_how(const wf_plan *plan, const wf_graph *g, wfi_recompute *how_out) {
    const char *value = plan->recompute;
    bool all = value && !strcmp(value, "all"), cheap = value && !strcmp(value, "selective");
    for (int32_t u = 0; u < g->n_units; u++)
        how_out[u] = all ? WFI_RECOMPUTE_ALL : cheap ? WFI_RECOMPUTE_SELECTIVE : WFI_RECOMPUTE_NONE;
    bool is_list = value && !all && !cheap && !wfi_plan_chooses_recompute(plan);
    return is_list ? find_named(plan, g, how_out) : WF_OK;
}

wf_status wfi_plan_recompute(const wf_plan *plan, wf_graph *g) {
    if (!plan->recompute) return WF_OK;
    wfi_recompute *how = wfi_alloc(plan->ctx, (size_t)g->n_units, sizeof *how, "a plan");
    if (!how) return WF_NO_MEMORY;
    wf_status status = find_how(plan, g, how);
    if (status == WF_OK) status = wfi_graph_recompute(g, how);
    wfi_free(plan->ctx, how);
    return status;
}

wf_status wfi_plan_set_recompute(wf_plan *plan, const wf_graph *g, const wfi_recompute *how) {
    wfi_text text = {.ctx = plan->ctx};
    int n = 0;
    for (int32_t u = 0; u < g->n_units; u++)
        if (how[u])
            wfi_text_add(&text, "%s%s%s", n++ ? "+" : "", g->units[u].name,
                         how[u] == WFI_RECOMPUTE_SELECTIVE ? cheap_only : "");
    wf_status status = n ? wfi_text_status(&text) : WF_OK;
    if (status != WF_OK) {
        wfi_free(plan->ctx, text.data);
        return status;
    }
    wfi_free(plan->ctx, plan->recompute);
    plan->recompute = text.data;
    return WF_OK;
}

/* ---- public ---- */

void wf_plan_use_memory(wf_plan *plan, size_t device_bytes) {
    plan->memory_bytes = device_bytes;
}
