/* weft bench predict: the step of several plans, predicted and measured.
 *
 * The costs of units come from one rank, alone and while another core runs the same: cores share
 * caches and memory. A row's step is simulated with them and measured with the ranks of its plan.
 * Both count CPU time: each instruction takes its least of all steps, and the simulation puts these
 * together in the program's order. So other programs do not count.
 */
#pragma once

#include "bench/rounds.h"
#include "common/speed.h"
#include "job/job.h"

#define PREDICT_MAX_ROWS 64

/* A row's ".plan" is its place in `plans`. Its times are the least of the rounds; "fastest_ms" is a
 * step by the clock, with all that disturbed it. */
typedef struct bench_predict {
    rounds all;
    job j;
    wf_loader *loader;
    wf_feed feeds[WF_WORKER_MAX_FEEDS]; /* of all steps */
    int n_feeds;
    memory_speed speed;               /* of this round */
    wf_plan *plans[PREDICT_MAX_ROWS]; /* with the first round's costs, which choose their cuts */
} bench_predict;

/* Measures one rank and the row. Complains. */
rounds_run predict_run;
