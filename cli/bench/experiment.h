/* An experiment: one recipe timed under many plans and microbatch sizes, each of which is a row of
 * rounds.
 */
#pragma once

#include "bench/rounds.h"
#include "job/job.h"

#define MAX_ROWS    160
#define ROW_BATCHES 3 /* timed in every repeat, as in the tutorial; one more goes before */

/* Times of the units in microbatches of `split` images. */
typedef struct split_costs {
    int64_t split;
    int n_ranks;
    wf_costs *costs;
} split_costs;

/* Fields of a row: "name" is "single device", "model parallel" or "pipeline"; "schedule" is "none"
 * on one rank; "cut" is the unit that begins the second stage, "balanced" or "none"; "split":
 * images in a microbatch; "seconds": of ROW_BATCHES batches in each repeat. "rank_times" and
 * "cpu_seconds" are means over the repeats. */
typedef struct experiment {
    rounds all;
    job j;
    const char *devices;               /* of two ranks; NULL: cores */
    char device[WF_DEVICE_NAME_BYTES]; /* the list for one rank */
    unsigned char *x, *y; /* [ROW_BATCHES + 1] batches, drawn before anything is timed */
    size_t x_bytes, y_bytes;
    split_costs costs[MAX_ROWS];
    int n_costs;
} experiment;

/* Draws the batches. */
wf_status experiment_draw(experiment *e);
/* Runs the row once and adds its times; measures first, once, the times of the units at its split
 * on as many ranks. Complains. */
rounds_run experiment_run;
