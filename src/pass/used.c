/* Checks that a training graph uses all that it declares.
 *
 * A parameter without a gradient would stay as it is, or shrink by weight decay alone; it is a
 * mistake in the model, and among replicas elsewhere the cause of a hang. The check reports it when
 * the graph is made, before any rank exists.
 */
#include "pass/pass.h"

#define MAX_NAMED 8

/* Its owner's, or another unit's. */
static bool has_gradient(const wf_graph *g, int32_t param) {
    const wfi_unit *unit = &g->units[g->values[param].unit];
    for (int32_t i = unit->first_gradient; i < unit->end_gradient; i++)
        if (g->weight_gradients[i].param == param) return true;
    for (int32_t k = unit->first_tied; k < unit->end_tied; k++)
        if (g->weight_gradients[g->tied[k]].param == param) return true;
    return false;
}

/* For each value that owns its bytes: whether any node or output reads them. */
static void find_read(const wf_graph *g, bool *is_read) {
    for (int32_t n = 0; n < g->n_nodes; n++)
        for (int i = 0; i < g->nodes[n].n_in && !g->nodes[n].dead; i++)
            if (g->nodes[n].in[i] >= 0) is_read[wfi_value_root(g, g->nodes[n].in[i])] = true;
    for (int32_t k = 0; k < g->n_outputs; k++) is_read[wfi_value_root(g, g->outputs[k])] = true;
}

static bool is_unused(const wf_graph *g, const bool *is_read, int32_t v, wfi_value_kind kind) {
    if (g->values[v].kind != kind) return false;
    bool trains = kind == WFI_VALUE_PARAM && !g->values[v].is_frozen;
    return trains ? !has_gradient(g, v) : !is_read[v];
}

static wf_status check_kind(const wf_graph *g, const bool *is_read, wfi_value_kind kind) {
    int n = 0;
    wfi_text names = {.ctx = g->ctx};
    for (int32_t v = 0; v < g->n_values; v++)
        if (is_unused(g, is_read, v, kind) && n++ < MAX_NAMED)
            wfi_text_add(&names, "%s'%s'", n > 1 ? ", " : "", g->values[v].name);
    if (n > MAX_NAMED) wfi_text_add(&names, " and %d more", n - MAX_NAMED);
    wf_status status = n ? wfi_text_status(&names) : WF_OK;
    if (n && status == WF_OK && kind == WFI_VALUE_PARAM)
        status = wfi_fail(g->ctx, WF_INVALID_ARG,
                          "the loss does not depend on parameter%s %s: nothing would train %s; "
                          "leave %s out, or let the loss depend on %s",
                          n > 1 ? "s" : "", names.data, n > 1 ? "them" : "it",
                          n > 1 ? "them" : "it", n > 1 ? "them" : "it");
    else if (n && status == WF_OK)
        status = wfi_fail(g->ctx, WF_INVALID_ARG, "nothing reads input%s %s; leave %s out",
                          n > 1 ? "s" : "", names.data, n > 1 ? "them" : "it");
    wfi_free(g->ctx, names.data);
    return status;
}

wf_status wfi_graph_check_used(const wf_graph *g) {
    bool *is_read = wfi_alloc(g->ctx, (size_t)g->n_values, sizeof *is_read, "reads of values");
    if (!is_read) return WF_NO_MEMORY;
    find_read(g, is_read);
    wf_status status = check_kind(g, is_read, WFI_VALUE_PARAM);
    if (status == WF_OK) status = check_kind(g, is_read, WFI_VALUE_INPUT);
    wfi_free(g->ctx, is_read);
    return status;
}
