/* One step: feeds in, program through, loss out. */
#include "run/trainer.h"

#include <stdio.h>
#include <string.h>

static int32_t find_input(const wf_graph *g, const char *name) {
    for (int32_t v = 0; v < g->n_values; v++)
        if (g->values[v].kind == WFI_VALUE_INPUT && !strcmp(g->values[v].name, name)) return v;
    return -1;
}

/* Whether value v is computed from `input`. */
static bool depends_on(const wf_graph *g, int32_t v, int32_t input) {
    if (v == input) return true;
    if (v < 0 || g->values[v].node < 0) return false;
    const wfi_node *node = &g->nodes[g->values[v].node];
    for (int i = 0; i < node->n_in; i++)
        if (depends_on(g, node->in[i], input)) return true;
    return false;
}

/* Of all samples of the step. */
static size_t input_bytes(const wfi_ready *r, int32_t v) {
    const wf_graph *g = r->program->graph;
    return wfi_value_bytes(g, v) / (size_t)g->batch * (size_t)r->n_samples;
}

/* `output`: the value that is wanted, or -1 for the loss. */
static wf_status bind_feeds(wf_trainer *t, wfi_ready *r, const wf_feed *feeds, int n_feeds,
                            int32_t output) {
    const wf_graph *g = r->program->graph;
    memset(r->inputs, 0, (size_t)g->n_values * sizeof *r->inputs);
    for (int i = 0; i < n_feeds; i++) {
        int32_t v = find_input(g, feeds[i].name);
        if (v < 0) return wfi_fail(t->ctx, WF_SHAPE, "the model has no input '%s'", feeds[i].name);
        size_t want = input_bytes(r, v);
        if (feeds[i].bytes != want)
            return wfi_fail(t->ctx, WF_SHAPE,
                            "input '%s' was given %zu bytes; %lld samples take %zu", feeds[i].name,
                            feeds[i].bytes, (long long)r->n_samples, want);
        r->inputs[v] = feeds[i].data;
    }
    for (int32_t v = 0; v < g->n_values; v++) {
        if (g->values[v].kind != WFI_VALUE_INPUT || r->inputs[v]) continue;
        if (output < 0 || depends_on(g, output, v))
            return wfi_fail(t->ctx, WF_SHAPE, "input '%s' was not given", g->values[v].name);
        /* Labels, say, of which the output knows nothing: zeros do. */
        if (!r->zeros[v]) r->zeros[v] = wfi_alloc(t->ctx, 1, input_bytes(r, v), "an input");
        if (!r->zeros[v]) return WF_NO_MEMORY;
        r->inputs[v] = r->zeros[v];
    }
    return WF_OK;
}

/* Rows whose label is not negative: the divisor of the mean, known before the step. */
static int64_t count_rows(const wfi_ready *r) {
    const wf_graph *g = r->program->graph;
    int64_t n = g->n_rows / g->batch * r->n_samples;
    if (g->labels < 0) return n;
    const int32_t *labels = r->inputs[g->labels];
    int64_t n_counted = 0;
    for (int64_t i = 0; i < n; i++) n_counted += labels[i] >= 0;
    return n_counted;
}

/* For the report: what other processes cannot observe. */
static void publish_peak(const wf_trainer *t) {
    int rank = wf_job_rank(t->job);
    wfi_control_rank_at(t->job, rank)->peak_bytes =
        __atomic_load_n(&t->workers[rank].observer.peak_bytes, __ATOMIC_ACQUIRE);
}

static void begin_in_job(const wf_trainer *t, const wfi_ready *r) {
    char what[WFI_CONTROL_DOING] = "a forward run";
    if (r->kind == WF_PROGRAM_TRAIN)
        snprintf(what, sizeof what, "step %lld", (long long)t->n_steps + 1);
    wfi_control_begin_run(t->job, what);
}

static wf_status run(wf_trainer *t, wfi_ready *r, double lr, wf_step_result *result_out) {
    int64_t n_rows = count_rows(r);
    /* Another process may still be reading what the last run reported. */
    double *records = t->job ? wfi_control_records(t->job, (int)(t->n_runs & 1)) : r->records;
    t->n_runs++;
    wfi_step step = {.args = {.seed = t->recipe.seed,
                              .step = (uint64_t)t->n_steps,
                              .loss_scale = n_rows ? 1.0 / (double)n_rows : 0},
                     .lr = lr,
                     .inputs = r->inputs,
                     .outputs = r->outputs,
                     .records = records};
    t->ran_last = r;
    if (t->job) begin_in_job(t, r);
    WF_TRY(wfi_executor_run(r->executor, &step));
    if (t->job) publish_peak(t);
    wf_step_result result = {
        .n_rows = n_rows, .lr = lr, .gradient_norm = r->executor->step.gradient_norm};
    if (t->job) result.stop_reason = wfi_control_stop_reason(t->job);
    double loss = 0, hits = 0;
    bool has_record = r->program->graph->record >= 0;
    for (int64_t m = 0; m < r->program->recipe.n_micro && has_record; m++) {
        loss += records[2 * m];
        hits += records[2 * m + 1];
    }
    result.loss = n_rows ? loss / (double)n_rows : 0;
    result.n_hits = (int64_t)hits;
    *result_out = result;
    return WF_OK;
}

wf_status wf_trainer_step(wf_trainer *t, const wf_feed *feeds, int n_feeds, int64_t n_samples,
                          wf_step_result *result_out) {
    if (n_samples < 1 || n_samples > t->recipe.batch)
        return wfi_fail(t->ctx, WF_SHAPE, "a step of %lld samples; the recipe's batch is %lld",
                        (long long)n_samples, (long long)t->recipe.batch);
    if (t->forward_only)
        return wfi_fail(t->ctx, WF_INVALID_ARG, "a step of a trainer made for forward runs only");
    wfi_ready *r;
    WF_TRY(wfi_trainer_ready(t, WF_PROGRAM_TRAIN, n_samples, &r));
    WF_TRY(bind_feeds(t, r, feeds, n_feeds, -1));
    WF_TRY(run(t, r, wf_recipe_lr(&t->recipe, t->n_steps), result_out));
    t->n_steps++;
    return WF_OK;
}

static wf_status forward(wf_trainer *t, const wf_feed *feeds, int n_feeds, int64_t n_samples,
                         const char *output, void *dst, size_t dst_bytes,
                         wf_step_result *result_out) {
    if (n_samples < 1) return wfi_fail(t->ctx, WF_SHAPE, "a forward run of no samples");
    if (output && t->job)
        return wfi_fail(t->ctx, WF_UNSUPPORTED,
                        "outputs of ranks in processes; run it with ranks as threads");
    wfi_ready *r;
    WF_TRY(wfi_trainer_ready(t, WF_PROGRAM_FORWARD, n_samples, &r));
    const wf_graph *g = r->program->graph;
    int32_t found = -1;
    for (int32_t k = 0; k < g->n_outputs; k++) {
        r->outputs[k] = NULL;
        if (output && !strcmp(g->values[g->outputs[k]].name, output)) found = k;
    }
    if (output && found < 0)
        return wfi_fail(t->ctx, WF_INVALID_ARG, "the model has no output '%s'", output);
    if (output) {
        size_t want = wfi_value_bytes(g, g->outputs[found]);
        if (want != dst_bytes)
            return wfi_fail(t->ctx, WF_SHAPE,
                            "output '%s' of %lld samples takes %zu bytes, not %zu", output,
                            (long long)n_samples, want, dst_bytes);
        r->outputs[found] = dst;
    }
    WF_TRY(bind_feeds(t, r, feeds, n_feeds, found < 0 ? -1 : g->outputs[found]));
    return run(t, r, 0, result_out);
}

wf_status wf_trainer_prepare_eval(wf_trainer *t, int64_t n_samples) {
    wfi_ready *ignored;
    return wfi_trainer_ready(t, WF_PROGRAM_FORWARD, n_samples, &ignored);
}

wf_status wf_trainer_eval(wf_trainer *t, const wf_feed *feeds, int n_feeds, int64_t n_samples,
                          wf_step_result *result_out) {
    return forward(t, feeds, n_feeds, n_samples, NULL, NULL, 0, result_out);
}

wf_status wf_trainer_forward(wf_trainer *t, const wf_feed *feeds, int n_feeds, int64_t n_samples,
                             const char *name, void *dst, size_t dst_bytes) {
    wf_step_result ignored;
    return forward(t, feeds, n_feeds, n_samples, name, dst, dst_bytes, &ignored);
}
