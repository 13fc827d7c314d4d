/* weft bench ddp: one run of one row, which is a weft bench train or its peer in PyTorch. */
#include "bench/ddp.h"
#include "report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* As in bench/train_vs_pytorch: glibc keeps freed memory, which spares PyTorch page faults. */
#define TUNED_MALLOC                                                                               \
    "MALLOC_MMAP_MAX_=0", "MALLOC_TRIM_THRESHOLD_=100000000000", "MALLOC_TOP_PAD_=268435456"

static int n_cores_of(const bench_ddp *b, const ddp_row *r) {
    return r->n_ranks * b->c->o.recipe.n_threads;
}

/* ---- weft ---- */

static void weft_words(const bench_ddp *b, const ddp_row *r, words *w) {
    static const option_id own[] = {OPT_plan,   OPT_ranks, OPT_batch, OPT_n_threads,
                                    OPT_repeat, OPT_steps, OPT_out,   OPT_json,
                                    OPT_quiet,  OPT_peers, OPT_python};
    const options *o = &b->c->o;
    char path[300];
    words_add(w, "weft");
    words_add(w, "bench");
    words_add(w, "train");
    words_add_options(w, o, FOR_BENCH, own, sizeof own / sizeof *own);
    words_add(w, "--batch=%lld", (long long)o->recipe.batch * r->n_ranks);
    words_add(w, "--lanes=%d", r->n_ranks); /* each rank sums its own samples, as DDP does */
    words_add(w, "--slices=1");
    words_add(w, "--threads=%d", o->recipe.n_threads);
    words_add(w, "--repeat=%lld", (long long)o->steps);
    words_add(w, "--plan=dp=%d,overlap=%s%s%s", r->n_ranks, r->overlap ? "on" : "off",
              o->plan && *o->plan ? "," : "", o->plan ? o->plan : "");
    words_add(w, "--json=%s", apart_path(&b->run, "report.json", path));
    words_add(w, "--quiet");
}

static exit_status keep(bench_ddp *b, ddp_row *r, const json_t *report) {
    char key[40];
    snprintf(key, sizeof key, "%s_per_second", b->unit);
    double rate = json_member(report, key);
    double min = json_member(json_object_get(report, "step_ms"), "min");
    if (!(rate > 0))
        return complain(EXIT_FAILED, "a run of %d ranks reports no %s", r->n_ranks, key);
    if (!r->rates.n || min < r->step_min_ms) r->step_min_ms = min;
    r->cpu_ms = fmin(r->cpu_ms, json_member(report, "cpu_ms"));
    return samples_add(&r->rates, rate) ? EXIT_DONE : complain(EXIT_FAILED, "no memory left");
}

static exit_status run_weft(bench_ddp *b, ddp_row *r) {
    words w = {0};
    json_t *report;
    weft_words(b, r, &w);
    if (r->n_ranks > 1) words_add(&w, "--ranks=%d", r->n_ranks);
    exit_status bad =
        apart_run(&b->run, APART_SELF, &w, r->n_ranks, n_cores_of(b, r), false, &report);
    words_release(&w);
    if (bad) return bad;
    const char *plan = json_string_value(json_object_get(report, "plan"));
    if (!r->plan) r->plan = strdup(plan ? plan : "");
    if (!b->recipe) b->recipe = json_incref(json_object_get(report, "recipe"));
    bad = apart_check_weights(r->plan, report, r->sha);
    if (!bad) bad = keep(b, r, report);
    json_decref(report);
    return bad;
}

/* ---- PyTorch ---- */

/* A way that fails is left out; if all do, the table says why. */
static exit_status run_peer(bench_ddp *b, ddp_row *r) {
    static const char *const tuned[] = {TUNED_MALLOC, NULL};
    const wf_recipe *recipe = &b->c->o.recipe;
    words w = {0};
    json_t *report;
    char why[300];
    if (!peer_train_words(&b->run, "pytorch_ddp.py", strstr(r->peer, "tuned") ? tuned : NULL,
                          recipe->batch, &w)) {
        snprintf(b->no_peer, sizeof b->no_peer, "pytorch_ddp.py is not installed with weft");
        return EXIT_DONE;
    }
    words_add(&w, "--channels-last");
    if (strstr(r->peer, "compiled")) words_add(&w, "--compile");
    exit_status bad =
        peer_run(&b->run, &w, r->n_ranks, n_cores_of(b, r), why, b->peer_version, &report);
    if (bad) return bad;
    r->is_slow = !report;
    if (!report) {
        progress_clear(&b->bar);
        fprintf(stderr, "PyTorch, %s, %d rank%s: no figure: %s\n", r->peer, r->n_ranks,
                r->n_ranks == 1 ? "" : "s", why);
        return EXIT_DONE;
    }
    bad = keep(b, r, report);
    json_decref(report);
    return bad;
}

exit_status ddp_run(bench_ddp *b, ddp_row *r) {
    return r->peer ? run_peer(b, r) : run_weft(b, r);
}

/* ---- when reductions run ---- */

static bool is_backward(const wf_span *s) {
    return s->kind == WF_SPAN_BACKWARD || s->kind == WF_SPAN_WEIGHT ||
           s->kind == WF_SPAN_BACKWARD_WEIGHT;
}

static double common_us(const wf_span *a, const wf_span *b) {
    return fmax(0, fmin(a->end_us, b->end_us) - fmax(a->begin_us, b->begin_us));
}

static void add_reductions(const wf_timeline *timeline, ddp_row *r) {
    int64_t n = wf_timeline_n_spans(timeline);
    r->reduce_ms = r->beside_ms = 0;
    for (int64_t i = 0; i < n; i++) {
        wf_span reduce = wf_timeline_span(timeline, i);
        if (reduce.kind != WF_SPAN_REDUCE) continue;
        r->reduce_ms += (reduce.end_us - reduce.begin_us) / 1e3 / r->n_ranks;
        for (int64_t k = 0; k < n; k++) {
            wf_span other = wf_timeline_span(timeline, k);
            if (other.rank == reduce.rank && is_backward(&other))
                r->beside_ms += common_us(&reduce, &other) / 1e3 / r->n_ranks;
        }
    }
}

exit_status ddp_trace(bench_ddp *b, ddp_row *r) {
    words w = {0};
    json_t *report;
    wf_trace *trace;
    char path[300];
    weft_words(b, r, &w);
    words_add(&w, "--ranks=%d", r->n_ranks);
    words_add(&w, "--trace=%s", apart_path(&b->run, "trace.json", path));
    exit_status bad =
        apart_run(&b->run, APART_SELF, &w, r->n_ranks, n_cores_of(b, r), false, &report);
    words_release(&w);
    if (bad) return bad;
    bad = apart_check_weights(r->plan, report, r->sha);
    json_decref(report);
    if (bad) return bad;
    wf_status status = wf_trace_read(b->c->ctx, path, &trace);
    if (status != WF_OK) return complain_of(b->c, status);
    add_reductions(wf_trace_get_part(trace, 0).timeline, r);
    wf_trace_destroy(trace);
    return EXIT_DONE;
}
