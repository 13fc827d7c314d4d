/* weft bench published: predicted and published times and memory, side by side. */
#include "bench/published.h"
#include "report.h"
#include "samples.h"

#include <math.h>
#include <string.h>

/* ---- errors ---- */

double published_error_s(const published_row *r) {
    return r->predicted.step_ms / 1e3 / r->seconds - 1;
}

double published_error_gb(const published_row *r) {
    return r->fits ? r->predicted.peak_bytes / 1e9 / r->gb - 1 : NAN;
}

typedef struct errors {
    double sum, worst;
    int n;
} errors;

static void add_error(errors *e, double error) {
    if (isnan(error)) return;
    e->sum += fabs(error);
    e->worst = fmax(e->worst, fabs(error));
    e->n++;
}

static double mean_of(const errors *e) {
    return e->n ? e->sum / e->n : NAN;
}

static double worst_of(const errors *e) {
    return e->n ? e->worst : NAN;
}

static bool is_wrong(const published_row *r) {
    return r->predicted.fits != (r->fits != 0);
}

/* ---- a prediction ---- */

static exit_status complain_of_row(const cli *c, const published_row *r, wf_status status) {
    exit_status exit = status == WF_NO_MEMORY ? EXIT_FAILED : EXIT_USAGE;
    return complain(exit, "%s: %s", r->name, wf_context_error(c->ctx));
}

static wf_status find_model(const cli *c, const published_row *r, wf_model **model_out) {
    wf_model_config config = WF_MODEL_CONFIG_INIT;
    config.n_layers = r->layers;
    config.hidden = r->hidden;
    config.n_heads = r->heads;
    config.n_classes = r->vocab;
    config.n_tokens = r->tokens;
    return wf_model_find(c->ctx, "gpt", &config, model_out);
}

/* Parameters of a Llama's layer (grouped heads, three products of the MLP) as a share of those of a
 * GPT's layer. Llama's designers kept the share close to 1: 0.99 for 405B. */
static double layer_share(const published_row *r) {
    double heads = r->kv_heads ? (double)r->kv_heads / (double)r->heads : 1;
    double ffn = r->ffn ? (double)r->ffn / (double)r->hidden : 8.0 / 3;
    return strcmp(r->family, "llama") != 0 ? 1 : (2 + 2 * heads + 3 * ffn) / 12;
}

/* weft has no Llama to train, so its time and bytes are those of a GPT of the same size, scaled. */
static void scale(wf_prediction *p, double share) {
    double *const ms[] = {&p->forward_ms, &p->backward_ms, &p->recompute_ms,
                          &p->bubble_ms,  &p->dp_ms,       &p->optimizer_ms};
    double *const bytes[] = {&p->parameter_bytes, &p->gradient_bytes, &p->state_bytes};
    for (size_t k = 0; k < sizeof ms / sizeof *ms; k++) p->step_ms += *ms[k] * (share - 1);
    for (size_t k = 0; k < sizeof bytes / sizeof *bytes; k++)
        p->peak_bytes += *bytes[k] * (share - 1);
    p->fits = p->peak_bytes <= p->memory_bytes;
    p->mfu *= share;
    p->hfu *= share;
}

/* As many nodes as the run had. */
static wf_status find_cluster(const cli *c, const published_row *r, wf_cluster **cluster_out) {
    const char *name = c->o.cluster ? c->o.cluster : r->cluster;
    wf_cluster *cluster;
    wf_status status = wf_cluster_load(c->ctx, name, &cluster);
    if (status != WF_OK) return status;
    status = wf_cluster_set_nodes(cluster, 1);
    int64_t each = wf_cluster_n_devices(cluster);
    if (status == WF_OK) status = wf_cluster_set_nodes(cluster, (r->n_gpus + each - 1) / each);
    if (status == WF_OK)
        *cluster_out = cluster;
    else
        wf_cluster_destroy(cluster);
    return status;
}

static wf_status predict_plan(const cli *c, published_row *r, wf_prediction_request *q,
                              const wf_plan *plan) {
    char why[300];
    wf_recipe recipe = WF_RECIPE_INIT;
    recipe.batch = r->batch;
    recipe.n_micro = (r->batch + r->n_micro_samples - 1) / r->n_micro_samples;
    recipe.optimizer = WF_ADAMW;
    q->recipe = &recipe;
    q->plan = plan;
    q->dtype = r->dtype;
    q->accounting = WF_ACCOUNTING_MEGATRON;
    if (wf_plan_n_ranks(plan) == r->n_gpus) return wf_predict(c->ctx, q, &r->predicted);
    snprintf(why, sizeof why, "plan '%.200s' has %d ranks; gpus is %lld", r->plan,
             wf_plan_n_ranks(plan), (long long)r->n_gpus);
    return wf_context_fail(c->ctx, WF_INVALID_ARG, why);
}

static wf_status predict(const cli *c, published_row *r) {
    wf_prediction_request q = WF_PREDICTION_REQUEST_INIT;
    wf_cluster *cluster = NULL;
    wf_model *model = NULL;
    wf_plan *plan = NULL;
    wf_status status = find_cluster(c, r, &cluster);
    if (status == WF_OK) status = find_model(c, r, &model);
    if (status == WF_OK) status = wf_plan_parse(c->ctx, r->plan, &plan);
    q.cluster = cluster;
    q.model = model;
    if (status == WF_OK) status = predict_plan(c, r, &q, plan);
    if (status == WF_OK) scale(&r->predicted, layer_share(r));
    wf_plan_destroy(plan);
    wf_model_destroy(model);
    wf_cluster_destroy(cluster);
    return status;
}

static exit_status predict_all(const cli *c, published *p) {
    for (size_t i = 0; i < p->n_rows; i++) {
        wf_status status = predict(c, &p->rows[i]);
        if (status != WF_OK) return complain_of_row(c, &p->rows[i], status);
    }
    return EXIT_DONE;
}

/* ---- what it prints ---- */

static const char *text_of(char text[16], const char *format, double value) {
    if (isnan(value)) return strcpy(text, "-");
    snprintf(text, 16, format, value);
    return text;
}

static void say_row(const cli *c, const published_row *r) {
    char s[16], error[16], gb[16], gb_error[16];
    const char *fits =
        r->predicted.fits ? r->fits ? "" : "  fits; published: out of memory" : "  out of memory";
    say(c, "%-40.40s %10s %10.3f %8s %8s %8.1f %8s%s%s\n", r->name, text_of(s, "%.3f", r->seconds),
        r->predicted.step_ms / 1e3, text_of(error, "%+.1f %%", 100 * published_error_s(r)),
        text_of(gb, "%.1f", r->gb), r->predicted.peak_bytes / 1e9,
        text_of(gb_error, "%+.1f %%", 100 * published_error_gb(r)), fits,
        !r->predicted.fits && r->fits ? "; published: fits" : "");
}

static void say_errors(const cli *c, const char *of, const errors *e) {
    if (e->n)
        say(c, "%s: mean error %.1f %%, worst %.1f %%, %d rows\n", of, 100 * mean_of(e),
            100 * worst_of(e), e->n);
}

static void say_table(const cli *c, const published *p, size_t first, size_t last) {
    errors s = {0};
    say(c, "\n%s\n", *p->rows[first].source ? p->rows[first].source : "no source");
    for (size_t i = first; i < last; i++) {
        say_row(c, &p->rows[i]);
        add_error(&s, published_error_s(&p->rows[i]));
    }
    say_errors(c, "time", &s);
}

/* Rows in a run of one source and cluster are a table. */
static void say_tables(const cli *c, const published *p) {
    say(c, "%-40s %10s %10s %8s %8s %8s %8s\n", "published run", "s a step", "predicted", "error",
        "GB", "predicted", "error");
    for (size_t first = 0, last; first < p->n_rows; first = last) {
        const published_row *r = &p->rows[first];
        for (last = first + 1; last < p->n_rows; last++)
            if (strcmp(p->rows[last].source, r->source) != 0 ||
                strcmp(p->rows[last].cluster, r->cluster) != 0)
                break;
        say_table(c, p, first, last);
    }
}

static json_t *json_of(const published_row *r) {
    return json_pack("{s:s, s:s, s:s, s:o, s:f, s:o, s:o, s:f, s:o, s:b, s:f, s:f, s:s}", "name",
                     r->name, "cluster", r->cluster, "plan", r->plan, "published_s",
                     json_number(r->seconds), "predicted_s", r->predicted.step_ms / 1e3, "error",
                     json_number(published_error_s(r)), "published_gb", json_number(r->gb),
                     "predicted_gb", r->predicted.peak_bytes / 1e9, "error_gb",
                     json_number(published_error_gb(r)), "fits", r->predicted.fits, "mfu",
                     r->predicted.mfu, "hfu", r->predicted.hfu, "bound", r->predicted.bound);
}

static exit_status conclude(const cli *c, const published *p) {
    errors s = {0}, gb = {0};
    int n_wrong = 0;
    json_t *rows = json_array();
    for (size_t i = 0; i < p->n_rows; i++) {
        const published_row *r = &p->rows[i];
        add_error(&s, published_error_s(r));
        add_error(&gb, published_error_gb(r));
        n_wrong += is_wrong(r);
        json_array_append_new(rows, json_of(r));
    }
    say(c, "\n");
    say_errors(c, "time", &s);
    say_errors(c, "memory", &gb);
    say(c, "out of memory: %d rows predicted wrongly\n", n_wrong);
    return report_write(c, json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:i}", "weft", WEFT_VERSION,
                                     "rows", rows, "mean_error", json_number(mean_of(&s)),
                                     "worst_error", json_number(worst_of(&s)), "mean_error_gb",
                                     json_number(mean_of(&gb)), "worst_error_gb",
                                     json_number(worst_of(&gb)), "n_wrong_fits", n_wrong));
}

/* ---- the command ---- */

static exit_status read_shipped(published *p) {
    for (const char *const *text = published_texts; *text; text++) {
        exit_status bad = published_parse(p, *text, strlen(*text), "published rows");
        if (bad) return bad;
    }
    return EXIT_DONE;
}

exit_status run_bench_published(cli *c) {
    published p = {0};
    exit_status bad = report_check(c);
    if (!bad) bad = c->o.rows ? published_read(c, &p, c->o.rows) : read_shipped(&p);
    if (!bad) bad = predict_all(c, &p);
    if (!bad) say_tables(c, &p);
    if (!bad) bad = conclude(c, &p);
    published_release(&p);
    return bad;
}
