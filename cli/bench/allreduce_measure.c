/* weft bench allreduce: the work of every rank, as a thread or a process. */
#include "bench/allreduce.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#define BUDGET_US  20000.0 /* of one row in one round; longer if one call takes longer */
#define MOST_CALLS 4096
#define COPY_BYTES ((size_t)128 << 20) /* of all ranks together */
#define N_COPIES   3

/* All ranks take the largest of their values, and so decide alike. */
static wf_status agree(wf_group *group, double *value) {
    return wf_group_all_reduce(group, value, value, 1, WF_F64, WF_MAX, NULL);
}

/* ---- calls ---- */

static wf_status call(wf_group *group, float *x, int64_t n_elem, bool by_work) {
    wf_work *work;
    if (!by_work) return wf_group_all_reduce(group, x, x, n_elem, WF_F32, WF_SUM, NULL);
    wf_status status = wf_group_all_reduce(group, x, x, n_elem, WF_F32, WF_SUM, &work);
    return status == WF_OK ? wf_work_wait(work) : status;
}

static wf_status timed(wf_group *group, float *x, int64_t n_elem, bool by_work, int n_calls,
                       double *us_out) {
    wf_status status = wf_group_barrier(group, NULL);
    double start = now_seconds();
    for (int i = 0; i < n_calls && status == WF_OK; i++) status = call(group, x, n_elem, by_work);
    *us_out = (now_seconds() - start) * 1e6 / n_calls;
    return status == WF_OK ? agree(group, us_out) : status;
}

/* As many calls as the budget has room for; some untimed ones go before. */
static wf_status repeated(wf_group *group, float *x, int64_t n_elem, bool by_work, double *us_out) {
    double us = 0;
    TRY(timed(group, x, n_elem, by_work, 1, &us));
    if (us < BUDGET_US / 16) TRY(timed(group, x, n_elem, by_work, 8, &us));
    int n_calls = us * MOST_CALLS < BUDGET_US ? MOST_CALLS : (int)ceil(BUDGET_US / us);
    return timed(group, x, n_elem, by_work, n_calls, us_out);
}

/* ---- the result ---- */

/* Integers: their sums are exact in any order. */
static float value_at(int64_t i, int rank) {
    return (float)(i % 251 + rank);
}

/* An all-reduce of known numbers. A rank that sees a wrong one goes on with the others, else they
 * would wait for it. */
static wf_status check(wf_context *ctx, wf_group *group, const json_t *row, float *x,
                       bool by_work) {
    int rank = wf_group_rank(group), n = wf_group_n_ranks(group);
    int64_t bytes = (int64_t)row_number(row, "bytes"), n_elem = bytes / (int64_t)sizeof *x, at = -1;
    float got = 0;
    for (int64_t i = 0; i < n_elem; i++) x[i] = value_at(i, rank);
    wf_status status = call(group, x, n_elem, by_work);
    for (int64_t i = 0; i < n_elem && at < 0 && status == WF_OK; i++)
        if (x[i] != (float)n * value_at(i, 0) + (float)(n * (n - 1) / 2)) at = i, got = x[i];
    double is_wrong = at >= 0;
    if (status == WF_OK) status = agree(group, &is_wrong);
    if (status != WF_OK || is_wrong == 0) return status;
    char said[100], sentence[300];
    snprintf(said, sizeof said, "element %lld is %g on rank %d", (long long)at, got, rank);
    snprintf(sentence, sizeof sentence,
             "%s on %s%s, %lld bytes, %d ranks: %s; this is a bug of weft",
             row_text(row, "algorithm"), row_text(row, "wire"), by_work ? ", by stream" : "",
             (long long)bytes, n, at >= 0 ? said : "another rank has a wrong sum");
    return wf_context_fail(ctx, at >= 0 ? WF_BUG : WF_REMOTE, sentence);
}

/* Sets a list of the row to the value of every rank. */
static wf_status gather(wf_group *group, uint64_t value, json_t *row, const char *name) {
    size_t n = (size_t)wf_group_n_ranks(group);
    double own = (double)value, *all = calloc(n, sizeof *all);
    if (!all) return WF_NO_MEMORY;
    wf_status status = wf_group_all_gather(group, &own, all, 1, WF_F64, NULL);
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++) json_array_append_new(list, json_integer((json_int_t)all[i]));
    json_object_set_new(row, name, list);
    free(all);
    return status;
}

/* Counts the bytes that one call moves. An engine's are unknown. */
static wf_status count(wf_group *group, float *x, int64_t n_elem, json_t *row) {
    wf_traffic before = wf_group_traffic(group);
    wf_status status = call(group, x, n_elem, false);
    wf_traffic after = wf_group_traffic(group);
    if (status != WF_OK || !strcmp(row_text(row, "algorithm"), "engine")) return status;
    TRY(gather(group, after.sent_bytes - before.sent_bytes, row, "sent_bytes"));
    return gather(group, after.received_bytes - before.received_bytes, row, "received_bytes");
}

/* ---- a row ---- */

static wf_status measure_row(const bench_allreduce *b, wf_context *ctx, wf_group *group,
                             const json_t *of, json_t *row) {
    int64_t n_elem = (int64_t)row_number(of, "bytes") / (int64_t)sizeof(float);
    size_t bytes = ((size_t)n_elem * sizeof(float) + 63) & ~(size_t)63;
    double time_us = NAN, stream_us = NAN;
    bool is_shared = b->all.c->o.memory == MEMORY_SHARED;
    void *x = NULL;
    wf_status status = WF_OK;
    if (is_shared)
        status = wf_group_alloc(group, bytes, &x);
    else if (!(x = aligned_alloc(64, bytes)))
        status = WF_NO_MEMORY;
    if (status == WF_OK) status = check(ctx, group, of, x, true);
    if (status == WF_OK) status = check(ctx, group, of, x, false);
    /* Sums of sums would overflow; the timed rounds add zeros, which takes as long. */
    if (status == WF_OK) memset(x, 0, bytes);
    if (status == WF_OK) status = count(group, x, n_elem, row);
    if (status == WF_OK) status = repeated(group, x, n_elem, false, &time_us);
    if (status == WF_OK) status = repeated(group, x, n_elem, true, &stream_us);
    if (is_shared)
        wf_group_free(group, x);
    else
        free(x);
    row_set(row, "time_us", time_us);
    row_set(row, "stream_time_us", stream_us);
    return status;
}

static wf_status create_group(wf_job *ranks, const json_t *row, wf_group **group_out) {
    wf_group_config config = WF_GROUP_CONFIG_INIT;
    config.algorithm = row_text(row, "algorithm");
    config.wire = row_text(row, "wire");
    config.order_free = wf_group_algorithm_rotates(config.algorithm);
    return wf_group_create(ranks, &config, group_out);
}

/* ---- memory bandwidth ---- */

/* Stores that pass the caches: a cache would first fetch the bytes that are then overwritten.
 * glibc's memcpy does so only from a size on that depends on the machine. */
static void copy_past_caches(float *to, const float *from, size_t bytes) {
#ifdef __SSE2__
    for (size_t i = 0; i < bytes / sizeof *to; i += 16)
        for (size_t k = i; k < i + 16; k += 4) _mm_stream_ps(to + k, _mm_load_ps(from + k));
    _mm_sfence();
#else
    memcpy(to, from, bytes);
#endif
}

/* Seconds until all ranks have copied: those that share a core do it one after the other. */
static wf_status timed_copy(wf_group *group, float *to, const float *from, size_t bytes,
                            bool is_streamed, double *seconds_out) {
    wf_status status = wf_group_barrier(group, NULL);
    double start = now_seconds();
    if (is_streamed)
        copy_past_caches(to, from, bytes);
    else
        memcpy(to, from, bytes);
    (void)*(volatile float *)(to + bytes / sizeof *to / 2); /* else the compiler drops the copy */
    if (status == WF_OK) status = wf_group_barrier(group, NULL);
    *seconds_out = now_seconds() - start;
    return status == WF_OK ? agree(group, seconds_out) : status;
}

/* GB/s that copies read and write in all ranks at once, as the STREAM benchmark counts them; of the
 * faster way to copy. */
static wf_status copy_rate(wf_group *group, double *gb_s_out) {
    int n = wf_group_n_ranks(group);
    size_t bytes = COPY_BYTES / (size_t)n & ~(size_t)63;
    float *from = aligned_alloc(64, bytes), *to = aligned_alloc(64, bytes);
    double fastest = INFINITY, seconds = 0;
    wf_status status = from && to ? WF_OK : WF_NO_MEMORY;
    if (status == WF_OK) memset(from, 1, bytes), memset(to, 2, bytes);
    for (int i = 0; i < 2 * N_COPIES && status == WF_OK; i++) {
        status = timed_copy(group, to, from, bytes, i % 2, &seconds);
        fastest = fmin(fastest, seconds);
    }
    free(from);
    free(to);
    *gb_s_out = 2.0 * (double)bytes * n / fastest / 1e9;
    return status;
}

/* Creates a group for each algorithm. Those that cannot be are left out. */
static wf_status create_groups(const bench_allreduce *b, wf_context *ctx, wf_job *ranks, int first,
                               json_t *left_out, wf_group **groups) {
    for (int a = 0; a < b->n_algorithms; a++) {
        const json_t *row = json_array_get(b->all.rows, (size_t)(first + a));
        wf_status status = create_group(ranks, row, &groups[a]);
        if (status != WF_OK && status != WF_UNSUPPORTED) return status;
        if (status != WF_OK)
            json_array_append_new(left_out,
                                  json_pack("{s:s, s:s}", "algorithm", row_text(row, "algorithm"),
                                            "why", wf_context_error(ctx)));
    }
    return WF_OK;
}

wf_status reduce_measure(const bench_allreduce *b, wf_context *ctx, wf_job *ranks, int first,
                         int n_rows, int repeat, json_t **report_out) {
    wf_group *groups[REDUCE_MAX_LIST] = {NULL}, *any = NULL;
    json_t *rows = json_array(), *left_out = json_array();
    double copy_gb_s = NAN;
    wf_status status = create_groups(b, ctx, ranks, first, left_out, groups);
    /* A rank that has nothing to do must not leave before the others have found that out, too. */
    if (status == WF_OK) status = wf_job_barrier(ranks);
    for (int a = 0; a < b->n_algorithms; a++) any = groups[a] ? groups[a] : any;
    if (status == WF_OK && any) status = copy_rate(any, &copy_gb_s);
    /* Every other round runs backwards, so that no row always follows the same one. */
    for (int i = 0; i < n_rows && status == WF_OK; i++) {
        int k = repeat % 2 ? n_rows - 1 - i : i;
        const json_t *of = json_array_get(b->all.rows, (size_t)(first + k));
        wf_group *group = groups[k % b->n_algorithms];
        if (!group) continue;
        json_t *row = json_pack("{s:s, s:I}", "algorithm", row_text(of, "algorithm"), "bytes",
                                (json_int_t)row_number(of, "bytes"));
        status = measure_row(b, ctx, group, of, row);
        json_array_append_new(rows, row);
    }
    for (int a = 0; a < b->n_algorithms; a++) wf_group_destroy(groups[a]);
    *report_out = json_pack("{s:o, s:o, s:o}", "rows", rows, "left_out", left_out, "copy_gb_s",
                            json_number(copy_gb_s));
    return status;
}
