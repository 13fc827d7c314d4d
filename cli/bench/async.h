/* weft bench async: synchronous, asynchronous and local updates of the same recipe, each a row: its
 * speed, its losses and the staleness of its gradients, with even workers and with a slow one. Rows
 * take turns. Each has a prediction from one worker's times.
 */
#ifndef CLI_BENCH_ASYNC_H
#define CLI_BENCH_ASYNC_H

#include "bench/apart.h"
#include "processor.h"
#include "progress.h"
#include "samples.h"

#define ASYNC_MAX_ROWS    40
#define ASYNC_MAX_WORKERS 64

typedef struct async_row {
    wf_update_mode update;
    int number;                         /* of the update; the row with a slow worker has the same */
    char name[60];                      /* "async, no bound, 2 servers" */
    char plan[400];                     /* as it was given */
    bool is_uneven;                     /* shares of lanes by the workers' speeds */
    bool is_bounded;                    /* in staleness */
    int64_t n_servers;                  /* of async */
    double slow;                        /* factor of worker 0; 1: none */
    int64_t n_slow_lanes, n_most_lanes; /* of worker 0, and the most of another one */

    samples rates;      /* samples a second of each run */
    json_t *losses;     /* of the first run */
    json_t *staleness;  /* gradients by their staleness, of all runs */
    double accuracy;    /* on the test data; NAN: there is none */
    double predicted;   /* samples a second */
    double server_busy; /* share of the time, predicted */
} async_row;

/* One worker's times of a share of a batch. */
typedef struct async_costs {
    samples step_ms, update_ms; /* a synchronous run of one worker without servers */
    samples served_ms;          /* a step of one worker and one server */
    double compute_ms, transfer_ms, update;
} async_costs;

typedef struct bench_async {
    cli *c;
    apart run;
    async_row rows[ASYNC_MAX_ROWS];
    int n_rows, n_updates; /* of different updates */
    async_costs costs;
    int64_t n_workers, n_lanes;
    int n_window;       /* steps of a mean loss */
    double target_loss; /* NAN until it is known */
    json_t *recipe;
    progress bar;
    effort begin, spent;
    int n_runs_done;
} bench_async;

/* Adds the rows in the order of the table. Complains. */
exit_status async_add_rows(bench_async *b);

/* ---- runs: async_run.c ---- */

/* Runs the row once and adds its results. Complains. */
exit_status async_run(bench_async *b, async_row *r);
/* Measures one worker: alone, and with a server. Complains. */
exit_status async_measure(bench_async *b, bool has_server);

/* ---- predictions: async_predict.c ---- */

/* Fills in each row's prediction from the costs. Errors: those of wf_simulation_run. */
wf_status async_predict(bench_async *b);

/* ---- results: async_report.c ---- */

double async_rate(const async_row *r);
/* The mean of the window of losses that ends with step `step`. */
double async_mean_loss(const bench_async *b, const async_row *r, size_t step);
double async_last_loss(const bench_async *b, const async_row *r);
/* Returns the seconds until the mean loss reaches the target; NAN: it never does. */
double async_seconds_to_target(const bench_async *b, const async_row *r);

void async_say(const bench_async *b);
/* Tables and pictures into --out, the report to --json. Complains. */
exit_status async_write(const bench_async *b);

/* ---- pictures: async_plot.c ---- */

exit_status async_plot(const bench_async *b);

#endif
