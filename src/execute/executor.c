#include "execute/executor.h"

#include "base/env.h"
#include "compile/compile.h"
#include "execute/issue.h"
#include "execute/recorded.h"
#include "program/clock.h"
#include "program/stage.h"

/* ---- kernels ---- */

static wf_status prepare_segment(const wfi_segment *segment) {
    if (!segment) return WF_OK;
    for (int32_t s = 0; s < segment->n_steps; s++) {
        WF_TRY(wfi_kernel_prepare(segment->steps[s].kernel));
        if (segment->steps[s].kernel_add) WF_TRY(wfi_kernel_prepare(segment->steps[s].kernel_add));
    }
    return WF_OK;
}

static wf_status prepare_rank(void *self, void *argument) {
    const wfi_executor *e = self;
    const wf_program *p = e->p;
    int32_t rank = (int32_t)(intptr_t)argument;
    wfi_worker *w = &e->workers[rank];
    if (!w->n_threads)
        WF_TRY(wfi_backend_enter(w->backend, p->ctx, rank, p->recipe.n_threads, &w->n_threads));
    for (int32_t v = 0; v < p->n_variants; v++) {
        const wfi_code *code = wfi_executor_code(e, rank, v);
        for (int32_t u = 0; code && u < p->graph->n_units; u++) {
            bool is_on = wfi_unit_is_on(p, u, rank);
            if (!is_on || wfi_stage_replica_on(p, wfi_program_stage_of(p, u), rank) < 0) continue;
            for (int part = 0; part < WFI_N_PARTS; part++) {
                WF_TRY(prepare_segment(code->units[u].part[part]));
                WF_TRY(prepare_segment(code->units[u].pack[part]));
            }
        }
    }
    return WF_OK;
}

static int32_t n_kernel_sets(const wf_program *p) {
    return wfi_mesh_n_groups(&p->mesh, WFI_ALONG(WFI_PP));
}

/* The first kernel set with ranks in this process uses the program's own kernels. */
static wf_status find_code(wfi_executor *e) {
    const wf_program *p = e->p;
    bool is_taken = false;
    for (int32_t d = 0; d < n_kernel_sets(p); d++) {
        bool is_here = false;
        for (int32_t r = 0; r < p->n_ranks; r++)
            is_here |= wfi_program_kernel_set(p, r) == d && e->workers[r].is_local &&
                       p->ranks[r].n_stream[WFI_STREAM_COMPUTE] > 0;
        if (!is_here) continue;
        for (int32_t v = 0; v < p->n_variants; v++) {
            wfi_code **code = &e->code[d * p->n_variants + v];
            if (is_taken)
                WF_TRY(wfi_program_copy_code(p, v, code));
            else
                *code = p->variants[v].code;
        }
        is_taken = true;
    }
    return WF_OK;
}

static wf_status prepare_all(wfi_executor *e) {
    const wf_program *p = e->p;
    WF_TRY(find_code(e));
    wfi_stall_begin(e->stall, NULL);
    for (int32_t r = 0; r < p->n_ranks; r++)
        WF_TRY(wfi_stream_push(e->workers[r].streams[WFI_STREAM_COMPUTE], prepare_rank, e,
                               (void *)(intptr_t)r));
    for (int32_t r = 0; r < p->n_ranks; r++)
        WF_TRY(wfi_worker_announce(&e->workers[r], WFI_STREAM_COMPUTE));
    for (int32_t r = 0; r < p->n_ranks; r++)
        WF_TRY(wfi_event_wait(wfi_stream_record(e->workers[r].streams[WFI_STREAM_COMPUTE])));
    return WF_OK;
}

/* ---- life ---- */

/* Those of a group stand side by side in the order. */
static void find_groups(wfi_executor *e) {
    const wf_program *p = e->p;
    for (int32_t k = 0, n; k < p->n_instructions; k += n) {
        n = wfi_n_together(p, k);
        e->own[e->n_own++] = k;
        for (int32_t m = 0; m < n; m++) {
            int32_t i = p->order[k + m];
            e->first[i] = k;
            e->n_group[i] = n;
            e->end[i] = e->n_tasks[wfi_executor_stream(&p->instructions[i])] +=
                wfi_issue_n_tasks(e, i);
        }
    }
}

/* Keeps the groups that have a rank of this process. */
static void keep_own(wfi_executor *e) {
    int32_t n = e->n_own;
    e->n_own = 0;
    for (int32_t k = 0; k < n; k++) {
        const int32_t *group = e->p->order + e->own[k];
        bool is_own = false;
        for (int32_t m = 0; m < e->n_group[group[0]]; m++)
            is_own |= e->workers[e->p->instructions[group[m]].rank].is_local;
        if (is_own) e->own[e->n_own++] = e->own[k];
    }
}

/* The checker sees the tasks of all ranks, wherever they run. */
static wf_status list_all(wfi_executor *e) {
    int64_t checks;
    WF_TRY(wfi_env_count(e->p->ctx, WFI_WEFT_CHECK_EVENTS, &checks));
    find_groups(e);
    if (checks) return wfi_happens_create(e->p, e->workers, &e->happens);
    keep_own(e);
    return WF_OK;
}

/* -1: all are here. */
static int32_t traced_rank(const wf_program *p, const wfi_worker *workers) {
    for (int32_t r = 0; r < p->n_ranks; r++)
        if (workers[r].job && workers[r].is_local) return r;
    return -1;
}

wf_status wfi_executor_create(const wf_program *p, wfi_worker *workers, wfi_profile *profile,
                              int64_t delay_us, bool traces, wfi_stall *stall,
                              wfi_executor **executor_out) {
    size_t n = (size_t)p->n_instructions;
    wfi_executor *e = wfi_alloc(p->ctx, 1, sizeof *e, "an executor");
    if (!e) return WF_NO_MEMORY;
    *e = (wfi_executor){
        .p = p, .workers = workers, .profile = profile, .delay_us = delay_us, .stall = stall};
    wfi_pool *pool = &e->pool;
    size_t n_streams = (size_t)p->n_ranks * WFI_N_STREAMS;
    size_t n_sets = (size_t)(p->n_variants * n_kernel_sets(p));
    size_t n_squares = (size_t)p->n_ranks * (size_t)p->graph->n_units;
    wfi_pool_init(pool, p->ctx);
    e->code = wfi_pool_alloc(pool, n_sets, sizeof(wfi_code *));
    e->end = wfi_pool_alloc(pool, n, sizeof *e->end);
    e->n_tasks = wfi_pool_alloc(pool, n_streams, sizeof *e->n_tasks);
    e->begin = wfi_pool_alloc(pool, n_streams, sizeof *e->begin);
    e->own = wfi_pool_alloc(pool, n, sizeof *e->own);
    e->first = wfi_pool_alloc(pool, n, sizeof *e->first);
    e->n_group = wfi_pool_alloc(pool, n, sizeof *e->n_group);
    e->squares = wfi_pool_alloc(pool, n_squares, sizeof *e->squares);
    wf_status status = wfi_pool_status(pool);
    if (status == WF_OK && traces) status = wfi_trace_create(p, traced_rank(p, workers), &e->trace);
    if (status == WF_OK) status = wfi_recorded_create(p, &e->recorded);
    e->carrier = wfi_carrier_of(workers, p->n_ranks);
    if (status == WF_OK && p->gap_bytes) status = wfi_gaps_create(p, workers, &e->gaps);
    if (status == WF_OK) {
        while (!workers[e->first_local].is_local) e->first_local++;
        status = list_all(e);
    }
    if (status == WF_OK) status = prepare_all(e);
    if (status != WF_OK) {
        /* A thread may still be preparing a kernel that is about to be freed. */
        wfi_owner_fail(&workers[0].owner, status);
        for (int32_t r = 0; r < p->n_ranks; r++) wfi_worker_stop(&workers[r]);
        wfi_executor_destroy(e);
        return status;
    }
    *executor_out = e;
    return WF_OK;
}

void wfi_executor_destroy(wfi_executor *e) {
    if (!e) return;
    wf_context *ctx = e->p->ctx;
    int32_t n_variants = e->p->n_variants;
    for (int32_t k = 0; k < n_variants * n_kernel_sets(e->p) && e->code; k++)
        if (e->code[k] != e->p->variants[k % n_variants].code) wfi_code_destroy(e->code[k]);
    wfi_recorded_destroy(e);
    wfi_trace_destroy(e->trace);
    wfi_happens_destroy(e->happens);
    wfi_gaps_destroy(e->gaps);
    wfi_pool_release(&e->pool);
    wfi_free(ctx, e);
}

/* ---- a step ---- */

wf_status wfi_executor_run(wfi_executor *e, const wfi_step *step) {
    e->step = *step;
    if (e->trace) wfi_trace_start(e->trace);
    if (e->gaps) wfi_gaps_fill(e->gaps);
    wfi_issue_begin(e);
    wfi_stall_begin(e->stall, e);
    wf_status status = wfi_issue_all(e);
    wfi_stall_issued(e->stall);
    if (status == WF_OK) status = wfi_issue_end(e);
    if (status == WF_OK) wfi_stall_end(e->stall);
    if (status == WF_OK) {
        if (e->trace) wfi_trace_finish(e->trace);
        return WF_OK;
    }
    /* Every rank skips its queued tasks, and the threads end, so nothing runs after the return. The
     * first failure is the one to report. */
    wfi_owner_fail(&e->workers[0].owner, status);
    for (int32_t r = 0; r < e->p->n_ranks; r++) wfi_worker_stop(&e->workers[r]);
    wfi_stall_end(e->stall);
    wf_status first = wfi_owner_check(&e->workers[0].owner);
    return first != WF_OK ? first : status;
}
