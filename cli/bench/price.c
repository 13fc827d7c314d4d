/* weft bench price: CPU time and memory that lanes and slices cost one rank, which needs neither.
 * Each row is a recipe on one rank, trained by weft bench train; rows take turns.
 */
#include "bench/apart.h"
#include "processor.h"
#include "progress.h"
#include "report.h"
#include "samples.h"
#include "text.h"

#include <stdlib.h>
#include <string.h>

typedef struct price_row {
    const char *asked[4]; /* options of weft bench train, NULL-terminated */
    char recipe[100];     /* the same options as the run has resolved them */
    char *plan;
    samples cpu_ms;     /* of a step: the mean of each run */
    json_t *peak_bytes; /* planned and measured, as the run reports it */
    char sha[65];       /* of the weights after a run */
} price_row;

typedef struct bench_price {
    cli *c;
    apart run;
    price_row rows[3]; /* the first is the base */
    int n_rows, n_runs_done;
    json_t *recipe; /* all of the defaults */
    progress bar;
    effort begin, spent;
} bench_price;

static double cpu_ms_of(const price_row *r) {
    return samples_least(&r->cpu_ms, 0);
}

static double over(const bench_price *b, const price_row *r) {
    return cpu_ms_of(r) / cpu_ms_of(b->rows) - 1;
}

/* ---- a run ---- */

static void train_words(const bench_price *b, const price_row *r, words *w) {
    static const option_id own[] = {OPT_n_threads, OPT_repeat, OPT_steps, OPT_json, OPT_quiet};
    const options *o = &b->c->o;
    char path[300];
    words_add(w, "weft");
    words_add(w, "bench");
    words_add(w, "train");
    words_add_options(w, o, FOR_BENCH, own, sizeof own / sizeof *own);
    for (const char *const *asked = r->asked; *asked; asked++) words_add(w, "%s", *asked);
    words_add(w, "--threads=%d", o->recipe.n_threads);
    words_add(w, "--repeat=%lld", (long long)o->steps);
    words_add(w, "--json=%s", apart_path(&b->run, "report.json", path));
    words_add(w, "--quiet");
}

static int count_of(const json_t *recipe, const char *name) {
    return (int)json_integer_value(json_object_get(recipe, name));
}

static exit_status keep(bench_price *b, price_row *r, const json_t *report) {
    json_t *recipe = json_object_get(report, "recipe");
    const char *plan = json_string_value(json_object_get(report, "plan"));
    double cpu_ms = json_member(report, "cpu_ms");
    if (!(cpu_ms > 0) || !plan)
        return complain(EXIT_FAILED, "a run reports no CPU time or no plan");
    snprintf(r->recipe, sizeof r->recipe, "--lanes %d --micro %d --slices %d",
             count_of(recipe, "lanes"), count_of(recipe, "micro"), count_of(recipe, "slices"));
    if (!r->plan) {
        r->plan = strdup(plan);
        r->peak_bytes = json_incref(json_object_get(report, "peak_bytes"));
    }
    if (!*r->asked && !b->recipe) b->recipe = json_incref(recipe);
    if (!r->plan || !samples_add(&r->cpu_ms, cpu_ms))
        return complain(EXIT_FAILED, "no memory left");
    return apart_check_weights(r->plan, report, r->sha);
}

static exit_status run_row(void *self, int row) {
    bench_price *b = self;
    price_row *r = &b->rows[row];
    words w = {0};
    json_t *report;
    char text[150];
    int n_runs = b->n_rows * (int)b->c->o.repeat;
    snprintf(text, sizeof text, "run %d/%d", b->n_runs_done + 1, n_runs);
    progress_show(&b->bar, (double)b->n_runs_done++ / n_runs, text);
    train_words(b, r, &w);
    exit_status bad =
        apart_run(&b->run, APART_SELF, &w, 1, b->c->o.recipe.n_threads, false, &report);
    words_release(&w);
    if (bad) return bad;
    bad = keep(b, r, report);
    json_decref(report);
    return bad;
}

static void release(price_row *r) {
    samples_release(&r->cpu_ms);
    json_decref(r->peak_bytes);
    free(r->plan);
}

/* Only a run knows its defaults, so equal rows are found after the first round. */
static void leave_out_same(bench_price *b) {
    int n = 1;
    for (int i = 1; i < b->n_rows; i++) {
        bool is_same = false;
        for (int k = 0; k < n; k++) is_same |= !strcmp(b->rows[k].recipe, b->rows[i].recipe);
        if (is_same)
            release(&b->rows[i]);
        else
            b->rows[n++] = b->rows[i];
    }
    b->n_rows = b->n_runs_done = n;
}

static exit_status run_all(bench_price *b) {
    exit_status bad = EXIT_DONE;
    progress_open(&b->bar, !b->c->o.quiet);
    for (int round = 0; round < b->c->o.repeat && !bad; round++) {
        bad = apart_round(round, b->n_rows, run_row, b);
        if (!round && !bad) leave_out_same(b);
    }
    progress_clear(&b->bar);
    return bad;
}

/* ---- what it prints ---- */

static void describe(const cli *c) {
    say(c, "%s on one rank; %lld rounds; a run is an untimed and %lld timed steps\n\n", c->o.model,
        (long long)c->o.repeat, (long long)c->o.steps);
}

static void say_rows(const bench_price *b) {
    say(b->c, "%-36s%14s%10s%14s\n", "recipe", "CPU ms a step", "over", "planned peak");
    for (const price_row *r = b->rows; r < b->rows + b->n_rows; r++) {
        char peak[TEXT_BYTES];
        const json_t *planned = json_object_get(r->peak_bytes, "planned");
        double bytes = json_number_value(json_array_get(planned, 0));
        say(b->c, "%-36s%14.2f%8.1f %%%14s\n", r->recipe, cpu_ms_of(r), 100 * over(b, r),
            text_of_bytes(peak, bytes));
    }
}

static exit_status write_report(const bench_price *b) {
    json_t *rows = json_array();
    for (const price_row *r = b->rows; r < b->rows + b->n_rows; r++)
        json_array_append_new(
            rows, json_pack("{s:s, s:s, s:o, s:o, s:o, s:O, s:s}", "plan", r->plan, "recipe",
                            r->recipe, "cpu_ms", json_number(cpu_ms_of(r)), "over",
                            json_number(over(b, r)), "runs", samples_json(&r->cpu_ms), "peak_bytes",
                            r->peak_bytes, "weights_sha256", r->sha));
    json_t *report =
        json_pack("{s:s, s:O, s:I, s:I, s:o}", "weft", WEFT_VERSION, "recipe", b->recipe, "steps",
                  (json_int_t)b->c->o.steps, "repeat", (json_int_t)b->c->o.repeat, "rows", rows);
    effort_report(&b->spent, report);
    return report_write(b->c, report);
}

/* ---- the command ---- */

exit_status run_bench_price(cli *c) {
    bench_price b = {.c = c,
                     .rows = {{.asked = {"--lanes=1", "--micro=1", "--slices=1"}},
                              {.asked = {"--slices=1"}},
                              {.asked = {NULL}}},
                     .n_rows = 3};
    exit_status bad = apart_resolve(c, 3);
    if (!bad) bad = apart_check_alone(c);
    if (!bad) bad = report_check(c);
    if (!bad) bad = apart_open(c, &b.run);
    if (bad) return bad;
    interrupt_watch();
    describe(c);
    b.begin = effort_now();
    bad = run_all(&b);
    if (!bad) bad = complain_of(c, effort_since(c, &b.begin, &b.spent));
    if (!bad) say_rows(&b);
    if (!bad) effort_say(c, &b.spent);
    if (!bad) bad = write_report(&b);
    for (int i = 0; i < b.n_rows; i++) release(&b.rows[i]);
    json_decref(b.recipe);
    apart_close(&b.run);
    return bad;
}
