/* A bench with JSON objects as rows. Runs in rounds add to them. At the end one table of columns
 * prints them, and the report and the CSV files of pictures hold them. Fields with names that begin
 * with a dot do not appear in a report.
 */
#ifndef CLI_BENCH_ROUNDS_H
#define CLI_BENCH_ROUNDS_H

#include "bench/apart.h"
#include "common/processor.h"
#include "common/samples.h"
#include "draw/chart.h"
#include "job/progress.h"

typedef struct rounds {
    cli *c;
    apart run;
    json_t *rows, *recipe;
    progress bar;
    int n_runs_done, n_runs;
    effort begin, spent;
} rounds;

/* Runs a row once. Complains. */
typedef exit_status rounds_run(rounds *b, json_t *row);

/* The parts of a bench. Those that return a status complain; NULL: the bench does without. */
typedef struct bench {
    exit_status (*add_rows)(rounds *b);
    rounds_run *run;
    exit_status (*after_first)(rounds *b); /* of the rounds: may add rows */
    exit_status (*finish)(rounds *b);      /* after all rounds: checks rows, sets their results */
    void (*say_rows)(const rounds *b);
    exit_status (*plot)(const rounds *b);                   /* into --out */
    exit_status (*report)(const rounds *b, json_t *report); /* adds fields of its own */
} bench;

/* Runs the bench with --repeat rounds: checks first that nothing else has started this process and
 * that --json and --out can be written, prints the table and the effort in the end, and writes the
 * report: the recipe, --steps, --repeat and the rows. Complains. */
exit_status rounds_bench(rounds *b, cli *c, const bench *parts);
/* Appends the row (a new reference). Complains if there are more than `most` rows or the row is
 * NULL. */
exit_status rounds_add(rounds *b, json_t *row, size_t most);

/* Calls `run` for each row from `first` on, in odd rounds backwards, so no row always follows the
 * same one. The progress line shows `verb` and the row's ".name". Complains. */
exit_status rounds_once(rounds *b, const char *verb, size_t first, int round, rounds_run *run);

void rounds_close(rounds *b);

/* ---- rows and their fields ---- */

/* The row after `row` (NULL: the first); NULL after the last. */
json_t *next_row(const json_t *rows, const json_t *row);

json_t *row_public(const json_t *row); /* a copy without fields that begin with a dot */
const char *row_text(const json_t *row, const char *field); /* "" if there is none */
/* The number at a path such as "peak_bytes.planned"; the largest of a list. NAN: there is none. */
double row_number(const json_t *row, const char *path);
/* Of a list of the row; NAN: it is empty. */
double row_statistic(const json_t *row, const char *list,
                     double (*statistic)(const samples *s, size_t first));
#define row_median(row, list) row_statistic(row, list, samples_median)
#define row_mean(row, list)   row_statistic(row, list, samples_mean)
#define row_std(row, list)    row_statistic(row, list, samples_std)
void row_set(json_t *row, const char *field, double value); /* NAN: null */
/* Appends to a list of the row. Complains. */
exit_status row_append(json_t *row, const char *list, double value);
/* Appends the peak of a rank to the lists "planned" and "measured". */
void row_append_peak(json_t *peaks, const wf_trainer_memory *memory);

/* ---- tables and pictures ---- */

typedef struct column {
    const char *head, *field; /* a path of row_number */
    int width;                /* negative: aligned to the left */
    int as;                   /* decimals of a number, or one of the next */
} column;

#define AS_TEXT  (-1) /* a text or a whole number */
#define AS_BYTES (-2)
#define AS_ERROR (-3) /* "+3.1 %" */

/* Prints the heads, then the rows. "-" replaces a missing value. A row with ".begins" follows a
 * blank line. */
void say_columns(const cli *c, const json_t *rows, const column *columns, int n);
#define SAY_COLUMNS(c, rows, columns)                                                              \
    say_columns(c, rows, columns, (int)(sizeof(columns) / sizeof *(columns)))

/* Writes these fields of the row, "a,b,c", as a line of a CSV file. */
void chart_row(FILE *csv, const json_t *row, const char *fields);

#endif
