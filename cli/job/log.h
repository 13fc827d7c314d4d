/* The log of a run, DIR/log.jsonl: one JSON object a line for each step and epoch. The picture is
 * drawn from it, too, so that a resumed run has its whole history. TensorBoard shows the same
 * curves from DIR/events.out.tfevents.weft. */
#pragma once

#include "job/report.h"

#define LOG_EVENTS "events.out.tfevents.weft"

typedef struct log_file {
    FILE *file; /* NULL: no --out, nothing is logged */
    char path[4000];
} log_file;

typedef struct run_log {
    log_file lines, events;
    double flushed;      /* when, by now_seconds: slow steps can be followed */
    int64_t tested_step; /* of the last test that an earlier run logged; -1 */
} run_log;

/* All of them complain, with the reason. */

/* Keeps the lines that an earlier run logged up to and with step `keep_steps`; 0: nothing. Lines
 * are only added from then on; the last one may be half a line after a kill, and is dropped when
 * the log is opened again. `dir` NULL: nothing is logged. */
exit_status log_open(run_log *log, const cli *c, const char *dir, int64_t keep_steps);
/* `n_skipped`: steps that this one leaves out, itself included; 0: none. */
exit_status log_step(run_log *log, int64_t step, int64_t epoch, const wf_step_result *result,
                     double ms, bool has_accuracy, int64_t n_skipped);
/* `accuracy` may be NAN. The test that a run makes at its end is not logged again by one that goes
 * on from there. */
exit_status log_test(run_log *log, int64_t step, int64_t epoch, double loss, double accuracy);
/* Writes buffered lines; the log does so itself once a second. Before a checkpoint is saved, the
 * log must contain all steps that the checkpoint counts as done. */
exit_status log_flush(run_log *log);
exit_status log_close(run_log *log);

/* log_read.c: adds the logged steps after `first`, up to `last`, to the record; NAN where the log
 * has none. */
exit_status log_read(const run_log *log, const job *j, int64_t first, int64_t last, record *r);

/* Draws --out's curve.csv and curve.png from the log. Where gnuplot is missing it writes the table
 * only and says so if it is the last picture. Complains. */
exit_status plot_curve(const cli *c, const char *log_path, const char *title, bool is_last);
