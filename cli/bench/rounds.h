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
    char peer_version[100];
    progress bar;
    int n_runs_done, n_runs;
    effort begin, spent;
} rounds;

/* Checks that nothing else has started this process and that --json and --out can be written, and
 * begins. Complains. */
exit_status rounds_open(rounds *b, cli *c);
/* Appends the row (a new reference). Complains if there are more than `most` rows or the row is
 * NULL. */
exit_status rounds_add(rounds *b, json_t *row, size_t most);

/* Runs a row once. Complains. */
typedef exit_status rounds_run(rounds *b, json_t *row);
/* Calls `run` for each row without ".left_out", in odd rounds backwards, so no row always follows
 * the same one. The progress line shows `verb` and the row's ".name". Complains. */
exit_status rounds_once(rounds *b, const char *verb, int round, rounds_run *run);
/* Does --repeat rounds. `after_first` (or NULL) may leave rows out of the later ones. */
exit_status rounds_all(rounds *b, rounds_run *run, void (*after_first)(rounds *b));

/* Adds "weft bench train" or "weft plan" (by `name`), the options that were given, and the
 * report's path. The caller adds --repeat. */
void rounds_words(const rounds *b, const char *name, words *w);
/* Runs the words, which it releases, as "ranks" of the row. Sets the row's "plan" and
 * "weights_sha256", which are the same in all runs. */
exit_status rounds_weft(rounds *b, json_t *row, words *w, json_t **report_out);

/* Ends the measurement: prints the table by `say_rows` and the effort. */
exit_status rounds_end(rounds *b, void (*say_rows)(const rounds *b));
/* Adds the rows and the effort to the report, and "peers", the rows with "way", under --peers. */
void rounds_report(const rounds *b, json_t *report);
void rounds_close(rounds *b);

/* ---- rows and their fields ---- */

/* The row after `row` (NULL: the first); NULL after the last. */
json_t *next_row(const json_t *rows, const json_t *row);

json_t *row_public(const json_t *row); /* a copy without fields that begin with a dot */
const char *row_text(const json_t *row, const char *field); /* "" if there is none */
/* The number at a path such as "peak_bytes.planned"; the largest of a list. NAN: there is none. */
double row_number(const json_t *row, const char *path);
double row_median(const json_t *row, const char *list); /* NAN: none */
double row_least(const json_t *row, const char *list);
void row_set(json_t *row, const char *field, double value); /* NAN: null */
/* Appends to a list of the row. Complains. */
exit_status row_append(json_t *row, const char *list, double value);

/* ---- tables and pictures ---- */

typedef struct column {
    const char *head, *field; /* a path of row_number */
    int width;                /* negative: aligned to the left */
    int as;                   /* decimals of a number, or one of the next */
} column;

#define AS_TEXT    (-1) /* a text or a whole number */
#define AS_BYTES   (-2)
#define AS_PERCENT (-3)
#define AS_ERROR   (-4) /* "+3.1 %" */

/* Prints the heads, then the rows. "-" replaces a missing value. A row with "no_figures" has that
 * sentence after its AS_TEXT columns. A row with ".begins" follows a blank line. */
void say_columns(const cli *c, const json_t *rows, const column *columns, int n);
#define SAY_COLUMNS(c, rows, columns)                                                              \
    say_columns(c, rows, columns, (int)(sizeof(columns) / sizeof *(columns)))

/* Writes these fields of the row, "a,b,c", as a line of a CSV file. */
void chart_row(FILE *csv, const json_t *row, const char *fields);

#endif
