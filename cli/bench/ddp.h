/* weft bench ddp: replicas of one model, more and more of them, each with a core and a batch of its
 * own; PyTorch's DistributedDataParallel beside them. A row is a way to run; rows take turns.
 */
#ifndef CLI_BENCH_DDP_H
#define CLI_BENCH_DDP_H

#include "bench/apart.h"
#include "processor.h"
#include "progress.h"
#include "samples.h"

#define DDP_MAX_ROWS 64

typedef struct ddp_row {
    const char
        *peer; /* NULL: weft; else how PyTorch runs: "eager", "compiled, tuned malloc", ... */
    int n_ranks;
    bool overlap;
    bool is_slow;               /* a peer's way that is left out after the first round */
    samples rates;              /* images or tokens a second: from the median step of each run */
    double step_min_ms, cpu_ms; /* of a step: the least; CPU time of all ranks, NAN: not known */
    char sha[65]; /* of the weights after a run, the same for all runs; "" of a peer's */
    char *plan;
    double reduce_ms, beside_ms; /* of a traced step, mean of the ranks; NAN: not known */
} ddp_row;

typedef struct bench_ddp {
    cli *c;
    apart run;
    ddp_row rows[DDP_MAX_ROWS];
    int n_rows, n_repeats;
    const char *unit; /* "images" or "tokens" */
    json_t *recipe;   /* of the one rank */
    char peer_version[100];
    char no_peer[400]; /* why there is no figure of PyTorch's, or "" */
    progress bar;
    effort begin, spent;
    int n_runs_done, n_runs;
} bench_ddp;

double ddp_rate(const ddp_row *r); /* median of the runs; NAN if there are none */
/* Speed over that of as many single ranks, of weft or of PyTorch. */
double ddp_efficiency(const bench_ddp *b, const ddp_row *r);
/* weft's row of so many ranks, or PyTorch's fastest; NULL if there is none. */
const ddp_row *ddp_weft(const bench_ddp *b, int n_ranks, bool overlap);
const ddp_row *ddp_best_peer(const bench_ddp *b, int n_ranks);

/* Runs the row once and adds what came out. Complains. */
exit_status ddp_run(bench_ddp *b, ddp_row *r);
/* Runs weft's row once more, traced, to see when its reductions ran. Complains. */
exit_status ddp_trace(bench_ddp *b, ddp_row *r);

void ddp_say(const bench_ddp *b);
/* Table and picture into --out, the report to --json. Complains. */
exit_status ddp_write(const bench_ddp *b);

#endif
