/* Parameters that are not trained, or at another rate: backward stops at the first trained
 * parameter (autodiff.c), and a unit's flat storage has the trained parameters first. So gradients
 * and the optimizer's state are as long as that. */
#include "base/names.h"
#include "pass/pass.h"

#include <string.h>

/* Returns the name of a parameter, or of the parameter that the value is a part of; NULL: it is
 * neither. */
static const char *param_name(const wf_graph *g, const wfi_value *value) {
    if (value->kind != WFI_VALUE_PARAM && value->kind != WFI_VALUE_CUT) return NULL;
    return value->cut ? g->values[value->cut->whole].name : value->name;
}

/* Marks the parameters that the word names: as frozen, or with `scale` times the learning rate. */
static wf_status mark(wf_graph *g, const char *what, wfi_word word, bool freezes, double scale) {
    int32_t n_found = 0;
    for (int32_t v = 0; v < g->n_values; v++) {
        wfi_value *value = &g->values[v];
        const char *name = param_name(g, value);
        if (!name || !wfi_word_names(word, name)) continue;
        if (freezes)
            value->is_frozen = true;
        else
            value->lr_scale = scale;
        n_found++;
    }
    if (n_found) return WF_OK;
    return wfi_fail(g->ctx, WF_INVALID_ARG,
                    "%s: no parameter is called '%.*s', and none has a name that begins with "
                    "'%.*s.'",
                    what, (int)word.n, word.start, (int)word.n, word.start);
}

static wf_status freeze_word(wf_graph *g, wfi_word word) {
    return mark(g, "freeze", word, true, 1);
}

/* "fc=10": a name, and the factor of its learning rate. */
static wf_status scale_word(wf_graph *g, wfi_word word) {
    const char *equals = memchr(word.start, '=', word.n);
    size_t n = equals ? (size_t)(equals - word.start) : word.n;
    double scale;
    if (!equals || !wfi_parse_real(equals + 1, word.n - n - 1, &scale) || scale < 0)
        return wfi_fail(g->ctx, WF_INVALID_ARG,
                        "lr_scale: '%.*s' is not a name with a number from 0, such as fc=10",
                        (int)word.n, word.start);
    return mark(g, "lr_scale", (wfi_word){word.start, n}, false, scale);
}

static wf_status mark_all(wf_graph *g, const char *what, const char *list,
                          wf_status (*mark_word)(wf_graph *g, wfi_word word)) {
    for (wfi_word word = {0}; wfi_names_next(list, &word);) {
        if (!word.n)
            return wfi_fail(g->ctx, WF_INVALID_ARG, "%s: a name is missing in '%s'", what, list);
        WF_TRY(mark_word(g, word));
    }
    return WF_OK;
}

static void add_to_group(wfi_unit *unit, const wfi_value *value) {
    const wfi_param_group group = {unit->trained_bytes, value->shape.n_dims > 1, value->lr_scale};
    const wfi_param_group *last = unit->n_groups ? &unit->groups[unit->n_groups - 1] : NULL;
    bool goes_on = last && last->has_matrix == group.has_matrix && last->lr_scale == group.lr_scale;
    unit->groups[goes_on ? unit->n_groups - 1 : unit->n_groups++] = group;
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
        add_to_group(unit, value);
    }
}

wf_status wfi_graph_freeze(wf_graph *g, const char *names, const char *lr_scale) {
    bool trains = !names || !*names;
    for (int32_t v = 0; v < g->n_values; v++) g->values[v].lr_scale = 1;
    WF_TRY(mark_all(g, "freeze", names, freeze_word));
    WF_TRY(mark_all(g, "lr_scale", lr_scale, scale_word));
    for (int32_t u = 0; u < g->n_units; u++) g->units[u].param_bytes = 0;
    WF_TRY(begin_groups(g));
    place_parameters(g, false);
    place_parameters(g, true);
    for (int32_t u = 0; u < g->n_units; u++) {
        wfi_unit *unit = &g->units[u];
        trains |= unit->trained_bytes > 0;
        /* The last group has no end, so an update that reads past the parameters stays in it. */
        if (unit->n_groups) unit->groups[unit->n_groups] = unit->groups[unit->n_groups - 1];
        unit->groups[unit->n_groups].end = SIZE_MAX;
    }
    if (trains) return WF_OK;
    return wfi_fail(g->ctx, WF_INVALID_ARG, "freeze: %s leaves nothing to train", names);
}
