/* Parameters that are not trained: backward goes no further than where something is (autodiff.c),
 * and in its unit's flat storage what is trained stands first. So gradients and the optimizer's
 * state are as long as that.
 */
#include "pass/pass.h"

#include <string.h>

#define SEPARATORS "+,"

/* Its name, or the first words of it. */
static bool is_named(const char *param, const char *word, size_t n) {
    return !strncmp(param, word, n) && (!param[n] || param[n] == '.');
}

static wf_status freeze_word(wf_graph *g, const char *word, size_t n) {
    int32_t n_found = 0;
    for (int32_t v = 0; v < g->n_values && n; v++) {
        wfi_value *value = &g->values[v];
        bool is_param = value->kind == WFI_VALUE_PARAM || value->kind == WFI_VALUE_CUT;
        const char *name = value->cut ? g->values[value->cut->whole].name : value->name;
        if (!is_param || !is_named(name, word, n)) continue;
        value->is_frozen = true;
        n_found++;
    }
    if (n_found) return WF_OK;
    return wfi_fail(g->ctx, WF_INVALID_ARG,
                    "freeze: no parameter is called '%.*s', and none has a name that begins with "
                    "'%.*s.'",
                    (int)n, word, (int)n, word);
}

static void add_to_group(wfi_unit *unit, bool has_matrix) {
    bool goes_on = unit->n_groups && unit->groups[unit->n_groups - 1].has_matrix == has_matrix;
    if (!goes_on) unit->groups[unit->n_groups++].has_matrix = has_matrix;
    unit->groups[unit->n_groups - 1].end = unit->trained_bytes;
}

/* Room for as many as there are parameters. */
static wf_status begin_groups(wf_graph *g) {
    for (int32_t v = 0; v < g->n_values; v++)
        g->units[g->values[v].unit].n_groups += g->values[v].kind == WFI_VALUE_PARAM;
    for (int32_t u = 0; u < g->n_units; u++) {
        wfi_unit *unit = &g->units[u];
        unit->groups = wfi_pool_alloc(&g->pool, (size_t)unit->n_groups + 1, sizeof *unit->groups);
        if (!unit->groups) return WF_NO_MEMORY;
        unit->n_groups = 0;
    }
    return WF_OK;
}

static void place_parameters(wf_graph *g, bool frozen) {
    for (int32_t v = 0; v < g->n_values; v++) {
        wfi_value *value = &g->values[v];
        if (value->kind != WFI_VALUE_PARAM || value->is_frozen != frozen) continue;
        wfi_unit *unit = &g->units[value->unit];
        value->offset = unit->param_bytes;
        unit->param_bytes =
            wfi_round_up(unit->param_bytes + wfi_value_bytes(g, v), WFI_ALIGN_BYTES);
        if (frozen) continue;
        unit->trained_bytes = unit->param_bytes;
        add_to_group(unit, value->shape.n_dims > 1);
    }
}

wf_status wfi_graph_freeze(wf_graph *g, const char *names) {
    bool trains = !names || !*names;
    for (const char *at = names; at && *names;) {
        size_t n = strcspn(at, SEPARATORS);
        if (!n) return wfi_fail(g->ctx, WF_INVALID_ARG, "freeze: a name is missing in '%s'", names);
        WF_TRY(freeze_word(g, at, n));
        at = at[n] ? at + n + 1 : NULL;
    }
    for (int32_t u = 0; u < g->n_units; u++) g->units[u].param_bytes = 0;
    WF_TRY(begin_groups(g));
    place_parameters(g, false);
    place_parameters(g, true);
    for (int32_t u = 0; u < g->n_units; u++) trains |= g->units[u].trained_bytes > 0;
    if (trains) return WF_OK;
    return wfi_fail(g->ctx, WF_INVALID_ARG, "freeze: %s leaves nothing to train", names);
}
