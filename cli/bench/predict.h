/* weft bench predict: the step of several plans, predicted and measured.
 *
 * The costs of units come from one rank, while another core runs the same: cores share caches and
 * memory. A row's step is simulated with them and measured with the ranks of its plan. Both count
 * CPU time: each instruction takes its least of all steps, and the simulation puts these together
 * in the program's order. So other programs do not count.
 */
#ifndef CLI_BENCH_PREDICT_H
#define CLI_BENCH_PREDICT_H

#include "bench/apart.h"
#include "common/processor.h"
#include "job/progress.h"

#define PREDICT_MAX_ROWS 64

typedef struct predict_row {
    wf_plan *plan; /* with the first round's costs, which choose its cut */
    int n_ranks;
    double measured_ms, predicted_ms; /* the least of the rounds */
    double fastest_ms;                /* a step by the clock, with all that disturbed it */
    json_t *planned, *measured;       /* peak bytes of each rank; NULL: it has not run */
} predict_row;

typedef struct bench_predict {
    cli *c;
    job j;
    wf_feed feeds[WF_WORKER_MAX_FEEDS]; /* of all steps */
    int n_feeds;
    predict_row rows[PREDICT_MAX_ROWS];
    int n_rows, n_runs_done;
    double mean_error, worst_error;
    progress bar;
    effort begin, spent;
} bench_predict;

/* Measures one rank, then the row. */
wf_status predict_run(const bench_predict *b, predict_row *r);

double predict_error(const predict_row *r);
void predict_say(const bench_predict *b);
/* The picture into --out, the report to --json. Complains. */
exit_status predict_write(const bench_predict *b);

#endif
