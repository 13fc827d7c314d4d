/* Feeds of a run: inputs by name, with checks of their sizes and of the range of labels and
 * tokens. */
#include "api/trainer.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static int32_t find_input(const wf_graph *g, const char *name) {
    for (int32_t v = 0; v < g->n_values; v++)
        if (g->values[v].kind == WFI_VALUE_INPUT && !strcmp(g->values[v].name, name)) return v;
    return -1;
}

/* Visits each value once: a residual network has exponentially many paths. */
static bool reaches(const wf_graph *g, int32_t v, int32_t input, bool *is_visited) {
    if (v == input) return true;
    if (v < 0 || g->values[v].node < 0 || is_visited[v]) return false;
    is_visited[v] = true;
    const wfi_node *node = &g->nodes[g->values[v].node];
    for (int i = 0; i < node->n_in; i++)
        if (reaches(g, node->in[i], input, is_visited)) return true;
    return false;
}

wf_status wfi_value_depends_on(const wf_graph *g, int32_t v, int32_t input, bool *depends_out) {
    bool *is_visited = wfi_alloc(g->ctx, (size_t)g->n_values, sizeof *is_visited, "marks");
    if (!is_visited) return WF_NO_MEMORY;
    *depends_out = reaches(g, v, input, is_visited);
    wfi_free(g->ctx, is_visited);
    return WF_OK;
}

static size_t sample_bytes(const wf_graph *g, int32_t v) {
    return wfi_value_bytes(g, v) / (size_t)g->batch;
}

/* ---- labels and tokens ---- */

void wfi_find_ids(const wf_graph *g, wfi_ids *ids) {
    for (int32_t n = 0; n < g->n_nodes; n++) {
        const wfi_node *node = &g->nodes[n];
        const wfi_op_roles *roles = &node->op->roles;
        for (int i = 0; i < node->n_in && !node->dead; i++) {
            if (node->in[i] < 0) continue;
            wfi_ids *own = &ids[wfi_value_root(g, node->in[i])];
            own->are_rows |= roles->id_in >> i & 1;
            own->are_places |= roles->place_in >> i & 1;
            if (!((roles->label_in | roles->id_in) >> i & 1)) continue;
            int64_t n_ids = node->op->n_ids(g, node);
            if (!own->end || n_ids < own->end) own->end = n_ids;
        }
    }
}

/* Describes an integer that has the bits of a usual float: counts are rarely that large. */
static void describe_float(int32_t value, char text[64]) {
    float number;
    memcpy(&number, &value, sizeof number);
    *text = 0;
    if (fabsf(number) > 1e-6f && fabsf(number) < 1e9f)
        snprintf(text, 64, "; %d has the bits of the float %g", (int)value, (double)number);
}

static wf_status refuse_id(const wf_trainer *t, const char *name, const wfi_ids *ids,
                           int64_t sample, int64_t element, int32_t value) {
    char at[40] = "", number[64];
    if (element >= 0) snprintf(at, sizeof at, ", element %lld,", (long long)element);
    describe_float(value, number);
    return wfi_fail(t->ctx, WF_INVALID_ARG,
                    "%s[%lld]%s is %d; the model has %lld %s, 0 to %lld%s%s", name,
                    (long long)sample, at, (int)value, (long long)ids->end,
                    ids->are_rows ? "rows for it" : "classes", (long long)ids->end - 1,
                    ids->are_rows ? "" : ", and ignores negative labels", number);
}

wf_status wfi_check_ids(const wf_trainer *t, const wfi_ready *r, int32_t v, const int32_t *data,
                        int64_t n_samples) {
    const wf_graph *g = r->program->graph;
    const wfi_ids *ids = &r->ids[v];
    int64_t n_each = (int64_t)(sample_bytes(g, v) / sizeof *data), lowest = INT32_MIN;
    if (ids->are_rows && !ids->are_places) lowest = 0;
    for (int64_t i = 0; ids->end && i < n_samples * n_each; i++)
        if (data[i] < lowest || data[i] >= ids->end)
            return refuse_id(t, g->values[v].name, ids, i / n_each, n_each > 1 ? i % n_each : -1,
                             data[i]);
    return WF_OK;
}

int64_t wfi_count_rows(const wfi_ready *r, int64_t n_samples) {
    const wf_graph *g = r->program->graph;
    int64_t n = g->n_rows / g->batch * n_samples;
    if (g->labels < 0) return n;
    const int32_t *labels = r->inputs[g->labels];
    int64_t n_counted = 0;
    for (int64_t i = 0; i < n; i++) n_counted += labels[i] >= 0;
    return n_counted;
}

/* ---- binding ---- */

static wf_status bind_feed(wf_trainer *t, wfi_ready *r, const wf_feed *feed, int64_t n_samples) {
    const wf_graph *g = r->program->graph;
    int32_t v = find_input(g, feed->name);
    if (v < 0) return wfi_fail(t->ctx, WF_SHAPE, "the model has no input '%s'", feed->name);
    size_t want = sample_bytes(g, v) * (size_t)n_samples;
    if (feed->bytes != want)
        return wfi_fail(t->ctx, WF_SHAPE,
                        "input '%s' was given %zu bytes; %lld samples take %zu, of %s", feed->name,
                        feed->bytes, (long long)n_samples, want, wf_dtype_name(g->values[v].dtype));
    r->inputs[v] = feed->data;
    return feed->data ? wfi_check_ids(t, r, v, feed->data, n_samples) : WF_OK;
}

wf_status wfi_bind_feeds(wf_trainer *t, wfi_ready *r, const wf_feed *feeds, int n_feeds,
                         int64_t n_samples, int32_t output) {
    const wf_graph *g = r->program->graph;
    memset(r->inputs, 0, (size_t)g->n_values * sizeof *r->inputs);
    if (n_samples < 1)
        return wfi_fail(t->ctx, WF_SHAPE, "a run of %lld samples", (long long)n_samples);
    for (int i = 0; i < n_feeds; i++) WF_TRY(bind_feed(t, r, &feeds[i], n_samples));
    for (int32_t v = 0; v < g->n_values; v++) {
        if (g->values[v].kind != WFI_VALUE_INPUT || r->inputs[v]) continue;
        if (!wfi_trainer_loads(t, r->program, v)) continue;
        bool depends = true;
        if (output >= 0) WF_TRY(wfi_value_depends_on(g, output, v, &depends));
        if (depends)
            return wfi_fail(t->ctx, WF_SHAPE, "input '%s' was not given", g->values[v].name);
        /* Labels, say, of which the output knows nothing: zeros do. */
        size_t bytes = sample_bytes(g, v) * (size_t)r->n_samples;
        if (!r->zeros[v]) r->zeros[v] = wfi_pool_alloc(&r->pool, 1, bytes);
        if (!r->zeros[v]) return WF_NO_MEMORY;
        r->inputs[v] = r->zeros[v];
    }
    return WF_OK;
}
