/* weft bench async: one run, which is a weft train. */
#include "bench/async.h"
#include "report.h"
#include "text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- words ---- */

/* Adds the options of every run. update_words adds those of one kind of update. */
static void common_words(const bench_async *b, words *w, int64_t n_parts) {
    static const option_id own[] = {
        OPT_batch,   OPT_n_lanes,     OPT_n_threads, OPT_steps,         OPT_repeat,
        OPT_out,     OPT_json,        OPT_quiet,     OPT_n_workers,     OPT_staleness,
        OPT_servers, OPT_local_steps, OPT_outer_lr,  OPT_outer_momentum};
    const options *o = &b->c->o;
    char path[300];
    words_add(w, "weft");
    words_add(w, "train");
    words_add_options(w, o, FOR_TRAIN, own, sizeof own / sizeof *own);
    if (!option_is_given(o, OPT_data)) words_add(w, "--data=synthetic");
    words_add(w, "--batch=%lld", (long long)(o->recipe.batch / n_parts));
    words_add(w, "--lanes=%lld", (long long)(b->n_lanes / n_parts));
    words_add(w, "--threads=%d", o->recipe.n_threads);
    words_add(w, "--steps=%lld", (long long)o->steps);
    words_add(w, "--json=%s", apart_path(&b->run, "report.json", path));
    words_add(w, "--quiet");
}

/* Adds the option if it was given. */
static void add_given(const bench_async *b, words *w, option_id id) {
    char name[TEXT_BYTES], text[TEXT_BYTES];
    const options *o = &b->c->o;
    if (option_is_given(o, id))
        words_add(w, "%s=%s", option_name(name, id), option_text(o, id, text));
}

static void update_words(const bench_async *b, const async_row *r, words *w) {
    words_add(w, "--plan=%s", r->plan);
    if (r->update == WF_UPDATE_SYNC) return;
    words_add(w, "--workers=%lld", (long long)b->n_workers);
    words_add(w, "--update=%s", r->update == WF_UPDATE_ASYNC ? "async" : "local");
    if (r->is_bounded) words_add(w, "--staleness=%lld", (long long)b->c->o.recipe.staleness);
    if (r->update != WF_UPDATE_LOCAL) return;
    add_given(b, w, OPT_local_steps);
    add_given(b, w, OPT_outer_lr);
    add_given(b, w, OPT_outer_momentum);
}

/* Releases the words. Rank 0 is the slow one. */
static exit_status run(bench_async *b, words *w, double slow, json_t **report_out) {
    char value[60] = "";
    if (slow > 1) snprintf(value, sizeof value, "0:%.9g", slow);
    setenv("WEFT_SLOW_RANK", value, 1);
    exit_status bad = apart_run(&b->run, APART_SELF, w, 0, apart_n_cores(), false, report_out);
    unsetenv("WEFT_SLOW_RANK");
    words_release(w);
    return bad;
}

/* ---- rows ---- */

static double samples_per_second(const json_t *report) {
    double tokens = json_member(report, "tokens_per_second");
    if (isnan(tokens)) return json_member(report, "images_per_second");
    return tokens / json_member(json_object_get(report, "recipe"), "tokens");
}

/* Adds a run's histogram to the row's. */
static void add_staleness(async_row *r, const json_t *of_run) {
    if (!r->staleness) r->staleness = json_array();
    for (size_t k = 0; k < json_array_size(of_run); k++) {
        json_int_t n = json_integer_value(json_array_get(of_run, k));
        if (k < json_array_size(r->staleness))
            json_integer_set(json_array_get(r->staleness, k),
                             n + json_integer_value(json_array_get(r->staleness, k)));
        else
            json_array_append_new(r->staleness, json_integer(n));
    }
}

static exit_status keep(bench_async *b, async_row *r, const json_t *report) {
    double rate = samples_per_second(report);
    json_t *losses = json_object_get(report, "losses");
    if (!(rate > 0) || !json_array_size(losses))
        return complain(EXIT_FAILED, "a run of '%s' reports no speed or no losses", r->name);
    if (!b->recipe) b->recipe = json_incref(json_object_get(report, "recipe"));
    if (!r->losses) {
        r->losses = json_incref(losses);
        r->accuracy = json_member(report, "test_accuracy");
    }
    add_staleness(r, json_object_get(report, "staleness"));
    return samples_add(&r->rates, rate) ? EXIT_DONE : complain(EXIT_FAILED, "no memory left");
}

exit_status async_run(bench_async *b, async_row *r) {
    words w = {0};
    json_t *report;
    common_words(b, &w, 1);
    update_words(b, r, &w);
    exit_status bad = run(b, &w, r->slow, &report);
    if (!bad) bad = keep(b, r, report);
    if (!bad) json_decref(report);
    return bad;
}

/* ---- one worker ---- */

/* Returns the update's time in a step, from a profile of all steps. */
static double update_ms(const json_t *report, int64_t n_steps) {
    double ms = 0;
    size_t i;
    json_t *row;
    json_array_foreach(json_object_get(report, "profile"), i, row) {
        const char *op = json_string_value(json_object_get(row, "op"));
        if (op && !strcmp(op, "update")) ms += json_member(row, "ms");
    }
    return ms / (double)n_steps;
}

exit_status async_measure(bench_async *b, bool has_server) {
    async_costs *costs = &b->costs;
    words w = {0};
    json_t *report;
    common_words(b, &w, b->n_workers);
    if (has_server) words_add(&w, "--update=async");
    words_add(&w, has_server ? "--plan=dp=1,ps=1" : "--profile");
    exit_status bad = run(b, &w, 1, &report);
    if (bad) return bad;
    double ms = json_member(json_object_get(report, "step_ms"), "median");
    bool is_kept = samples_add(has_server ? &costs->served_ms : &costs->step_ms, ms);
    if (!has_server) is_kept &= samples_add(&costs->update_ms, update_ms(report, b->c->o.steps));
    json_decref(report);
    return is_kept ? EXIT_DONE : complain(EXIT_FAILED, "no memory left");
}
