/* weft bench published: predicted and published times and memory, side by side. */
#include "bench/published.h"
#include "bench/rounds.h"

#include <math.h>
#include <string.h>

/* ---- a prediction ---- */

static exit_status complain_of_row(const cli *c, const json_t *row, wf_status status) {
    bool has_failed = status == WF_NO_MEMORY || status == WF_IO;
    exit_status exit = has_failed ? EXIT_FAILED : EXIT_USAGE;
    return complain(exit, "%s: %s", row_text(row, "place"), wf_context_error(c->ctx));
}

static int64_t size_or(const json_t *row, const char *key, int64_t otherwise) {
    double size = row_number(row, key);
    return isnan(size) ? otherwise : (int64_t)size;
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
        config.n_kv_heads = size_or(row, "model.kv_heads", 0); /* 0: the model's own */
        config.ffn = size_or(row, "model.ffn", 0);
    }
    return wf_model_find(c->ctx, family, &config, model_out);
}

/* As many nodes as the run had. */
static wf_status find_cluster(const cli *c, const json_t *row, wf_cluster **cluster_out) {
    const char *name = c->o.cluster ? c->o.cluster : row_text(row, "cluster");
    wf_cluster *cluster;
    TRY(wf_cluster_load(c->ctx, name, &cluster));
    wf_status status = wf_cluster_set_nodes(cluster, 1);
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
    q->n_contexts = (int)size_or(row, "cp", 1);
    int64_t n_ranks = (int64_t)wf_plan_n_ranks(plan) * q->n_contexts;
    if (n_ranks == n_gpus) return wf_predict(c->ctx, q, out);
    snprintf(why, sizeof why, "plan '%.200s' has %lld ranks; gpus is %lld", row_text(row, "plan"),
             (long long)n_ranks, (long long)n_gpus);
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

/* Its case in bench/cases adds the errors. */
static json_t *result_of(const json_t *row, const wf_prediction *p) {
    json_t *fits = json_object_get(row, "fits");
    return json_pack("{s:s, s:O?, s:s, s:s, s:s, s:o, s:f, s:n, s:o, s:f, s:n, s:b, s:f, s:f, s:s}",
                     ".source", row_text(row, "source"), ".fits", fits, "name",
                     row_text(row, "name"), "cluster", row_text(row, "cluster"), "plan",
                     row_text(row, "plan"), "published_s",
                     json_number(row_number(row, "published_s")), "predicted_s", p->step_ms / 1e3,
                     "error", "published_gb", json_number(row_number(row, "published_gb")),
                     "predicted_gb", p->peak_bytes / 1e9, "error_gb", "fits", p->fits, "mfu",
                     p->mfu, "hfu", p->hfu, "bound", p->bound);
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

/* ---- the command ---- */

static exit_status read_shipped(json_t *rows) {
    exit_status bad = EXIT_DONE;
    for (const char *const *text = published_texts; *text && !bad; text++)
        bad = published_parse(rows, *text, strlen(*text), "published rows");
    return bad;
}

exit_status run_bench_published(cli *c) {
    json_t *rows = json_array(), *results = json_array();
    exit_status bad = c->o.rows ? published_read(c, rows, c->o.rows) : read_shipped(rows);
    if (!bad) bad = cases_check(c);
    if (!bad) bad = predict_all(c, rows, results);
    if (!bad) bad = cases_show(c, json_pack("{s:O}", "rows", results), NULL);
    json_decref(rows);
    json_decref(results);
    return bad;
}
