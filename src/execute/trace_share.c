/* A trace of processes: each process knows the times of its own rank's instructions and units. Here
 * all processes exchange them, over the board of a step's records. Their clocks are one:
 * CLOCK_MONOTONIC of one machine (wfi_trainer_check_job). */
#include "comm/job/control.h"
#include "execute/trace.h"

#include <math.h>
#include <string.h>

/* Pairs of numbers, of which each is some rank's. */
typedef struct pairs {
    double (*rows)[2];
    bool *is_own;
    int64_t n;
} pairs;

static wf_status pairs_create(wf_context *ctx, int64_t n, pairs *out) {
    *out = (pairs){.n = n};
    out->rows = wfi_alloc(ctx, (size_t)n, sizeof *out->rows, "a trace");
    out->is_own = wfi_alloc(ctx, (size_t)n, sizeof *out->is_own, "a trace");
    return out->rows && out->is_own ? WF_OK : WF_NO_MEMORY;
}

static void pairs_release(wf_context *ctx, pairs *p) {
    wfi_free(ctx, p->rows);
    wfi_free(ctx, p->is_own);
}

static void put(pairs *p, int64_t i, double a, double b) {
    p->rows[i][0] = a;
    p->rows[i][1] = b;
    p->is_own[i] = true;
}

/* Without a board each says all that it knows, one after the other. */
static wf_status say(wf_job *job, int speaker, pairs *p, double (*said)[3]) {
    bool speaks = wf_job_rank(job) == speaker;
    for (int64_t i = 0; i < p->n && speaks; i++) {
        memcpy(said[i], p->rows[i], sizeof *p->rows);
        said[i][2] = p->is_own[i];
    }
    for (int r = 0; r < wf_job_n_ranks(job); r++)
        WF_TRY(wfi_control_move(job, speaker, r, said, said, (size_t)p->n * sizeof *said));
    WF_TRY(wfi_control_moved(job));
    for (int64_t i = 0; i < p->n && !speaks; i++)
        if (said[i][2] > 0) memcpy(p->rows[i], said[i], sizeof *p->rows);
    return WF_OK;
}

static wf_status gather_messages(wf_context *ctx, wf_job *job, pairs *p) {
    double(*said)[3] = wfi_alloc(ctx, (size_t)p->n, sizeof *said, "a trace");
    wf_status status = said ? WF_OK : WF_NO_MEMORY;
    for (int r = 0; r < wf_job_n_ranks(job) && status == WF_OK; r++) status = say(job, r, p, said);
    if (status == WF_OK) wfi_free(ctx, said); /* else it may still be written to */
    return status;
}

/* A board full at a time. */
static wf_status gather(wf_context *ctx, wf_job *job, pairs *p) {
    if (wfi_control_transport(job)) return gather_messages(ctx, job, p);
    double *board = wfi_control_board(job);
    for (int64_t at = 0; at < p->n; at += WFI_CONTROL_RECORDS) {
        int64_t n = wfi_min_i64(p->n - at, WFI_CONTROL_RECORDS);
        WF_TRY(wfi_control_barrier(job, "share a trace"));
        for (int64_t i = 0; i < n; i++)
            if (p->is_own[at + i]) memcpy(board + 2 * i, p->rows[at + i], sizeof *p->rows);
        WF_TRY(wfi_control_barrier(job, "read a trace"));
        memcpy(p->rows[at], board, (size_t)n * sizeof *p->rows);
    }
    return wfi_control_barrier(job, "continue after a trace");
}

/* ---- when instructions ran ---- */

static void take_times(wfi_trace *t, const pairs *x) {
    int32_t n = t->p->n_instructions;
    for (int32_t i = 0; i < n; i++) {
        t->begin_ns[i] = (int64_t)x->rows[i][0];
        t->end_ns[i] = (int64_t)x->rows[i][1];
    }
    for (int32_t r = 0; r < t->p->n_ranks; r++)
        t->start_ns = wfi_min_i64(t->start_ns, (int64_t)x->rows[n + r][0]);
    wfi_trace_complete(t);
}

wf_status wfi_trace_share(wfi_trace *t, wf_job *job) {
    const wf_program *p = t->p;
    int32_t n = p->n_instructions, own = wf_job_rank(job);
    pairs x;
    wf_status status = pairs_create(p->ctx, n + p->n_ranks, &x);
    if (status == WF_OK) {
        for (int32_t i = 0; i < n; i++)
            if (p->instructions[i].rank == own)
                put(&x, i, (double)t->begin_ns[i], (double)t->end_ns[i]);
        put(&x, n + own, (double)t->start_ns, 0);
        status = gather(p->ctx, job, &x);
    }
    if (status == WF_OK) take_times(t, &x);
    pairs_release(p->ctx, &x);
    return status;
}

/* ---- times of units ---- */

/* Takes the mean over the ranks that have the same unit. */
static void take_sums(wfi_trace_sums *sums, const pairs *x, int32_t n_parts, int32_t n_ranks) {
    for (int32_t k = 0; k < n_parts + WFI_N_RATES; k++) {
        double a = 0, b = 0;
        for (int32_t r = 0; r < n_ranks; r++) {
            a += x->rows[r * (n_parts + WFI_N_RATES) + k][0];
            b += x->rows[r * (n_parts + WFI_N_RATES) + k][1];
        }
        if (k < n_parts)
            sums->mean_us[k] = b > 0 ? a / b : NAN;
        else
            sums->rates[k - n_parts] = (wfi_rate_sum){a, b};
    }
}

wf_status wfi_trace_share_sums(const wf_program *p, wf_job *job, wfi_trace_sums *sums) {
    int32_t n = p->graph->n_units * WFI_N_PARTS, at = wf_job_rank(job) * (n + WFI_N_RATES);
    pairs x;
    wf_status status = pairs_create(p->ctx, (int64_t)(n + WFI_N_RATES) * p->n_ranks, &x);
    if (status == WF_OK) {
        for (int32_t k = 0; k < n; k++) {
            bool ran = !isnan(sums->mean_us[k]);
            put(&x, at + k, ran ? sums->mean_us[k] : 0, ran);
        }
        for (int k = 0; k < WFI_N_RATES; k++)
            put(&x, at + n + k, sums->rates[k].us, sums->rates[k].bytes);
        status = gather(p->ctx, job, &x);
    }
    if (status == WF_OK) take_sums(sums, &x, n, p->n_ranks);
    pairs_release(p->ctx, &x);
    return status;
}
