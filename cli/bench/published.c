/* weft bench published: predicted and published times and memory, side by side. */
#include "bench/rounds.h"
#include "common/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <weft/file.h>

#define MAX_TEXT  400
#define MAX_ROWS  10000
#define MAX_BYTES (8 << 20)

/* The rows that come with weft (CMakeLists.txt makes it from tests/published/): a file each. */
extern const char *const published_texts[];

/* ---- the rows ---- */

typedef enum kind { TEXT, COUNT, REAL, TRUTH, OBJECT, ANY } kind;

typedef struct field {
    const char *path; /* in a row */
    kind kind;
    bool is_optional;
    double least, most; /* of a text: its length */
} field;

static const field fields[] = {
    {"name", TEXT, false, 1, MAX_TEXT},
    {"source", TEXT, true, 0, MAX_TEXT},
    {"cluster", TEXT, false, 1, 4096},
    {"dtype", TEXT, false, 1, 8},
    {"plan", TEXT, false, 0, MAX_TEXT},
    {"gpus", COUNT, false, 1, 1e8},
    {"batch", COUNT, false, 1, 1e9},
    {"microbatch", COUNT, false, 1, 1e9}, /* samples of a replica */
    {"cp", COUNT, true, 1, 1024},         /* context-parallel ranks, for each of the plan's */
    {"published_s", REAL, true, 1e-9, 1e12},
    {"published_gb", REAL, true, 1e-9, 1e12},
    {"fits", TRUTH, true, 0, 0},
    {"about", ANY, true, 0, 0},
    {"model", OBJECT, true, 0, 0},
    {"model.family", TEXT, false, 1, 40},
    {"model.layers", COUNT, false, 1, 1e6},
    {"model.hidden", COUNT, false, 1, 1e7},
    {"model.heads", COUNT, false, 1, 1e6},
    {"model.vocab", COUNT, false, 1, 1e9},
    {"model.tokens", COUNT, false, 1, 1e8},
    {"model.kv_heads", COUNT, true, 1, 1e6},
    {"model.ffn", COUNT, true, 1, 1e8},
};
#define N_FIELDS (sizeof fields / sizeof *fields)

/* `place` of a row: "rows.json: row 1 (name)". */
static exit_status refuse(const char *place, const char *name, const char *why) {
    return complain(EXIT_USAGE, "%s: %.80s %s", place, name, why);
}

static exit_status check_field(const char *place, const field *f, const char *name,
                               const json_t *value) {
    const char *text = json_string_value(value);
    double x = text ? (double)strlen(text) : json_number_value(value);
    bool is_within = x >= f->least && x <= f->most;
    if (f->kind == TEXT && (!text || !is_within))
        return refuse(place, name, "is not a text of its length");
    if (f->kind == TEXT && text_has_control(text))
        return refuse(place, name, "holds a control character");
    if (f->kind == COUNT && (!json_is_number(value) || !is_within || x != floor(x)))
        return complain(EXIT_USAGE, "%s: %s is not a whole number from %.0f to %.0f", place, name,
                        f->least, f->most);
    if (f->kind == REAL && !json_is_null(value) && (!json_is_number(value) || !is_within))
        return refuse(place, name, "is neither null nor a positive number");
    if (f->kind == TRUTH && !json_is_boolean(value))
        return refuse(place, name, "is not true or false");
    return EXIT_DONE;
}

/* Whether the field is one of the object, a row ("") or its model ("model."). */
static bool is_of(const field *f, const char *prefix) {
    return *prefix ? !strncmp(f->path, prefix, strlen(prefix)) : !strchr(f->path, '.');
}

static exit_status check_object(const char *place, const char *name, const json_t *object,
                                const char *prefix) {
    const char *key;
    json_t *value;
    size_t n = strlen(prefix);
    if (!json_is_object(object)) return refuse(place, name, "is missing or not an object");
    json_object_foreach((json_t *)(uintptr_t)object, key, value) {
        const field *f = fields;
        while (f < fields + N_FIELDS && !(is_of(f, prefix) && !strcmp(f->path + n, key))) f++;
        if (f == fields + N_FIELDS)
            return refuse(place, key,
                          n ? "is not a field of a row's model" : "is not a field of a row");
        TRY(check_field(place, f, key, value));
    }
    for (const field *f = fields; f < fields + N_FIELDS; f++)
        if (is_of(f, prefix) && !f->is_optional && !json_object_get(object, f->path + n))
            return refuse(place, f->path + n, "is missing");
    return EXIT_DONE;
}

static exit_status check_row(const char *place, const json_t *row) {
    const json_t *model = json_object_get(row, "model");
    const char *family = row_text(model, "family");
    TRY(check_object(place, "the row", row, ""));
    TRY(check_object(place, "model", model, "model."));
    if (strcmp(family, "gpt") != 0 && strcmp(family, "llama") != 0)
        return refuse(place, family, "is not a family of models; there are gpt and llama");
    bool has_result = json_object_get(row, "fits") || !isnan(row_number(row, "published_s")) ||
                      !isnan(row_number(row, "published_gb"));
    return has_result ? EXIT_DONE : refuse(place, "published_s", "is missing");
}

/* ---- a file ---- */

static exit_status add_rows(json_t *all, const json_t *rows, const char *where) {
    size_t n = json_array_size(rows);
    if (!json_is_array(rows) || !n || n > MAX_ROWS)
        return complain(EXIT_USAGE, "%s: rows is not an array of 1 to %d rows", where, MAX_ROWS);
    for (size_t i = 0; i < n; i++) {
        json_t *row = json_array_get(rows, i);
        const char *name = json_string_value(json_object_get(row, "name"));
        char place[300];
        snprintf(place, sizeof place, "%.180s: row %zu%s%.60s%s", where, i + 1, name ? " (" : "",
                 name ? name : "", name ? ")" : "");
        TRY(check_row(place, row));
        json_object_set_new(row, "place", json_string(place));
        json_array_append(all, row);
    }
    return EXIT_DONE;
}

/* Appends the rows of a text, checked; `where` names it in sentences. */
static exit_status parse(json_t *rows, const char *text, size_t n_bytes, const char *where) {
    json_error_t error;
    json_t *json = json_loadb(text, n_bytes, JSON_REJECT_DUPLICATES, &error);
    if (!json) return complain(EXIT_USAGE, "%s: line %d: %.160s", where, error.line, error.text);
    const char *key;
    json_t *value;
    exit_status bad = EXIT_DONE;
    json_object_foreach(json, key, value) {
        if (strcmp(key, "rows") != 0 && !bad)
            bad = complain(EXIT_USAGE, "%s: '%.80s' is not a field; there is rows", where, key);
    }
    if (!bad) bad = add_rows(rows, json_object_get(json, "rows"), where);
    json_decref(json);
    return bad;
}

static exit_status read_file(const cli *c, json_t *rows, const char *path) {
    uint64_t n_bytes;
    int fd;
    TRY(complain_of(c, wf_file_open(c->ctx, path, &fd, &n_bytes)));
    char *text = n_bytes <= MAX_BYTES ? malloc(n_bytes + 1) : NULL;
    ssize_t got = text ? read(fd, text, n_bytes) : -1;
    close(fd);
    exit_status bad = EXIT_DONE;
    if (n_bytes > MAX_BYTES)
        bad = complain(EXIT_FAILED, "%s: a file of rows has at most %d bytes", path, MAX_BYTES);
    else if (got < 0 || (uint64_t)got != n_bytes)
        bad = complain(EXIT_FAILED, "%s cannot be read", path);
    if (!bad) bad = parse(rows, text, n_bytes, path);
    free(text);
    return bad;
}

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
        bad = parse(rows, *text, strlen(*text), "published rows");
    return bad;
}

exit_status run_bench_published(cli *c) {
    json_t *rows = json_array(), *results = json_array();
    exit_status bad = c->o.rows ? read_file(c, rows, c->o.rows) : read_shipped(rows);
    if (!bad) bad = cases_check(c);
    if (!bad) bad = predict_all(c, rows, results);
    if (!bad) bad = cases_show(c, json_pack("{s:O}", "rows", results), NULL);
    json_decref(rows);
    json_decref(results);
    return bad;
}
