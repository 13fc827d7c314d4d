/* weft bench allreduce: a round of one wire, in threads or as a rank of a job. */
#include "bench/allreduce.h"

#include <math.h>
#include <sched.h>
#include <string.h>

/* ---- cores ---- */

/* Rank r's share of the cores, as the devices of a trainer have it. More ranks than cores: where
 * the system likes. */
static void take_share(int rank, int n_ranks) {
    cpu_set_t all, own;
    if (sched_getaffinity(0, sizeof all, &all)) return;
    int n = CPU_COUNT(&all), share = n / n_ranks, at = 0;
    if (!share) return;
    CPU_ZERO(&own);
    for (int core = 0; core < CPU_SETSIZE; core++) {
        if (!CPU_ISSET(core, &all)) continue;
        if (at / share == rank) CPU_SET(core, &own);
        at++;
    }
    (void)sched_setaffinity(0, sizeof own, &own);
}

/* ---- results ---- */

/* The entry of the report's list that is about the row; NULL. */
static json_t *find(const json_t *report, const char *list, const json_t *row) {
    const json_t *entries = json_object_get(report, list);
    for (json_t *entry = NULL; (entry = next_row(entries, entry));) {
        const char *algorithm = row_text(entry, "algorithm");
        double bytes = row_number(entry, "bytes");
        if (!strcmp(algorithm, row_text(row, "algorithm")) &&
            (isnan(bytes) || bytes == row_number(row, "bytes")))
            return entry;
    }
    return NULL;
}

/* `from` names the report in sentences. */
static exit_status keep(bench_allreduce *b, int first, int n_rows, const json_t *report,
                        const char *from) {
    for (int k = 0; k < n_rows; k++) {
        json_t *row = json_array_get(b->all.rows, (size_t)(first + k));
        json_t *result = find(report, "rows", row), *out = find(report, "left_out", row);
        double time_us = row_number(result, "time_us");
        if (out) {
            json_object_set(row, ".why", json_object_get(out, "why"));
            continue;
        }
        if (!(time_us > 0))
            return complain(EXIT_FAILED, "%s: its report has no time for %.0f bytes", from,
                            row_number(row, "bytes"));
        TRY(row_append(row, "rounds_us", time_us));
        TRY(row_append(row, ".streams", row_number(result, "stream_time_us")));
        if (!json_object_get(result, "sent_bytes")) continue;
        json_object_set(row, "sent_bytes", json_object_get(result, "sent_bytes"));
        json_object_set(row, "received_bytes", json_object_get(result, "received_bytes"));
    }
    b->copy_gb_s = fmax(b->copy_gb_s, row_number(report, "copy_gb_s"));
    return EXIT_DONE;
}

/* ---- this process is a rank ---- */

exit_status reduce_run_here(bench_allreduce *b, int first, int n_rows, int repeat) {
    cli *c = b->all.c;
    json_t *report;
    if (!repeat) take_share(wf_job_rank(c->job), b->n_ranks);
    wf_status status = reduce_measure(b, c->ctx, c->job, first, n_rows, repeat, &report);
    exit_status bad = complain_of(c, status);
    if (!bad) bad = keep(b, first, n_rows, report, "this rank");
    json_decref(report);
    return bad;
}

/* ---- ranks as threads ---- */

typedef struct thread_round {
    bench_allreduce *b;
    int first, n_rows, repeat;
    json_t *report; /* rank 0's */
} thread_round;

static wf_status run_rank(wf_context *ctx, wf_job *ranks, void *argument) {
    thread_round *t = argument;
    json_t *report;
    take_share(wf_job_rank(ranks), t->b->n_ranks);
    wf_status status = reduce_measure(t->b, ctx, ranks, t->first, t->n_rows, t->repeat, &report);
    if (wf_job_rank(ranks))
        json_decref(report);
    else
        t->report = report;
    return status;
}

exit_status reduce_run_threads(bench_allreduce *b, int first, int n_rows, int repeat) {
    static const wf_rank_entry entry = {"allreduce", run_rank};
    thread_round round = {b, first, n_rows, repeat, NULL};
    wf_spawn_config config = WF_SPAWN_CONFIG_INIT;
    config.n_ranks = b->n_ranks;
    config.entry = &entry;
    config.arg = &round;
    exit_status bad = complain_of(b->all.c, wf_spawn(b->all.c->ctx, &config, NULL));
    if (!bad) bad = keep(b, first, n_rows, round.report, "rank 0");
    json_decref(round.report);
    return bad;
}
