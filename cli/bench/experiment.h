/* An experiment: one recipe timed under many plans and microbatch sizes, each of which is a row.
 * Rows take turns, so that a temporary disturbance of the machine affects all of them.
 */
#ifndef CLI_EXPERIMENT_H
#define CLI_EXPERIMENT_H

#include "common/processor.h"
#include "common/samples.h"
#include "job/job.h"
#include "job/progress.h"

#define MAX_ROWS      160
#define MAX_ROW_RANKS 2
#define ROW_BATCHES   3 /* timed in every repeat, as in the tutorial; one more goes before */

/* Means over the timed batches, seconds for ROW_BATCHES of them. */
typedef struct rank_time {
    double compute, transfer, bubble, wait;
} rank_time;

typedef struct row {
    const char *name;     /* "single device", "model parallel", "pipeline" */
    const char *schedule; /* "none" on one rank */
    const char *cut;      /* the unit that begins the second stage; "": balanced */
    int64_t split;        /* images in a microbatch */
    int n_ranks;

    samples seconds;               /* of ROW_BATCHES batches each */
    rank_time time[MAX_ROW_RANKS]; /* sums until row_time divides them */
    double cpu_s;                  /* sum of all of them */
    double loss;                   /* of the last batch; equal under all plans */
    double predicted_s;
    char plan[100];        /* as resolved */
    char second_stage[40]; /* the unit it begins with; "" on one rank */
    size_t planned_bytes[MAX_ROW_RANKS], measured_bytes[MAX_ROW_RANKS];
} row;

/* Times of the units in microbatches of `split` images. */
typedef struct split_costs {
    int64_t split;
    int n_ranks;
    wf_costs *costs;
} split_costs;

typedef struct experiment {
    cli *c;
    job j;
    const char *devices;               /* of two ranks; NULL: cores */
    char device[WF_DEVICE_NAME_BYTES]; /* the list for one rank */
    unsigned char *x, *y; /* [ROW_BATCHES + 1] batches, drawn before anything is timed */
    size_t x_bytes, y_bytes;
    row rows[MAX_ROWS];
    int n_rows;
    split_costs costs[MAX_ROWS];
    int n_costs;
    int n_repeats;
    progress bar;
    int n_runs_done, n_runs; /* of rows, for the bar */
    effort begin, spent;     /* of all of them */
} experiment;

/* ---- rows: experiment.c ---- */

/* The fastest row of that name, schedule, cut (NULL: any) and split (0: any); NULL if there is
 * none. */
const row *experiment_best(const experiment *e, const char *name, const char *schedule,
                           const char *cut, int64_t split);
/* Groups the rows by name, cut and schedule, and sorts these by split. */
void experiment_sort(experiment *e);
void experiment_release(experiment *e);

double row_mean(const row *r);
rank_time row_time(const row *r, int rank);
double row_compute(const row *r); /* of all ranks */

/* ---- running: experiment_run.c ---- */

/* Draws the batches. */
wf_status experiment_draw(experiment *e);
/* Measures, once, the times of the units at the row's split on as many ranks. */
exit_status experiment_learn(experiment *e, const row *r);
/* Runs the row once and adds its times. Complains. */
exit_status experiment_run(experiment *e, row *r);

/* ---- reports ---- */

/* Why the best pipeline is not n times as fast as the best single device: seconds for
 * ROW_BATCHES batches, which add up to seconds - ideal. */
typedef struct loss_account {
    const row *pipeline, *single;
    double seconds, ideal;
    double bubble;           /* nothing to do yet: the pipeline fills and drains */
    double imbalance;        /* the longest stage over the mean one */
    double small_microbatch; /* one device: this split over its best one */
    double shared_memory;    /* two busy devices over one, same split */
    double transfer, waiting;
    double single_idle; /* the single device's own idle time; negative */
} loss_account;

/* False if there is no such pair of rows. */
bool loss_of(const experiment *e, loss_account *account_out);
void loss_say(const experiment *e, const loss_account *a);
json_t *loss_json(const loss_account *a);

void experiment_say(const experiment *e);
/* Into DIR/results.json and where --json says. Complains. */
exit_status experiment_write(const experiment *e);

/* CSV files and pictures into c->o.out. Complains. */
exit_status experiment_plot(const experiment *e, int64_t tutorial_split, const char *tutorial_cut);

#endif
