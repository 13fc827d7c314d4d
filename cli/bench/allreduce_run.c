/* weft bench allreduce: a round of one wire or peer, in threads or processes. */
#include "bench/allreduce.h"
#include "report.h"

#include <math.h>
#include <sched.h>
#include <stdlib.h>
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

/* ---- samples ---- */

/* One block, which free() ends. */
static reduce_sample *create_samples(const bench_allreduce *b, int n_rows) {
    size_t n = (size_t)n_rows, n_ranks = (size_t)b->n_ranks;
    reduce_sample *of = calloc(n, sizeof *of + 2 * n_ranks * sizeof(double));
    for (size_t k = 0; of && k < n; k++) {
        of[k].sent_bytes = (double *)(of + n) + 2 * k * n_ranks;
        of[k].received_bytes = of[k].sent_bytes + n_ranks;
    }
    return of;
}

static wf_status keep(bench_allreduce *b, int first, int n_rows, const reduce_sample *of,
                      double copy_gb_s) {
    for (int k = 0; k < n_rows; k++) {
        reduce_row *r = &b->rows[first + k];
        if (*of[k].why) {
            memcpy(r->why, of[k].why, sizeof r->why);
            continue;
        }
        if (!samples_add(&r->time_us, of[k].time_us) ||
            !samples_add(&r->stream_us, of[k].stream_us))
            return wf_context_fail(b->c->ctx, WF_NO_MEMORY, "no memory left");
        memcpy(r->sent_bytes, of[k].sent_bytes, (size_t)b->n_ranks * sizeof(double));
        memcpy(r->received_bytes, of[k].received_bytes, (size_t)b->n_ranks * sizeof(double));
    }
    b->copy_gb_s = fmax(b->copy_gb_s, copy_gb_s);
    return WF_OK;
}

/* ---- this process is a rank ---- */

exit_status reduce_run_here(bench_allreduce *b, int first, int n_rows, int repeat) {
    cli *c = b->c;
    reduce_sample *taken = create_samples(b, n_rows);
    double copy_gb_s;
    if (!taken) return complain(EXIT_FAILED, "no memory left");
    if (!repeat) take_share(wf_job_rank(c->job), b->n_ranks);
    wf_status status = reduce_measure(b, c->ctx, c->job, first, n_rows, repeat, taken, &copy_gb_s);
    if (status == WF_OK) status = keep(b, first, n_rows, taken, copy_gb_s);
    free(taken);
    return status == WF_OK ? EXIT_DONE : complain_of(c, status);
}

/* ---- ranks as threads ---- */

typedef struct thread_round {
    bench_allreduce *b;
    int first, n_rows, repeat;
} thread_round;

static wf_status run_rank(wf_context *ctx, wf_job *ranks, void *argument) {
    const thread_round *t = argument;
    reduce_sample *taken = create_samples(t->b, t->n_rows);
    double copy_gb_s;
    if (!taken) return wf_context_fail(ctx, WF_NO_MEMORY, "no memory left");
    take_share(wf_job_rank(ranks), t->b->n_ranks);
    wf_status status =
        reduce_measure(t->b, ctx, ranks, t->first, t->n_rows, t->repeat, taken, &copy_gb_s);
    /* The rows change when nobody reads them any more. */
    if (status == WF_OK) status = wf_job_barrier(ranks);
    if (status == WF_OK && !wf_job_rank(ranks))
        status = keep(t->b, t->first, t->n_rows, taken, copy_gb_s);
    free(taken);
    return status;
}

exit_status reduce_run_threads(bench_allreduce *b, int first, int n_rows, int repeat) {
    static const wf_rank_entry entry = {"allreduce", run_rank};
    thread_round round = {b, first, n_rows, repeat};
    wf_spawn_config config = WF_SPAWN_CONFIG_INIT;
    config.n_ranks = b->n_ranks;
    config.entry = &entry;
    config.arg = &round;
    return complain_of(b->c, wf_spawn(b->c->ctx, &config, NULL));
}

/* ---- ranks as processes ---- */

static void read_list(const json_t *row, const char *key, int n, double *list) {
    const json_t *from = json_object_get(row, key);
    for (int i = 0; i < n; i++) {
        const json_t *value = json_array_get(from, (size_t)i);
        list[i] = value ? json_number_value(value) : NAN;
    }
}

static bool is_text(const json_t *object, const char *key, const char *text) {
    const json_t *value = json_object_get(object, key);
    return !json_is_string(value) ||
           !strcmp(json_string_value(value), text); /* peers' reports have no names */
}

/* The entry of the report's list that is about the row; NULL. */
static const json_t *find(const json_t *report, const char *list, const reduce_row *r) {
    const json_t *entries = json_object_get(report, list);
    for (size_t i = 0; i < json_array_size(entries); i++) {
        const json_t *entry = json_array_get(entries, i), *bytes = json_object_get(entry, "bytes");
        if (is_text(entry, "algorithm", r->algorithm) &&
            (!bytes || json_integer_value(bytes) == r->bytes))
            return entry;
    }
    return NULL;
}

static exit_status read_rows(bench_allreduce *b, int first, int n_rows, const json_t *report,
                             const char *who) {
    for (int k = 0; k < n_rows; k++) {
        reduce_row *r = &b->rows[first + k];
        const json_t *row = find(report, "rows", r);
        const json_t *why = json_object_get(find(report, "left_out", r), "why");
        double time_us = json_member(row, "time_us");
        if (why) {
            snprintf(r->why, sizeof r->why, "%.290s", json_string_value(why));
            continue;
        }
        if (!(time_us > 0))
            return complain(EXIT_FAILED, "%s: its report has no time for %lld bytes", who,
                            (long long)r->bytes);
        if (!samples_add(&r->time_us, time_us) ||
            !samples_add(&r->stream_us, json_member(row, "stream_time_us")))
            return complain(EXIT_FAILED, "no memory left");
        read_list(row, "sent_bytes", b->n_ranks, r->sent_bytes);
        read_list(row, "received_bytes", b->n_ranks, r->received_bytes);
    }
    b->copy_gb_s = fmax(b->copy_gb_s, json_member(report, "copy_gb_s"));
    return EXIT_DONE;
}

static void add_list(words *w, const bench_allreduce *b) {
    char list[REDUCE_MAX_LIST * 24] = "";
    for (int i = 0; i < b->n_bytes; i++)
        snprintf(list + strlen(list), sizeof list - strlen(list), "%s%lld", i ? "," : "",
                 (long long)b->bytes[i]);
    words_add(w, "--bytes=%s", list);
}

/* A launcher's variables are not ours to hand on: mpirun sets its own. */
static void add_mpirun(words *w, int n_ranks) {
    static const char *const ours[] = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE",
                                       "WEFT_CONTROL_FD"};
    words_add(w, "env");
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++) {
        words_add(w, "-u");
        words_add(w, "%s", ours[i]);
    }
    words_add(w, "OMPI_ALLOW_RUN_AS_ROOT=1");
    words_add(w, "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1");
    words_add(w, "mpirun");
    words_add(w, "-n");
    words_add(w, "%d", n_ranks);
    if (n_ranks > apart_n_cores()) {
        words_add(w, "--oversubscribe");
        words_add(w, "--bind-to");
        words_add(w, "none");
    }
}

exit_status reduce_run_processes(bench_allreduce *b, int first, int n_rows) {
    static const option_id own[] = {OPT_bytes, OPT_wire,  OPT_repeat, OPT_out,  OPT_json,
                                    OPT_quiet, OPT_peers, OPT_python, OPT_ranks};
    const char *wire = b->rows[first].wire;
    bool is_mpi = !strcmp(wire, "mpi");
    char self[4096] = "", path[300];
    words w = {0};
    json_t *report;
    if (is_mpi) add_mpirun(&w, b->n_ranks);
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    words_add(&w, "%s", n > 0 ? self : "weft");
    words_add(&w, "bench");
    words_add(&w, "allreduce");
    words_add_options(&w, &b->c->o, FOR_BENCH_ALLREDUCE, own, sizeof own / sizeof *own);
    add_list(&w, b);
    words_add(&w, "--wire=%s", wire);
    words_add(&w, "--ranks=%d", b->n_ranks);
    words_add(&w, "--repeat=1");
    words_add(&w, "--quiet");
    words_add(&w, "--json=%s", apart_path(&b->run, "report.json", path));
    exit_status bad = apart_run(&b->run, is_mpi ? NULL : APART_SELF, &w, is_mpi ? 0 : b->n_ranks,
                                apart_n_cores(), false, &report);
    words_release(&w);
    if (bad) return bad;
    bad = read_rows(b, first, n_rows, report, wire);
    json_decref(report);
    return bad;
}

/* ---- peers ---- */

/* Compiles the program once. */
static bool compile_mpi(bench_allreduce *b, char program[300]) {
    char source[4096];
    words w = {0};
    apart_path(&b->run, "peer", program);
    if (access(program, X_OK) == 0) return true;
    if (!peer_file("mpi_allreduce.c", source)) {
        snprintf(b->no_mpi, sizeof b->no_mpi, "mpi_allreduce.c is not installed with weft");
        return false;
    }
    const char *const compile[] = {"mpicc", "-O2", "-o", program, source};
    for (size_t i = 0; i < sizeof compile / sizeof *compile; i++) words_add(&w, "%s", compile[i]);
    (void)apart_run(&b->run, NULL, &w, 0, apart_n_cores(), true, NULL);
    words_release(&w);
    if (access(program, X_OK) == 0) return true;
    snprintf(b->no_mpi, sizeof b->no_mpi, "mpicc: %.300s", b->run.last);
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
    if (!peer_file("gloo_allreduce.py", file)) {
        snprintf(b->no_gloo, sizeof b->no_gloo, "gloo_allreduce.py is not installed with weft");
        return false;
    }
    apart_path(&b->run, "store", path);
    words_add(w, "env");
    words_add(w, "OMP_NUM_THREADS=1");
    words_add(w, "GLOO_SOCKET_IFNAME=lo");
    words_add(w, "%s", peer_python(&b->c->o, python));
    words_add(w, "%s", file);
    words_add(w, "--store=%s", path);
    return true;
}

exit_status reduce_run_peer(bench_allreduce *b, int first, int n_rows) {
    bool is_mpi = !strcmp(b->rows[first].algorithm, "mpi");
    char *why = is_mpi ? b->no_mpi : b->no_gloo, path[300];
    words w = {0};
    json_t *report;
    if (*why) return EXIT_DONE;
    if (!(is_mpi ? mpi_words(b, &w) : gloo_words(b, &w))) {
        words_release(&w);
        return EXIT_DONE;
    }
    add_list(&w, b);
    words_add(&w, "--json=%s", apart_path(&b->run, "report.json", path));
    exit_status bad = peer_run(&b->run, &w, is_mpi ? 0 : b->n_ranks, apart_n_cores(), why,
                               is_mpi ? b->mpi_version : b->gloo_version, &report);
    if (bad || !report) return bad;
    if (is_mpi && strncmp(b->mpi_version, "Open MPI", 8) != 0)
        snprintf(why, sizeof b->no_mpi, "mpirun and mpicc are of another MPI: %s", b->mpi_version);
    else
        bad = read_rows(b, first, n_rows, report, is_mpi ? "Open MPI" : "gloo");
    json_decref(report);
    return bad;
}
