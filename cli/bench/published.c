/* weft bench published: predicted and published times and memory, side by side. */
#include "bench/published.h"
#include "bench/rounds.h"
#include "job/report.h"

#include <math.h>
#include <string.h>

/* ---- a prediction ---- */

static exit_status complain_of_row(const cli *c, const json_t *row, wf_status status) {
    bool has_failed = status == WF_NO_MEMORY || status == WF_IO;
    exit_status exit = has_failed ? EXIT_FAILED : EXIT_USAGE;
    return complain(exit, "%s: %s", row_text(row, "place"), wf_context_error(c->ctx));
}

/* 0: the model's own. */
static int64_t size_or_0(const json_t *row, const char *key) {
    double size = row_number(row, key);
    return isnan(size) ? 0 : (int64_t)size;
}

static wf_status find_model(const cli *c, const json_t *row, wf_model **model_out) {
    wf_model_config config = WF_MODEL_CONFIG_INIT;
    config.n_layers = (int64_t)row_number(row, "model.layers");
    config.hidden = (int64_t)row_number(row, "model.hidden");
    config.n_heads = (int64_t)row_number(row, "model.heads");
    config.n_classes = (int64_t)row_number(row, "model.vocab");
    config.n_tokens = (int64_t)row_number(row, "model.tokens");
    const char *family = row_text(json_object_get(row, "model"), "family");
    if (!strcmp(family, "llama")) {
        config.n_kv_heads = size_or_0(row, "model.kv_heads");
        config.ffn = size_or_0(row, "model.ffn");
    }
    return wf_model_find(c->ctx, family, &config, model_out);
}

/* As many nodes as the run had. */
static wf_status find_cluster(const cli *c, const json_t *row, wf_cluster **cluster_out) {
    const char *name = c->o.cluster ? c->o.cluster : row_text(row, "cluster");
    wf_cluster *cluster;
    wf_status status = wf_cluster_load(c->ctx, name, &cluster);
    if (status != WF_OK) return status;
    status = wf_cluster_set_nodes(cluster, 1);
    int64_t each = wf_cluster_n_devices(cluster);
    if (status == WF_OK)
        status =
            wf_cluster_set_nodes(cluster, ((int64_t)row_number(row, "gpus") + each - 1) / each);
    if (status == WF_OK)
        *cluster_out = cluster;
    else
        wf_cluster_destroy(cluster);
    return status;
}

static wf_status predict_plan(const cli *c, const json_t *row, wf_prediction_request *q,
                              const wf_plan *plan, wf_prediction *out) {
    char why[300];
    int64_t n_gpus = (int64_t)row_number(row, "gpus");
    int64_t each = (int64_t)row_number(row, "microbatch");
    wf_recipe recipe = c->o.recipe; /* the defaults */
    recipe.batch = (int64_t)row_number(row, "batch");
    recipe.n_micro = (recipe.batch + each - 1) / each;
    recipe.optimizer = WF_ADAMW;
    q->recipe = &recipe;
    q->plan = plan;
    q->dtype = row_text(row, "dtype");
    q->accounting = WF_ACCOUNTING_MEGATRON;
    if (wf_plan_n_ranks(plan) == n_gpus) return wf_predict(c->ctx, q, out);
    snprintf(why, sizeof why, "plan '%.200s' has %d ranks; gpus is %lld", row_text(row, "plan"),
             wf_plan_n_ranks(plan), (long long)n_gpus);
    return wf_context_fail(c->ctx, WF_INVALID_ARG, why);
}

static wf_status predict(const cli *c, const json_t *row, wf_prediction *out) {
    wf_prediction_request q = WF_PREDICTION_REQUEST_INIT;
    wf_cluster *cluster = NULL;
    wf_model *model = NULL;
    wf_plan *plan = NULL;
    wf_status status = find_cluster(c, row, &cluster);
    if (status == WF_OK) status = find_model(c, row, &model);
    if (status == WF_OK) status = wf_plan_parse(c->ctx, row_text(row, "plan"), &plan);
    q.cluster = cluster;
    q.model = model;
    if (status == WF_OK) status = predict_plan(c, row, &q, plan, out);
    wf_plan_destroy(plan);
    wf_model_destroy(model);
    wf_cluster_destroy(cluster);
    return status;
}

/* Sets the error of a prediction as a fraction of the published value; null: not published. */
static json_t *result_of(const json_t *row, const wf_prediction *p) {
    bool is_wrong = p->fits != !json_is_false(json_object_get(row, "fits"));
    const char *note = !is_wrong && p->fits ? ""
                       : !is_wrong          ? " out of memory"
                       : p->fits            ? " fits; published: out of memory"
                                            : " out of memory; published: fits";
    double s = row_number(row, "published_s"), gb = row_number(row, "published_gb");
    if (json_is_false(json_object_get(row, "fits"))) gb = NAN;
    return json_pack(
        "{s:s, s:s, s:b, s:s, s:s, s:s, s:o, s:f, s:o, s:o, s:f, s:o, s:b, s:f, s:f, s:s}",
        ".source", row_text(row, "source"), ".note", note, ".is_wrong", is_wrong, "name",
        row_text(row, "name"), "cluster", row_text(row, "cluster"), "plan", row_text(row, "plan"),
        "published_s", json_number(s), "predicted_s", p->step_ms / 1e3, "error",
        json_number(p->step_ms / 1e3 / s - 1), "published_gb",
        json_number(row_number(row, "published_gb")), "predicted_gb", p->peak_bytes / 1e9,
        "error_gb", json_number(p->peak_bytes / 1e9 / gb - 1), "fits", p->fits, "mfu", p->mfu,
        "hfu", p->hfu, "bound", p->bound);
}

static exit_status predict_all(const cli *c, const json_t *rows, json_t *results) {
    for (json_t *row = NULL; (row = next_row(rows, row));) {
        wf_prediction p = WF_PREDICTION_INIT;
        wf_status status = predict(c, row, &p);
        if (status != WF_OK) return complain_of_row(c, row, status);
        json_array_append_new(results, result_of(row, &p));
    }
    return EXIT_DONE;
}

/* ---- results ---- */

/* "all": of the rows that have one. */
static json_t *errors_of(const json_t *results, const char *field) {
    json_t *errors = json_pack("{s:[]}", "all");
    for (json_t *row = NULL; (row = next_row(results, row));)
        if (!isnan(row_number(row, field)))
            (void)row_append(errors, "all", fabs(row_number(row, field)));
    return errors;
}

/* Prints the errors, and adds them to the report (or NULL). */
static void say_errors(const cli *c, const json_t *results, const char *of, const char *field,
                       json_t *report) {
    json_t *errors = errors_of(results, field);
    int n = (int)json_array_size(json_object_get(errors, "all"));
    double mean = row_mean(errors, "all"), worst = row_number(errors, "all");
    char key[40];
    if (n)
        say(c, "%s: mean error %.1f %%, worst %.1f %%, %d rows\n", of, 100 * mean, 100 * worst, n);
    snprintf(key, sizeof key, "mean_%s", field);
    if (report) row_set(report, key, mean);
    snprintf(key, sizeof key, "worst_%s", field);
    if (report) row_set(report, key, worst);
    json_decref(errors);
}

/* Rows in a run of one source and cluster are a table. */
static void say_tables(const cli *c, const json_t *results) {
    static const column columns[] = {{"published run", "name", -40, AS_TEXT},
                                     {"s a step", "published_s", 10, 3},
                                     {"predicted", "predicted_s", 10, 3},
                                     {"error", "error", 8, AS_ERROR},
                                     {"GB", "published_gb", 8, 1},
                                     {"predicted", "predicted_gb", 9, 1},
                                     {"error", "error_gb", 8, AS_ERROR},
                                     {"", ".note", 0, AS_TEXT}};
    json_t *table = json_array();
    for (json_t *row = NULL; (row = next_row(results, row));) {
        const json_t *next = next_row(results, row);
        json_array_append(table, row);
        if (!strcmp(row_text(next, ".source"), row_text(row, ".source")) &&
            !strcmp(row_text(next, "cluster"), row_text(row, "cluster")))
            continue;
        say(c, "\n%s\n", *row_text(row, ".source") ? row_text(row, ".source") : "no source");
        SAY_COLUMNS(c, table, columns);
        say_errors(c, table, "time", "error", NULL);
        json_array_clear(table);
    }
    json_decref(table);
}

static exit_status conclude(const cli *c, const json_t *results) {
    int n_wrong = 0;
    json_t *rows = json_array();
    json_t *report = json_pack("{s:s, s:o}", "weft", WEFT_VERSION, "rows", rows);
    for (json_t *row = NULL; (row = next_row(results, row));) {
        n_wrong += json_is_true(json_object_get(row, ".is_wrong"));
        json_array_append_new(rows, row_public(row));
    }
    say(c, "\n");
    say_errors(c, results, "time", "error", report);
    say_errors(c, results, "memory", "error_gb", report);
    say(c, "out of memory: %d rows predicted wrongly\n", n_wrong);
    json_object_set_new(report, "n_wrong_fits", json_integer(n_wrong));
    return report_write(c, report);
}

/* ---- the command ---- */

static exit_status read_shipped(json_t *rows) {
    exit_status bad = EXIT_DONE;
    for (const char *const *text = published_texts; *text && !bad; text++)
        bad = published_parse(rows, *text, strlen(*text), "published rows");
    return bad;
}

exit_status run_bench_published(cli *c) {
    json_t *rows = json_array(), *results = json_array();
    exit_status bad = report_check(c);
    if (!bad) bad = c->o.rows ? published_read(c, rows, c->o.rows) : read_shipped(rows);
    if (!bad) bad = predict_all(c, rows, results);
    if (!bad) say_tables(c, results);
    if (!bad) bad = conclude(c, results);
    json_decref(rows);
    json_decref(results);
    return bad;
}
