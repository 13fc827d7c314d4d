/* The log of a run, DIR/log.jsonl: one JSON object a line for each step and epoch. It is
 * also what the picture is drawn from, so that a resumed run has its whole history. */
#ifndef CLI_LOG_H
#define CLI_LOG_H

#include "job.h"

typedef struct run_log {
    FILE *file; /* NULL: no --out, nothing is logged */
} run_log;

/* Keeps what an earlier run logged up to and with step `keep_steps`; 0: nothing. */
bool log_open(run_log *log, const char *dir, int64_t keep_steps);
bool log_step(run_log *log, int64_t step, int64_t epoch, const wf_step_result *result, double ms,
              bool has_accuracy);
/* `accuracy` may be NAN. */
bool log_test(run_log *log, int64_t step, int64_t epoch, double loss, double accuracy);
/* Before a checkpoint: what it counts as done is then in the log. */
bool log_flush(run_log *log);
bool log_close(run_log *log);

/* Draws DIR/curve.csv and DIR/curve.png from DIR/log.jsonl. Where gnuplot is missing it
 * writes the table only and says so in `note`, else `note` is "". */
bool plot_curve(const char *dir, const char *title, char *note, size_t note_bytes);

#endif
