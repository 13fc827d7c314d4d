/* weft bench memory: one run of one row, which is a weft bench train or its peer in PyTorch. */
#include "bench/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

double memory_most(const json_t *bytes) {
    double most = NAN;
    for (size_t i = 0; i < json_array_size(bytes); i++)
        most = fmax(most, json_number_value(json_array_get(bytes, i)));
    return most;
}

static double sum_of(const json_t *bytes) {
    double sum = 0;
    for (size_t i = 0; i < json_array_size(bytes); i++)
        sum += json_number_value(json_array_get(bytes, i));
    return sum;
}

static exit_status add_time(memory_row *r, const json_t *report) {
    double ms = json_member(json_object_get(report, "step_ms"), "median");
    if (!(ms > 0)) return complain(EXIT_FAILED, "a run of %s reports no step's time", r->asked);
    return samples_add(&r->ms, ms) ? EXIT_DONE : complain(EXIT_FAILED, "no memory left");
}

/* ---- weft ---- */

/* Sums have the same order under every plan: that of as many lanes as the largest has ranks. */
static void common_words(const bench_memory *b, const memory_row *r, words *w) {
    static const option_id own[] = {OPT_plans, OPT_ranks, OPT_n_threads, OPT_repeat, OPT_steps,
                                    OPT_out,   OPT_json,  OPT_quiet,     OPT_peers,  OPT_python};
    const options *o = &b->c->o;
    char path[300];
    words_add_options(w, o, FOR_BENCH, own, sizeof own / sizeof *own);
    words_add(w, "--threads=%d", o->recipe.n_threads);
    if (!option_is_given(o, OPT_n_lanes)) words_add(w, "--lanes=%d", b->n_most);
    if (!option_is_given(o, OPT_n_micro)) words_add(w, "--micro=%d", b->n_most);
    words_add(w, "--plan=%s", r->asked);
    words_add(w, "--json=%s", apart_path(&b->run, "report.json", path));
    words_add(w, "--quiet");
}

/* What the highest peak holds for ever: parameters, and the optimizer's state. */
static exit_status plan_weft(bench_memory *b, memory_row *r) {
    words w = {0};
    json_t *report, *rank;
    size_t i;
    double most = -1;
    words_add(&w, "weft");
    words_add(&w, "plan");
    common_words(b, r, &w);
    exit_status bad = apart_run(&b->run, APART_SELF, &w, 0, 1, false, &report);
    words_release(&w);
    if (bad) return bad;
    json_array_foreach(json_object_get(report, "ranks"), i, rank) {
        if (json_member(rank, "peak_bytes") <= most) continue;
        most = json_member(rank, "peak_bytes");
        r->optimizer_bytes = json_member(rank, "optimizer_bytes");
        r->parameter_bytes = json_member(rank, "state_bytes") - r->optimizer_bytes;
    }
    json_decref(report);
    return EXIT_DONE;
}

/* Every run of a row does the same. */
static exit_status check_same(const memory_row *r, const json_t *report) {
    const json_t *measured = json_object_get(json_object_get(report, "peak_bytes"), "measured");
    if (!measured) return complain(EXIT_FAILED, "a run of %s reports no peak", r->asked);
    if (r->measured && !json_equal(r->measured, measured))
        return complain(EXIT_FAILED,
                        "plan %s: two runs have different peaks; this is a bug of weft", r->plan);
    return EXIT_DONE;
}

static exit_status keep(bench_memory *b, memory_row *r, const json_t *report) {
    const json_t *peaks = json_object_get(report, "peak_bytes");
    const char *plan = json_string_value(json_object_get(report, "plan"));
    exit_status bad = check_same(r, report);
    if (bad) return bad;
    if (!r->plan) {
        r->plan = strdup(plan ? plan : "");
        r->planned = json_incref(json_object_get(peaks, "planned"));
        r->measured = json_incref(json_object_get(peaks, "measured"));
        r->sent = json_incref(json_object_get(report, "sent_bytes"));
        r->disk_bytes =
            sum_of(json_object_get(json_object_get(report, "disk_peak_bytes"), "planned"));
    }
    if (!r->plan) return complain(EXIT_FAILED, "no memory left");
    if (!b->recipe) b->recipe = json_incref(json_object_get(report, "recipe"));
    bad = apart_check_weights(r->plan, report, r->sha);
    return bad ? bad : add_time(r, report);
}

static exit_status run_weft(bench_memory *b, memory_row *r) {
    words w = {0};
    json_t *report;
    exit_status bad = r->plan ? EXIT_DONE : plan_weft(b, r);
    if (bad) return bad;
    words_add(&w, "weft");
    words_add(&w, "bench");
    words_add(&w, "train");
    common_words(b, r, &w);
    words_add(&w, "--repeat=%lld", (long long)b->c->o.steps);
    if (r->n_ranks > 1) words_add(&w, "--ranks=%d", r->n_ranks);
    bad = apart_run(&b->run, APART_SELF, &w, r->n_ranks, r->n_ranks * b->c->o.recipe.n_threads,
                    false, &report);
    words_release(&w);
    if (bad) return bad;
    bad = keep(b, r, report);
    json_decref(report);
    return bad ? bad : memory_measure_disk(b, r);
}

/* ---- PyTorch ---- */

/* A way that fails is left out; the table says why. */
static exit_status run_peer(bench_memory *b, memory_row *r) {
    const wf_recipe *recipe = &b->c->o.recipe;
    words w = {0};
    json_t *report;
    if (!peer_train_words(&b->run, "pytorch_memory.py", NULL, recipe->batch / r->n_ranks, &w)) {
        snprintf(r->why, sizeof r->why, "pytorch_memory.py is not installed with weft");
        return EXIT_DONE;
    }
    words_add(&w, "--way=%s", r->peer);
    exit_status bad = peer_run(&b->run, &w, r->n_ranks, r->n_ranks * recipe->n_threads, r->why,
                               b->peer_version, &report);
    if (bad || !report) return bad;
    json_decref(r->measured);
    r->measured = json_incref(json_object_get(report, "peak_bytes"));
    bad = add_time(r, report);
    json_decref(report);
    return bad;
}

exit_status memory_run(bench_memory *b, memory_row *r) {
    return r->peer ? run_peer(b, r) : run_weft(b, r);
}
