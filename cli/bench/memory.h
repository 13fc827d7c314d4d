/* weft bench memory: one recipe under many plans, each a row: the bytes that a rank needs, planned
 * and measured, the time of a step, and the bytes that it sends. PyTorch's DDP and FSDP beside
 * them. Rows take turns.
 */
#ifndef CLI_BENCH_MEMORY_H
#define CLI_BENCH_MEMORY_H

#include "bench/apart.h"
#include "processor.h"
#include "progress.h"
#include "samples.h"

#define MEMORY_MAX_ROWS 64

typedef struct memory_row {
    const char *peer; /* NULL: weft; else a way of PyTorch: "ddp", "fsdp", "fsdp-recompute" */
    char *asked;      /* the plan as it was given */
    char *plan;       /* as the run has resolved it */
    int n_ranks;
    samples ms;                              /* the median step of each run */
    json_t *planned, *measured, *sent;       /* bytes, [n_ranks]; a peer: measured alone */
    double parameter_bytes, optimizer_bytes; /* planned, of the rank with the highest peak */
    double disk_bytes;                       /* planned, of all ranks' files together */
    samples disk_ms;                         /* that a plain read and write of those take */
    char sha[65];                            /* of the weights after a run */
    char why[300];                           /* a peer's: there are no figures, because */
} memory_row;

typedef struct bench_memory {
    cli *c;
    apart run;
    memory_row rows[MEMORY_MAX_ROWS];
    int n_rows, n_repeats, n_most; /* ranks of the row that has most */
    json_t *recipe;
    char peer_version[100];
    progress bar;
    effort begin, spent;
    int n_runs_done;
} bench_memory;

/* Runs the row once and adds what came out. Complains. */
exit_status memory_run(bench_memory *b, memory_row *r);

/* Where the row keeps something on disk: how long its disk needs for as much, read once and written
 * once by plain calls. Complains. */
exit_status memory_measure_disk(bench_memory *b, memory_row *r);

/* The highest of the ranks' bytes; NAN if there are none. */
double memory_most(const json_t *bytes);

void memory_say(const bench_memory *b);
/* Tables and pictures into --out, the report to --json. Complains. */
exit_status memory_write(const bench_memory *b);

#endif
