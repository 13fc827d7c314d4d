#include "bench/predict.h"
#include "checkpoint/checkpoint.h"
#include "job/report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define USUAL                                                                                      \
    "dp=2;dp=2,zero=1;dp=2,zero=2;dp=2,zero=3;pp=2;pp=2,schedule=zb1;dp=2,recompute=all;"          \
    "pp=2,recompute=all;dp=2,offload=state"
#define USUAL_SLICED USUAL ";tp=2;tp=2,sp" /* where the recipe has slices */

static exit_status add(bench_predict *b, const char *text, size_t n) {
    predict_row *r = &b->rows[b->n_rows];
    if (b->n_rows == PREDICT_MAX_ROWS)
        return complain(EXIT_USAGE, "--plans: there can be %d rows", PREDICT_MAX_ROWS);
    *r = (predict_row){.measured_ms = NAN, .predicted_ms = NAN, .fastest_ms = NAN};
    char *copy = strndup(text, n);
    wf_status status = copy ? wf_plan_parse(b->c->ctx, copy, &r->plan)
                            : wf_context_fail(b->c->ctx, WF_NO_MEMORY, "no memory left");
    free(copy);
    if (status != WF_OK) return complain_of(b->c, status);
    r->n_ranks = wf_plan_n_ranks(r->plan);
    b->n_rows++;
    return EXIT_DONE;
}

static exit_status add_rows(bench_predict *b) {
    const char *usual = b->c->o.recipe.n_slices > 1 ? USUAL_SLICED : USUAL;
    exit_status bad = EXIT_DONE;
    for (const char *at = b->c->o.plans ? b->c->o.plans : usual; at && !bad;) {
        size_t n = strcspn(at, ";");
        bad = add(b, at, n);
        at = at[n] ? at + n + 1 : NULL;
    }
    return bad;
}

static exit_status run_row(bench_predict *b, int row) {
    int n_runs = b->n_rows * (int)b->c->o.repeat;
    progress_show(&b->bar, (double)b->n_runs_done++ / n_runs, wf_plan_text(b->rows[row].plan));
    wf_status status = predict_run(b, &b->rows[row]);
    if (status != WF_OK) progress_clear(&b->bar);
    return complain_of(b->c, status);
}

static exit_status run_all(bench_predict *b) {
    exit_status bad = EXIT_DONE;
    progress_open(&b->bar, !b->c->o.quiet);
    for (int k = 0; k < b->n_rows * (int)b->c->o.repeat && !bad; k++) {
        int round = k / b->n_rows, at = k % b->n_rows; /* odd rounds go backwards */
        bad = interrupt_status()
                  ? complain(interrupt_status(), "interrupted; no results have been written")
                  : run_row(b, round % 2 ? b->n_rows - 1 - at : at);
    }
    progress_clear(&b->bar);
    for (const predict_row *r = b->rows; r < b->rows + b->n_rows; r++) {
        b->mean_error += fabs(predict_error(r)) / b->n_rows;
        b->worst_error = fmax(b->worst_error, fabs(predict_error(r)));
    }
    return bad;
}

/* All steps train on the first batch. */
static exit_status run(bench_predict *b) {
    wf_loader *loader = NULL;
    const wf_batch *batch;
    cli *c = b->c;
    b->begin = effort_now();
    wf_status status = job_loader(&b->j, WF_DATA_TRAIN, 0, 0, &loader);
    if (status == WF_OK) status = wf_loader_next(loader, &batch);
    if (status == WF_OK) b->n_feeds = job_feeds(batch, b->feeds);
    exit_status bad = status == WF_OK ? add_rows(b) : complain_of(c, status);
    if (!bad) bad = run_all(b);
    if (!bad) bad = complain_of(c, effort_since(c, &b->begin, &b->spent));
    wf_loader_destroy(loader);
    return bad;
}

static void release(bench_predict *b) {
    for (predict_row *r = b->rows; r < b->rows + b->n_rows; r++) {
        wf_plan_destroy(r->plan);
        json_decref(r->planned);
        json_decref(r->measured);
    }
    job_close(&b->j);
}

exit_status run_bench_predict(cli *c) {
    static bench_predict b;
    b = (bench_predict){.c = c};
    exit_status bad = apart_resolve(c, 3);
    if (!bad) bad = apart_check_alone(c);
    if (!bad) bad = report_check(c);
    if (!bad && c->o.out) bad = checkpoint_folder(c);
    if (!bad) bad = job_open(c, c->o.steps + 1, &b.j);
    if (bad) return bad;
    interrupt_watch();
    bad = run(&b);
    if (!bad) predict_say(&b);
    if (!bad) effort_say(c, &b.spent);
    if (!bad) bad = predict_write(&b);
    release(&b);
    return bad;
}
