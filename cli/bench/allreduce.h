/* weft bench allreduce: one all-reduce, timed for each size, algorithm and wire. bench/cases/ runs
 * rounds: in each, weft measures one wire, as threads or as a rank of a job, and peers run beside
 * it.
 */
#pragma once

#include "bench/rounds.h"
#include "common/text.h"

#define REDUCE_MAX_LIST 32

/* Rows of one wire are together, smaller sizes first. Their ".times" and ".streams" are those of
 * the rounds: microseconds of one call, the longest of the ranks', and by a work handle. A row that
 * cannot be measured has ".why". */
typedef struct bench_allreduce {
    rounds all;
    int n_ranks;
    bool is_worker; /* a rank of a job that another process has started */
    int64_t bytes[REDUCE_MAX_LIST];
    int n_bytes;
    const char *algorithms[REDUCE_MAX_LIST], *wires[REDUCE_MAX_LIST];
    int n_algorithms, n_wires;
    double copy_gb_s; /* the most of any round */
} bench_allreduce;

/* ---- allreduce_measure.c: one rank's part ---- */

/* Times all rows of the wire, from `first` on, once, in an order that `repeat` decides. Collective.
 * *report_out: "rows" with "algorithm", "bytes", "time_us", "stream_time_us", and on rank 0
 * "sent_bytes" and "received_bytes" of all ranks (none of an engine's); "left_out" with
 * "algorithm" and "why"; "copy_gb_s". Errors: BUG: a sum is wrong, the sentence names it; those of
 * groups. */
wf_status reduce_measure(const bench_allreduce *b, wf_context *ctx, wf_job *ranks, int first,
                         int n_rows, int repeat, json_t **report_out);

/* ---- allreduce_run.c: a round of one wire. Complains. ---- */

exit_status reduce_run_threads(bench_allreduce *b, int first, int n_rows, int repeat);
exit_status reduce_run_here(bench_allreduce *b, int first, int n_rows, int repeat);
