/* A trace of processes: each process knows the times of its own rank's instructions and units. Here
 * all processes exchange them: a row that is another rank's is zeros, so all rows are sums. Their
 * clocks are one: CLOCK_MONOTONIC of one machine (wfi_trainer_check_job). */
#include "execute/trace.h"

#include <math.h>
#include <weft/group.h>

/* Pairs of numbers, of which each is some rank's. */
typedef struct pairs {
    double (*rows)[2];
    int64_t n;
} pairs;

static wf_status pairs_create(wf_context *ctx, int64_t n, pairs *out) {
    *out = (pairs){wfi_alloc(ctx, (size_t)n, sizeof *out->rows, "a trace"), n};
    return out->rows ? WF_OK : WF_NO_MEMORY;
}

static void put(pairs *p, int64_t i, double a, double b) {
    p->rows[i][0] = a;
    p->rows[i][1] = b;
}

static wf_status gather(wf_job *job, pairs *p) {
    wf_group *all;
    WF_TRY(wf_group_create(job, NULL, &all));
    wf_status status = wf_group_all_reduce(all, p->rows, p->rows, 2 * p->n, WF_F64, WF_SUM, NULL);
    wf_group_destroy(all);
    return status;
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
        status = gather(job, &x);
    }
    if (status == WF_OK) take_times(t, &x);
    wfi_free(p->ctx, x.rows);
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
        status = gather(job, &x);
    }
    if (status == WF_OK) take_sums(sums, &x, n, p->n_ranks);
    wfi_free(p->ctx, x.rows);
    return status;
}
