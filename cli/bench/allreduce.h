/* weft bench allreduce: one all-reduce, timed for each size, algorithm and wire; Open MPI's and
 * gloo's beside it. A row is one of them; rows take turns, and so do wires and peers.
 */
#ifndef CLI_BENCH_ALLREDUCE_H
#define CLI_BENCH_ALLREDUCE_H

#include "bench/apart.h"
#include "processor.h"
#include "progress.h"
#include "samples.h"
#include "text.h"

#define REDUCE_MAX_ROWS 512
#define REDUCE_MAX_LIST 32

typedef struct reduce_row {
    int64_t bytes;
    const char *algorithm, *wire; /* "mpi" on "open-mpi" and "gloo" on "gloo" are peers' */
    bool is_peer;
    samples time_us;                     /* of one call in each round, the longest of the ranks' */
    samples stream_us;                   /* the same by a work handle; none of a peer's */
    double *sent_bytes, *received_bytes; /* [n_ranks] by one call; no engine's */
    char why[300]; /* there can be none: the algorithm cannot do it on this wire; "": it can */
} reduce_row;

typedef struct bench_allreduce {
    cli *c;
    apart run;
    int n_ranks, n_repeats;
    bool is_worker; /* a rank of a job that somebody else has started */
    int64_t bytes[REDUCE_MAX_LIST];
    int n_bytes;
    const char *algorithms[REDUCE_MAX_LIST], *wires[REDUCE_MAX_LIST];
    int n_algorithms, n_wires;
    reduce_row rows[REDUCE_MAX_ROWS]; /* of one wire together, smaller sizes first */
    int n_rows;
    double copy_gb_s; /* the most of any round */
    char mpi_version[100], gloo_version[100];
    char no_mpi[400], no_gloo[400]; /* why there are no figures of theirs, or "" */
    progress bar;
    int n_runs_done, n_runs;
    effort begin, spent;
} bench_allreduce;

double reduce_time_us(const reduce_row *r);    /* median of the rounds; NAN: none */
double reduce_algbw_gb_s(const reduce_row *r); /* bytes of a buffer over time */
double reduce_busbw_gb_s(const bench_allreduce *b, const reduce_row *r); /* as nccl-tests */
/* The busbw at which an all-reduce of large buffers moves as many bytes a second as copies do. */
double reduce_copy_busbw_gb_s(const bench_allreduce *b);
/* The fastest of such a wire (NULL: any of weft's) at so many bytes; NULL: none. */
const reduce_row *reduce_best(const bench_allreduce *b, int64_t bytes, const char *wire);

/* ---- allreduce_measure.c: one rank's part ---- */

/* What a rank measured; the same on all ranks, but sent and received, which rank 0 has. */
typedef struct reduce_sample {
    double time_us, stream_us;
    char why[300]; /* the algorithm cannot do it on this wire, so nothing was measured; or "" */
    double *sent_bytes, *received_bytes; /* [n_ranks] */
} reduce_sample;

/* Times all rows of the wire once, in an order that `repeat` decides. taken[n_rows], zeroed, for
 * the rows from `first` on. Collective. Errors: BUG: a sum is wrong, the sentence says which; those
 * of groups. */
wf_status reduce_measure(const bench_allreduce *b, wf_context *ctx, wf_job *ranks, int first,
                         int n_rows, int repeat, reduce_sample *taken, double *copy_gb_s_out);

/* ---- allreduce_run.c: a round of one wire or peer. Complains. ---- */

exit_status reduce_run_threads(bench_allreduce *b, int first, int n_rows, int repeat);
exit_status reduce_run_processes(bench_allreduce *b, int first, int n_rows);
exit_status reduce_run_here(bench_allreduce *b, int first, int n_rows, int repeat);
exit_status reduce_run_peer(bench_allreduce *b, int first, int n_rows);

/* ---- reports ---- */

/* "4 KiB", "100 MB". */
const char *reduce_size_text(char text[TEXT_BYTES], int64_t bytes);
/* Whether what it moves was counted: not inside of peers, and of MPI. */
bool reduce_has_traffic(const reduce_row *r);
void reduce_say(const bench_allreduce *b);
json_t *reduce_report(const bench_allreduce *b);
exit_status reduce_plot(const bench_allreduce *b);

#endif
