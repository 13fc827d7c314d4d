/* weft bench allreduce: a round of one wire or peer, in threads or processes. */
#include "bench/allreduce.h"

#include <math.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

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

/* The entry of the report's list that is about the row; NULL. Peers' have no algorithm. */
static json_t *find(const json_t *report, const char *list, const json_t *row) {
    const json_t *entries = json_object_get(report, list);
    for (json_t *entry = NULL; (entry = next_row(entries, entry));) {
        const char *algorithm = row_text(entry, "algorithm");
        double bytes = row_number(entry, "bytes");
        if ((!*algorithm || !strcmp(algorithm, row_text(row, "algorithm"))) &&
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
        exit_status bad = row_append(row, "rounds_us", time_us);
        if (!bad) bad = row_append(row, ".streams", row_number(result, "stream_time_us"));
        if (bad) return bad;
        if (reduce_is_peer(row) || !json_object_get(result, "sent_bytes")) continue;
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

/* ---- ranks as processes ---- */

static void add_list(words *w, const bench_allreduce *b) {
    char list[REDUCE_MAX_LIST * 24] = "";
    for (int i = 0; i < b->n_bytes; i++)
        TEXT_ADD(list, "%s%lld", i ? "," : "", (long long)b->bytes[i]);
    words_add(w, "--bytes=%s", list);
}

/* A launcher's variables are not ours to hand on: mpirun sets its own. */
static void add_mpirun(words *w, int n_ranks) {
    words_add_text(w, "env -u RANK -u WORLD_SIZE -u LOCAL_RANK -u LOCAL_WORLD_SIZE "
                      "-u WEFT_CONTROL_FD OMPI_ALLOW_RUN_AS_ROOT=1 "
                      "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun -n");
    words_add(w, "%d", n_ranks);
    if (n_ranks > apart_n_cores()) words_add_text(w, "--oversubscribe --bind-to none");
}

exit_status reduce_run_processes(bench_allreduce *b, int first, int n_rows) {
    static const option_id own[] = {OPT_bytes, OPT_wire,  OPT_repeat, OPT_out,  OPT_json,
                                    OPT_quiet, OPT_peers, OPT_python, OPT_ranks};
    const char *wire = row_text(json_array_get(b->all.rows, (size_t)first), "wire");
    bool is_mpi = !strcmp(wire, "mpi");
    char self[4096] = "", path[300];
    words w = {0};
    json_t *report;
    if (is_mpi) add_mpirun(&w, b->n_ranks);
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    words_add(&w, "%s", n > 0 ? self : "weft");
    words_add_text(&w, "bench allreduce --repeat=1 --quiet");
    words_add_options(&w, &b->all.c->o, FOR_BENCH_ALLREDUCE, own, sizeof own / sizeof *own);
    add_list(&w, b);
    words_add(&w, "--wire=%s", wire);
    words_add(&w, "--ranks=%d", b->n_ranks);
    words_add(&w, "--json=%s", apart_path(&b->all.run, "report.json", path));
    exit_status bad = apart_run(&b->all.run, is_mpi ? NULL : APART_SELF, &w,
                                is_mpi ? 0 : b->n_ranks, apart_n_cores(), false, &report);
    words_release(&w);
    if (bad) return bad;
    bad = keep(b, first, n_rows, report, wire);
    json_decref(report);
    return bad;
}

/* ---- peers ---- */

/* Compiles the program once. */
static bool compile_mpi(bench_allreduce *b, char program[300]) {
    char source[4096];
    words w = {0};
    apart_path(&b->all.run, "peer", program);
    if (access(program, X_OK) == 0) return true;
    if (!bench_file("peers/mpi_allreduce.c", source)) {
        snprintf(b->no_mpi, sizeof b->no_mpi, "mpi_allreduce.c is not installed with weft");
        return false;
    }
    words_add_text(&w, "mpicc -O2 -o");
    words_add(&w, "%s", program);
    words_add(&w, "%s", source);
    (void)apart_run(&b->all.run, NULL, &w, 0, apart_n_cores(), true, NULL);
    words_release(&w);
    if (access(program, X_OK) == 0) return true;
    snprintf(b->no_mpi, sizeof b->no_mpi, "mpicc: %.300s", b->all.run.last);
    return false;
}

static bool mpi_words(bench_allreduce *b, words *w) {
    char program[300];
    if (!compile_mpi(b, program)) return false;
    add_mpirun(w, b->n_ranks);
    words_add(w, "%s", program);
    return true;
}

static bool gloo_words(bench_allreduce *b, words *w) {
    char file[4096], python[4096], path[300];
    if (!bench_file("peers/gloo_allreduce.py", file)) {
        snprintf(b->no_gloo, sizeof b->no_gloo, "gloo_allreduce.py is not installed with weft");
        return false;
    }
    apart_path(&b->all.run, "store", path);
    words_add_text(w, "env OMP_NUM_THREADS=1 GLOO_SOCKET_IFNAME=lo");
    words_add(w, "%s", peer_python(&b->all.c->o, python));
    words_add(w, "%s", file);
    words_add(w, "--store=%s", path);
    return true;
}

exit_status reduce_run_peer(bench_allreduce *b, int first, int n_rows) {
    bool is_mpi = !strcmp(row_text(json_array_get(b->all.rows, (size_t)first), "wire"), "open-mpi");
    char *why = is_mpi ? b->no_mpi : b->no_gloo, path[300];
    words w = {0};
    json_t *report;
    if (*why) return EXIT_DONE;
    if (!(is_mpi ? mpi_words(b, &w) : gloo_words(b, &w))) {
        words_release(&w);
        return EXIT_DONE;
    }
    add_list(&w, b);
    words_add(&w, "--json=%s", apart_path(&b->all.run, "report.json", path));
    exit_status bad = peer_run(&b->all.run, &w, is_mpi ? 0 : b->n_ranks, apart_n_cores(), why,
                               is_mpi ? b->mpi_version : b->gloo_version, &report);
    if (bad || !report) return bad;
    if (is_mpi && strncmp(b->mpi_version, "Open MPI", 8) != 0)
        snprintf(why, sizeof b->no_mpi, "mpirun and mpicc are of another MPI: %s", b->mpi_version);
    else
        bad = keep(b, first, n_rows, report, is_mpi ? "Open MPI" : "gloo");
    json_decref(report);
    return bad;
}
