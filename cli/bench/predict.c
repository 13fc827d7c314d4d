#include "bench/predict.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define USUAL                                                                                      \
    "dp=2;dp=2,zero=1;dp=2,zero=2;dp=2,zero=3;pp=2;pp=2,schedule=zb1;dp=2,recompute=all;"          \
    "pp=2,recompute=all;dp=2,offload=state"
#define USUAL_SLICED USUAL ";tp=2;tp=2,sp" /* where the recipe has slices */

static exit_status add(bench_predict *b, const char *text, size_t n) {
    size_t place = json_array_size(b->all.rows);
    exit_status bad = rounds_add(&b->all,
                                 json_pack("{s:I, s:s%, s:n, s:n, s:n, s:n, s:n, s:{s:[], s:[]}}",
                                           ".plan", (json_int_t)place, ".name", text, n, "plan",
                                           "measured_ms", "predicted_ms", "error", "fastest_ms",
                                           "peak_bytes", "planned", "measured"),
                                 PREDICT_MAX_ROWS);
    if (bad) return bad;
    const char *name = row_text(json_array_get(b->all.rows, place), ".name");
    return complain_of(b->all.c, wf_plan_parse(b->all.c->ctx, name, &b->plans[place]));
}

/* All steps train on the first batch. */
static exit_status add_rows(rounds *all) {
    bench_predict *b = (bench_predict *)all;
    const options *o = &all->c->o;
    const wf_batch *batch;
    exit_status bad = job_open(all->c, o->steps + 1, &b->j);
    if (bad) return bad;
    all->recipe = options_recipe(o);
    wf_status status = job_loader(&b->j, WF_DATA_TRAIN, 0, 0, &b->loader);
    if (status == WF_OK) status = wf_loader_next(b->loader, &batch);
    if (status != WF_OK) return complain_of(all->c, status);
    b->n_feeds = job_feeds(batch, b->feeds);
    const char *usual = o->recipe.n_slices > 1 ? USUAL_SLICED : USUAL;
    for (const char *at = o->plans ? o->plans : usual; at && !bad;) {
        size_t n = strcspn(at, ";");
        bad = add(b, at, n);
        at = at[n] ? at + n + 1 : NULL;
    }
    return bad;
}

static exit_status finish_rows(rounds *all) {
    bench_predict *b = (bench_predict *)all;
    for (json_t *row = NULL; (row = next_row(all->rows, row));) {
        double error = row_number(row, "predicted_ms") / row_number(row, "measured_ms") - 1;
        row_set(row, "error", error);
        b->mean_error += fabs(error) / (double)json_array_size(all->rows);
        b->worst_error = fmax(b->worst_error, fabs(error));
    }
    return EXIT_DONE;
}

static void say_rows(const rounds *all) {
    static const column columns[] = {{"plan", "plan", -39, AS_TEXT},
                                     {"measured ms", "measured_ms", 12, 2},
                                     {"predicted", "predicted_ms", 11, 2},
                                     {"error", "error", 9, AS_ERROR},
                                     {"peak", "peak_bytes.measured", 11, AS_BYTES},
                                     {"planned", "peak_bytes.planned", 11, AS_BYTES}};
    const bench_predict *b = (const bench_predict *)all;
    say(all->c, "\n");
    SAY_COLUMNS(all->c, all->rows, columns);
    say(all->c, "mean error %.1f %%, worst %.1f %%; steps by the CPU time of their instructions\n",
        100 * b->mean_error, 100 * b->worst_error);
}

static exit_status plot(const rounds *b) {
    const options *o = &b->c->o;
    chart p;
    exit_status bad = chart_begin(&p, b->c, "predict", "measured,predicted,plan",
                                  "%.40s, batch %lld: a step's time, predicted and measured",
                                  o->model, (long long)o->recipe.batch);
    if (bad) return bad;
    for (json_t *row = NULL; (row = next_row(b->rows, row));)
        chart_row(p.csv, row, "measured_ms,predicted_ms,plan");
    return chart_end(
        &p,
        "set xlabel 'measured ms'; set ylabel 'predicted ms'; set size square; stats csv skip 1 "
        "using 1:2 nooutput name 'top'; m = 1.1*(top_max_x>top_max_y?top_max_x:top_max_y); set "
        "xrange [0:m]; set yrange [0:m]; plot x with lines lc rgb '#999999' title 'equal', csv "
        "skip 1 using 1:2 with points pt 7 ps 2 lc rgb '#0072b2' title 'plans';");
}

static exit_status add_to_report(const rounds *all, json_t *report) {
    const bench_predict *b = (const bench_predict *)all;
    row_set(report, "mean_error", b->mean_error);
    row_set(report, "worst_error", b->worst_error);
    return EXIT_DONE;
}

exit_status run_bench_predict(cli *c) {
    static const bench parts = {add_rows, predict_run, NULL,         finish_rows,
                                say_rows, plot,        add_to_report};
    bench_predict b = {.loader = NULL};
    exit_status bad = apart_resolve(c, 3);
    if (!bad) bad = rounds_bench(&b.all, c, &parts);
    wf_loader_destroy(b.loader);
    for (int k = 0; k < PREDICT_MAX_ROWS; k++) wf_plan_destroy(b.plans[k]);
    job_close(&b.j);
    return bad;
}
