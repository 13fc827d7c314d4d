/* A bench with JSON objects as rows. Runs in rounds add to them. Fields with names that begin with
 * a dot do not appear in a report.
 */
#pragma once

#include "bench/cases.h"
#include "common/samples.h"
#include "job/progress.h"

typedef struct rounds {
    cli *c;
    json_t *rows, *recipe;
    progress bar;
    int n_runs_done, n_runs;
    effort begin;
} rounds;

/* Runs a row once. Complains. */
typedef exit_status rounds_run(rounds *b, json_t *row);

/* The parts of a bench. NULL: the bench does without. */
typedef struct bench {
    exit_status (*add_rows)(rounds *b); /* Complains. */
    rounds_run *run;
    exit_status (*after_first)(rounds *b); /* of the rounds: may add rows. Complains. */
    json_t *(*describe)(const rounds *b);  /* what its case reads besides rows and recipe */
} bench;

/* Runs the bench with --repeat rounds: checks first that nothing else has started this process and
 * that --json and --out can be written. Then shows the rows (cases.h). Complains. */
exit_status rounds_bench(rounds *b, cli *c, const bench *parts);
/* Appends the row (a new reference). Complains if there are more than `most` rows or the row is
 * NULL. */
exit_status rounds_add(rounds *b, json_t *row, size_t most);

/* Calls `run` for each row from `first` on, in odd rounds backwards, so no row always follows the
 * same one. The progress line shows the row's ".name". Complains. */
exit_status rounds_once(rounds *b, size_t first, int round, rounds_run *run);

void rounds_close(rounds *b);

/* ---- rows and their fields ---- */

/* The row after `row` (NULL: the first); NULL after the last. */
json_t *next_row(const json_t *rows, const json_t *row);

const char *row_text(const json_t *row, const char *field); /* "" if there is none */
/* The number at a path such as "model.layers". NAN: there is none. */
double row_number(const json_t *row, const char *path);
double row_mean(const json_t *row, const char *list);       /* NAN: it is empty */
void row_set(json_t *row, const char *field, double value); /* NAN: null */
/* Appends to a list of the row. Complains. */
exit_status row_append(json_t *row, const char *list, double value);
