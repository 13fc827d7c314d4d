/* weft bench ddp: replicas of one model, more and more of them, each with a core and a batch of its
 * own; PyTorch's DistributedDataParallel beside them. A row is a way to run; rows take turns.
 */
#include "bench/rounds.h"
#include "common/text.h"
#include "job/report.h"

#include <math.h>
#include <string.h>

#define LARGEST_BATCH (1 << 20)
#define MAX_ROWS      64
#define SCRIPT        "pytorch_ddp.py"
#define NO_SCRIPT     SCRIPT " is not installed with weft"

/* As in bench/train_vs_pytorch: glibc keeps freed memory, which spares PyTorch page faults. */
static const char *const tuned_malloc[] = {
    "MALLOC_MMAP_MAX_=0", "MALLOC_TRIM_THRESHOLD_=100000000000", "MALLOC_TOP_PAD_=268435456", NULL};

/* ---- results of rows ---- */

/* weft's row of so many ranks, or PyTorch's fastest; NULL if there is none. */
static json_t *ddp_weft(const rounds *b, int n_ranks, bool overlap) {
    for (json_t *row = NULL; (row = next_row(b->rows, row));)
        if (!json_object_get(row, ".peer") && row_number(row, "ranks") == n_ranks &&
            json_is_true(json_object_get(row, "overlap")) == overlap)
            return row;
    return NULL;
}

static json_t *ddp_best_peer(const rounds *b, int n_ranks) {
    json_t *best = NULL;
    for (json_t *row = NULL; (row = next_row(b->rows, row));) {
        if (!json_object_get(row, ".peer") || json_object_get(row, ".left_out") ||
            row_number(row, "ranks") != n_ranks || !json_is_array(json_object_get(row, "runs")))
            continue;
        if (!best || row_median(row, "runs") > row_median(best, "runs")) best = row;
    }
    return best;
}

/* Speed over that of as many single ranks, of weft or of PyTorch. */
static double efficiency_of(const rounds *b, const json_t *row) {
    const json_t *one = json_object_get(row, ".peer") ? ddp_best_peer(b, 1) : ddp_weft(b, 1, false);
    return row_median(row, "runs") / (row_number(row, "ranks") * row_median(one, "runs"));
}

/* weft's faster way over PyTorch's fastest; NAN where one is missing. */
static double ratio(const rounds *b, int n_ranks) {
    const json_t *on = ddp_weft(b, n_ranks, n_ranks > 1), *peer = ddp_best_peer(b, n_ranks);
    return row_median(on, "runs") / row_median(peer, "runs");
}

static bool has_script(void) {
    char path[4096];
    return peer_file(SCRIPT, path);
}

/* ---- rows ---- */

static const char *unit_of(const cli *c) {
    return wf_model_registry_find(c->o.model)->takes_tokens ? "tokens" : "images";
}

static void rate_of(const rounds *b, char key[40]) {
    snprintf(key, 40, "%s_per_second", unit_of(b->c));
}

/* `peer`: how PyTorch runs; NULL: weft. */
static exit_status add(rounds *b, const char *peer, int n_ranks, bool overlap) {
    char rate[40], name[60] = "weft", shown[100];
    rate_of(b, rate);
    if (peer)
        snprintf(name, sizeof name, "PyTorch, %s", peer);
    else if (n_ranks > 1)
        snprintf(name, sizeof name, "weft, overlap %s", overlap ? "on" : "off");
    snprintf(shown, sizeof shown, "%s, %d rank%s", name, n_ranks, n_ranks == 1 ? "" : "s");
    json_t *row = json_pack("{s:s, s:s, s:i, s:n, s:n, s:n, s:n}", ".name", shown, ".way", name,
                            "ranks", n_ranks, rate, "efficiency", "runs", "step_ms_min");
    if (peer)
        json_object_set_new(row, "way", json_string(peer));
    else
        json_object_update_new(
            row, json_pack("{s:b, s:n, s:I, s:n, s:n, s:n, s:n}", "overlap", overlap, "plan",
                           "batch", (json_int_t)(b->c->o.recipe.batch * n_ranks), "cpu_ms",
                           "reduce_ms", "reduce_beside_backward_ms", "weights_sha256"));
    if (peer) json_object_set_new(row, ".peer", json_true());
    return rounds_add(b, row, MAX_ROWS);
}

static void describe(const cli *c) {
    const options *o = &c->o;
    int n_cores = apart_n_cores();
    say(c, "%s: %lld samples a rank, whatever their number (weak scaling), %d thread%s each\n",
        o->model, (long long)o->recipe.batch, o->recipe.n_threads,
        o->recipe.n_threads == 1 ? "" : "s");
    say(c, "%lld rounds; a run is an untimed and %lld timed steps, ranks as processes\n",
        (long long)o->repeat, (long long)o->steps);
    if (o->ranks * o->recipe.n_threads > n_cores)
        say(c, "there are %d cores: more ranks than that take turns and gain nothing\n", n_cores);
}

/* 1, 2, 4, ... and --ranks. */
static exit_status add_rows(rounds *b) {
    static const char *const peers[] = {"eager", "eager, tuned malloc", "compiled",
                                        "compiled, tuned malloc"};
    int last = (int)b->c->o.ranks;
    size_t n_peers = b->c->o.peers && has_script() ? sizeof peers / sizeof *peers : 0;
    exit_status bad = EXIT_DONE;
    describe(b->c);
    for (int n = 1; n <= last && !bad; n = n < last && 2 * n > last ? last : 2 * n) {
        bad = add(b, NULL, n, false);
        if (!bad && n > 1) bad = add(b, NULL, n, true);
        for (size_t i = 0; i < n_peers && !bad; i++) bad = add(b, peers[i], n, true);
    }
    return bad;
}

/* ---- a run ---- */

static void weft_words(const rounds *b, const json_t *row, words *w) {
    const options *o = &b->c->o;
    int n_ranks = (int)row_number(row, "ranks");
    rounds_words(b, "bench train", FOR_BENCH, w);
    words_add(w, "--batch=%lld", (long long)o->recipe.batch * n_ranks);
    words_add(w, "--lanes=%d", n_ranks); /* each rank sums its own samples, as DDP does */
    words_add(w, "--slices=1");
    words_add(w, "--repeat=%lld", (long long)o->steps);
    words_add(w, "--plan=dp=%d,overlap=%s%s%s", n_ranks,
              json_is_true(json_object_get(row, "overlap")) ? "on" : "off",
              o->plan && *o->plan ? "," : "", o->plan ? o->plan : "");
    if (n_ranks > 1) words_add(w, "--ranks=%d", n_ranks);
}

static exit_status keep(const rounds *b, json_t *row, json_t *report) {
    char key[40];
    rate_of(b, key);
    double rate = row_number(report, key);
    row_set(row, "step_ms_min",
            fmin(row_number(row, "step_ms_min"), row_number(report, "step_ms.min")));
    if (!json_object_get(row, ".peer"))
        row_set(row, "cpu_ms", fmin(row_number(row, "cpu_ms"), row_number(report, "cpu_ms")));
    json_decref(report);
    if (!(rate > 0))
        return complain(EXIT_FAILED, "a run of %.0f ranks reports no %s", row_number(row, "ranks"),
                        key);
    return row_append(row, "runs", rate);
}

/* A way that fails is left out. */
static exit_status run_peer(rounds *b, json_t *row) {
    const wf_recipe *recipe = &b->c->o.recipe;
    const char *way = row_text(row, "way");
    int n_ranks = (int)row_number(row, "ranks");
    words w = {0};
    json_t *report;
    char why[300];
    (void)peer_train_words(&b->run, SCRIPT, strstr(way, "tuned") ? tuned_malloc : NULL,
                           recipe->batch, &w);
    words_add(&w, "--channels-last");
    if (strstr(way, "compiled")) words_add(&w, "--compile");
    exit_status bad =
        peer_run(&b->run, &w, n_ranks, n_ranks * recipe->n_threads, why, b->peer_version, &report);
    if (bad || report) return bad ? bad : keep(b, row, report);
    json_object_set_new(row, ".left_out", json_string(why));
    progress_clear(&b->bar);
    fprintf(stderr, "%s: no figure: %s\n", row_text(row, ".name"), why);
    return EXIT_DONE;
}

static exit_status run_row(rounds *b, json_t *row) {
    words w = {0};
    json_t *report;
    if (json_object_get(row, ".peer")) return run_peer(b, row);
    weft_words(b, row, &w);
    exit_status bad = rounds_weft(b, row, &w, &report);
    return bad ? bad : keep(b, row, report);
}

/* Ways of PyTorch that are far from its best need no second run. */
static exit_status leave_out_slow(rounds *b) {
    for (json_t *row = NULL; (row = next_row(b->rows, row));) {
        const json_t *best = ddp_best_peer(b, (int)row_number(row, "ranks"));
        if (json_object_get(row, ".peer") && best && row != best &&
            !(1.1 * row_median(row, "runs") >= row_median(best, "runs")))
            json_object_set_new(row, ".left_out", json_true());
    }
    return EXIT_DONE;
}

/* ---- when reductions run ---- */

static bool is_backward(const wf_span *s) {
    return s->kind == WF_SPAN_BACKWARD || s->kind == WF_SPAN_WEIGHT ||
           s->kind == WF_SPAN_BACKWARD_WEIGHT;
}

static double common_us(const wf_span *a, const wf_span *b) {
    return fmax(0, fmin(a->end_us, b->end_us) - fmax(a->begin_us, b->begin_us));
}

/* Durations of a step, the mean of the ranks. */
static void add_reductions(const wf_timeline *timeline, json_t *row) {
    int64_t n = wf_timeline_n_spans(timeline);
    double reduce_us = 0, beside_us = 0, n_ranks = row_number(row, "ranks");
    for (int64_t i = 0; i < n; i++) {
        wf_span reduce = wf_timeline_span(timeline, i);
        if (reduce.kind != WF_SPAN_REDUCE) continue;
        reduce_us += reduce.end_us - reduce.begin_us;
        for (int64_t k = 0; k < n; k++) {
            wf_span other = wf_timeline_span(timeline, k);
            if (other.rank == reduce.rank && is_backward(&other))
                beside_us += common_us(&reduce, &other);
        }
    }
    row_set(row, "reduce_ms", reduce_us / 1e3 / n_ranks);
    row_set(row, "reduce_beside_backward_ms", beside_us / 1e3 / n_ranks);
}

static exit_status trace_row(rounds *b, json_t *row) {
    words w = {0};
    json_t *report;
    wf_trace *trace;
    char path[300];
    weft_words(b, row, &w);
    words_add(&w, "--trace=%s", apart_path(&b->run, "trace.json", path));
    exit_status bad = rounds_weft(b, row, &w, &report);
    if (bad) return bad;
    json_decref(report);
    wf_status status = wf_trace_read(b->c->ctx, path, &trace);
    if (status != WF_OK) return complain_of(b->c, status);
    add_reductions(wf_trace_get_part(trace, 0).timeline, row);
    wf_trace_destroy(trace);
    return EXIT_DONE;
}

/* Runs each row of weft with several ranks once more, traced. */
static exit_status trace_all(rounds *b) {
    rounds traced = *b;
    traced.rows = json_array();
    for (json_t *row = NULL; (row = next_row(b->rows, row));)
        if (!json_object_get(row, ".peer") && row_number(row, "ranks") > 1)
            json_array_append(traced.rows, row);
    traced.n_runs += (int)json_array_size(traced.rows);
    progress_open(&traced.bar, !b->c->o.quiet);
    exit_status bad = rounds_once(&traced, "trace", 0, 0, trace_row);
    progress_clear(&traced.bar);
    json_decref(traced.rows);
    return bad;
}

/* ---- results ---- */

/* The plan says when gradients are summed, and may change no bit of them. */
static exit_status check_bits(const rounds *b) {
    for (json_t *row = NULL; (row = next_row(b->rows, row));) {
        int n_ranks = (int)row_number(row, "ranks");
        const json_t *other = ddp_weft(b, n_ranks, false);
        const char *sha = row_text(row, "weights_sha256");
        if (!json_object_get(row, ".peer") && strcmp(row_text(other, "weights_sha256"), sha))
            return complain(EXIT_FAILED,
                            "%d ranks: the weights are %.12s... under the plan %s and %.12s... "
                            "under %s; this is a bug of weft",
                            n_ranks, sha, row_text(row, "plan"), row_text(other, "weights_sha256"),
                            row_text(other, "plan"));
    }
    return EXIT_DONE;
}

/* Rows without a run are no rows of the report. */
static exit_status finish_rows(rounds *b) {
    char rate[40];
    exit_status bad = trace_all(b);
    if (!bad) bad = check_bits(b);
    rate_of(b, rate);
    for (size_t i = json_array_size(b->rows); i-- > 0;) {
        json_t *row = json_array_get(b->rows, i);
        row_set(row, rate, row_median(row, "runs"));
        row_set(row, "efficiency", efficiency_of(b, row));
        if (isnan(row_median(row, "runs"))) json_array_remove(b->rows, i);
    }
    return bad;
}

static void say_rows(const rounds *b) {
    char head[40], rate[40];
    snprintf(head, sizeof head, "%s/s", unit_of(b->c));
    rate_of(b, rate);
    const column columns[] = {{"ranks", "ranks", 5, AS_TEXT},
                              {"", ".way", -32, AS_TEXT},
                              {head, rate, 11, 2},
                              {"efficiency", "efficiency", 12, AS_PERCENT},
                              {"min ms", "step_ms_min", 11, 1},
                              {"cpu ms", "cpu_ms", 9, 1},
                              {"reduce ms", "reduce_ms", 10, 2},
                              {"overlap ms", "reduce_beside_backward_ms", 10, 2}};
    say(b->c, "\n");
    SAY_COLUMNS(b->c, b->rows, columns);
    say(b->c, "\n"
              "efficiency is speed over ranks times the speed of one; reduce: duration of sums in "
              "a traced\n"
              "step, waits included; overlap: the part of it during backward\n");
    if (b->c->o.ranks > 1) say(b->c, "overlap on and off: the same weights, bit for bit\n");
    if (b->c->o.peers && !has_script()) say(b->c, "no figure of PyTorch's: %s\n", NO_SCRIPT);
    for (int n = 1; n <= b->c->o.ranks; n++)
        if (!isnan(ratio(b, n)))
            say(b->c, "%d rank%s: weft / PyTorch (%s) = %.2f\n", n, n == 1 ? "" : "s",
                row_text(ddp_best_peer(b, n), "way"), ratio(b, n));
}

static exit_status add_to_report(const rounds *b, json_t *report) {
    const options *o = &b->c->o;
    /* The same weights: else the run has failed. */
    json_object_update_new(report, json_pack("{s:I, s:s, s:b}", "batch_per_rank",
                                             (json_int_t)o->recipe.batch, "scaling", "weak",
                                             "same_weights", true));
    json_t *ratios = json_object();
    for (int n = 1; n <= o->ranks; n++) {
        char key[20];
        snprintf(key, sizeof key, "%d", n);
        if (!isnan(ratio(b, n))) row_set(ratios, key, ratio(b, n));
    }
    if (o->peers) json_object_set(report, "weft_over_peer", ratios);
    if (o->peers && !has_script()) json_object_set_new(report, "no_peer", json_string(NO_SCRIPT));
    json_decref(ratios);
    return EXIT_DONE;
}

/* ---- the command ---- */

/* The rows set these keys themselves. */
static exit_status check_plan(const char *plan) {
    static const char *const own[] = {"dp", "overlap"};
    for (const char *at = plan; at && *at; at += strcspn(at, ","), at += *at == ',')
        for (size_t i = 0; i < sizeof own / sizeof *own; i++)
            if (strcspn(at, "=,") == strlen(own[i]) && !strncmp(at, own[i], strlen(own[i])))
                return complain(EXIT_USAGE,
                                "--plan %.200s: weft bench ddp sets %s itself, in each row: dp up "
                                "to --ranks, overlap on and off; leave it out",
                                plan, own[i]);
    return EXIT_DONE;
}

static exit_status resolve(cli *c) {
    const options *o = &c->o;
    exit_status bad = apart_resolve(c, 5);
    if (bad) return bad;
    if (o->recipe.batch < 1 || o->recipe.batch > LARGEST_BATCH)
        return complain(EXIT_USAGE, "--batch %lld: a rank takes 1 to %d samples",
                        (long long)o->recipe.batch, LARGEST_BATCH);
    return check_plan(o->plan);
}

/* ---- the picture ---- */

#define BAR_WIDTH 0.27

/* The bars of so many ranks, side by side around `middle`, and the line they might reach. */
static void write_group(const rounds *b, FILE *csv, int n_ranks, int middle) {
    const struct {
        const char *way;
        const json_t *row;
    } bars[] = {{n_ranks == 1 ? "one" : "off", ddp_weft(b, n_ranks, false)},
                {"on", ddp_weft(b, n_ranks, true)},
                {"peer", ddp_best_peer(b, n_ranks)}};
    int n = 0, at = 0;
    for (int i = 0; i < 3; i++) n += bars[i].row != NULL;
    for (int i = 0; i < 3; i++)
        if (bars[i].row)
            fprintf(csv, "%s,%d,%.17g,%.17g\n", bars[i].way, n_ranks,
                    row_median(bars[i].row, "runs"), middle + BAR_WIDTH * (at++ - (n - 1) / 2.0));
    if (n_ranks > 1)
        fprintf(csv, "ideal,%d,%.17g,%d\n", n_ranks,
                n_ranks * row_median(ddp_weft(b, 1, false), "runs"), middle);
}

static exit_status ddp_plot(const rounds *b) {
    const options *o = &b->c->o;
    char tics[1500] = "";
    bool has_peer = ddp_best_peer(b, 1) || ddp_best_peer(b, (int)o->ranks);
    int n_groups = 0;
    chart p;
    exit_status bad = chart_begin(&p, b->c, "ddp", "way,ranks,per_second,x",
                                  "%.40s: replicas, each with %lld samples", o->model,
                                  (long long)o->recipe.batch);
    if (bad) return bad;
    for (int n_ranks = 1; n_ranks <= o->ranks; n_ranks++) {
        if (!ddp_weft(b, n_ranks, false)) continue;
        TEXT_ADD(tics, "%s'%d rank%s' %d", *tics ? "," : "", n_ranks, n_ranks == 1 ? "" : "s",
                 n_groups);
        write_group(b, p.csv, n_ranks, n_groups++);
    }
    return chart_end(
        &p,
        "set ylabel '%s per second'; set xtics (%s) scale 0 font ',20';"
        "set boxwidth %g;stats csv skip 1 using 3 nooutput name 'top'; set yrange "
        "[0:top_max*1.25];set xrange [-0.6:%g];is(way)=(strcol(1) eq way ? $4 : NaN);plot "
        "csv skip 1 using (is('one')):3 with boxes lc rgb '#999999' title 'weft, one "
        "rank','' skip 1 using (is('off')):3 with boxes lc rgb '#56b4e9' title 'weft, sums after "
        "backward','' skip 1 using (is('on')):3 with boxes lc rgb '#0072b2' title 'weft, sums "
        "during backward','' skip 1 using (is('peer')):3 with boxes lc rgb '#e69f00' %s,'' skip 1 "
        "using (is('ideal')-0.42):3:(0.84):(0) with vectors nohead dt 2 lw 2.5 lc rgb '#333333' "
        "title 'ideal: ranks times the speed of one','' skip 1 using (strcol(1) eq 'ideal' ? NaN : "
        "$4):3:(sprintf($3<100?\"%%.1f\":\"%%.0f\",$3)) with labels offset 0,0.7 notitle;",
        unit_of(b->c), tics, 0.94 * BAR_WIDTH, n_groups - 0.4,
        has_peer ? "title 'PyTorch DDP over gloo'" : "notitle");
}

exit_status run_bench_ddp(cli *c) {
    static const bench parts = {add_rows, run_row,  leave_out_slow, finish_rows,
                                say_rows, ddp_plot, add_to_report};
    rounds b = {0};
    exit_status bad = resolve(c);
    return bad ? bad : rounds_bench(&b, c, &parts);
}
