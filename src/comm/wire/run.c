/* Runs collectives: the steps of all phases. Between phases every rank waits for all ranks or,
 * without shared memory, for the elements that the next phase reads. */
#include "comm/wire/run.h"

#include "comm/runtime/step.h"

#include <string.h>

/* Smaller results are never written with streaming stores. */
#define STREAM_BYTES ((size_t)64 << 10)

_Static_assert(WFI_CONTROL_RANKS <= WFI_REDUCE_RANKS, "steps have room for all ranks");

/* ---- steps ---- */

static char *address(const void *run, int32_t rank, wfi_window which, int64_t at) {
    return wfi_run_address(run, rank, which, at);
}

static void run_step(wfi_run *r, const wfi_reduce_step *step) {
    const wfi_step_memory memory = {.arithmetic = &r->a,
                                    .address = address,
                                    .self = r,
                                    .stream_bytes = r->streams ? STREAM_BYTES : 0};
    r->has_streamed |= wfi_reduce_run(&memory, &r->part, step);
}

/* A reduce-scatter's `in` has blocks that need not be contiguous. */
static void run_in_pieces(wfi_run *r, const wfi_reduce_step *step) {
    wfi_reduce_step piece = *step;
    while (piece.begin < step->end) {
        int64_t end = (piece.begin / r->n_chunk + 1) * r->n_chunk;
        piece.end = wfi_min_i64(end, step->end);
        run_step(r, &piece);
        piece.at += piece.end - piece.begin;
        piece.begin = piece.end;
    }
}

static wf_status barrier(wfi_memory *m) {
    WF_TRY(wfi_memory_arrive(m, NULL, 0));
    return wfi_memory_wait(m);
}

static wf_status run_phases(wfi_run *r) {
    const wfi_message_ops *messages = r->m->messages;
    wfi_reduce_step *steps = r->m->group->steps;
    bool has_blocks = r->part.collective == WFI_COLLECTIVE_REDUCE_SCATTER && r->is_chunked &&
                      r->n_chunk != r->o->n_elem;
    int32_t n_phases = wfi_collective_n_phases(r->o->how, &r->part);
    for (r->part.phase = 0; r->part.phase < n_phases; r->part.phase++) {
        int32_t n = wfi_collective_steps(r->o->how, &r->part, steps);
        if (r->part.n > 1) WF_TRY(messages ? messages->begin(r, steps, n) : wfi_memory_touch(r->m));
        for (int32_t i = 0; i < n; i++)
            has_blocks ? run_in_pieces(r, &steps[i]) : run_step(r, &steps[i]);
        if (r->has_streamed) wfi_stream_fence();
        r->has_streamed = false;
        wfi_memory_let_go(r->m);
        if (r->part.n > 1) WF_TRY(messages ? messages->end(r) : barrier(r->m));
    }
    return WF_OK;
}

/* ---- before the arrival ---- */

static wf_status make_staging(wfi_run *r) {
    int64_t begin, end;
    wfi_memory *m = r->m;
    wfi_reduce_part most = r->part;
    most.n_elem = r->n_most * (r->part.collective == WFI_COLLECTIVE_REDUCE_SCATTER ? most.n : 1);
    r->o->how->owns(&most, most.own, &begin, &end);
    size_t bytes = (size_t)((most.n - 1) * (end - begin + 64)) * r->elem_bytes;
    if (bytes <= m->staging_bytes) return WF_OK;
    wfi_free(m->group->ctx, m->staging);
    m->staging_bytes = 0;
    m->staging = wfi_alloc(m->group->ctx, 1, bytes, "a group's staging");
    if (!m->staging) return WF_NO_MEMORY;
    m->staging_bytes = bytes;
    return WF_OK;
}

static wfi_run prepare(wfi_memory *m, const wfi_operation *o) {
    wfi_run r = {.m = m, .o = o, .elem_bytes = wf_dtype_bytes(o->dtype), .of = m->of};
    wf_group *g = m->group;
    int32_t n_blocks = 1;
    memset(r.of, 0, (size_t)g->n * sizeof *r.of);
    r.a = (wfi_arithmetic){o->dtype, o->op, g->n};
    r.part = wfi_group_part(g, o);
    if (wfi_collective_sums(o->collective)) {
        bool keeps_type = wfi_sum_dtype(o->dtype) == o->dtype;
        r.has_work = wfi_collective_has_work(o->how, &r.part);
        r.work_is_out = keeps_type && o->collective == WFI_COLLECTIVE_ALL_REDUCE;
        r.has_staging = o->how->n_staged != NULL;
    }
    if (wfi_collective_n_in(o->collective, g->n, true) > 1 ||
        wfi_collective_n_out(o->collective, g->n, true) > 1)
        n_blocks = g->n;
    int64_t n_most = (int64_t)(WFI_WINDOW_BYTES / ((size_t)n_blocks * r.elem_bytes));
    r.n_most = n_most > 64 ? n_most / 64 * 64 : n_most;
    bool lands = m->messages && wfi_collective_sums(o->collective) && g->n > 1;
    /* Other ranks read a result next: from the cache, if all results fit there. */
    size_t touched = (size_t)g->n * (size_t)o->n_elem * r.elem_bytes * (o->in == o->out ? 1 : 2);
    r.streams = touched > m->cache_bytes;
    r.is_chunked = (r.has_work && !r.work_is_out) || r.has_staging || lands;
    return r;
}

/* Allocates the window and the staging buffer before the arrival. */
static wf_status prepare_buffers(wfi_run *r) {
    bool goes_through = r->message[WFI_ARRIVAL_IN] == WFI_HANDLE_WINDOW ||
                        r->message[WFI_ARRIVAL_OUT] == WFI_HANDLE_WINDOW;
    if (goes_through || (r->has_work && !r->work_is_out)) WF_TRY(wfi_memory_make_window(r->m));
    if (r->has_staging) WF_TRY(make_staging(r));
    if (!goes_through) return WF_OK;
    r->is_chunked = true;
    wfi_run_choose_chunk(r, 0);
    wfi_run_fill_window(r);
    return WF_OK;
}

/* ---- arrival ---- */

wf_status wfi_memory_mismatch(const wfi_memory *m, int32_t other) {
    char own[WFI_CALL_TEXT], theirs[WFI_CALL_TEXT];
    const wfi_member *members = m->segment->members;
    int32_t rank = m->group->rank;
    return wfi_fail(m->group->ctx, WF_REMOTE, "ranks disagree: rank %d calls %s, rank %d calls %s",
                    rank, wfi_call_describe(&members[rank].call, own), other,
                    wfi_call_describe(&members[other].call, theirs));
}

static wf_status arrive(wfi_run *r) {
    wfi_memory *m = r->m;
    wfi_memory_deadline deadline = {0};
    WF_TRY(wfi_memory_arrive(m, r->message, 3));
    for (int32_t k = 0; k < r->part.n; k++) {
        wfi_shared_epoch *arrival = &m->segment->members[k].arrival[m->epoch & 1];
        WF_TRY(wfi_memory_wait_for(m, arrival, m->epoch, k, &deadline));
        if (arrival->message[WFI_ARRIVAL_FINGERPRINT] != r->message[WFI_ARRIVAL_FINGERPRINT])
            return wfi_memory_fail(m, wfi_memory_mismatch(m, k));
    }
    return WF_OK;
}

static wf_status run_all(wfi_run *r) {
    WF_TRY(arrive(r));
    if (!r->o->n_elem || r->o->collective == WFI_COLLECTIVE_BARRIER) return WF_OK;
    if (r->o->how == &wfi_allreduce_engine) return r->m->messages->engine(r);
    WF_TRY(wfi_run_find(r));
    for (int64_t at = 0; at < r->o->n_elem; at += r->n_chunk) {
        wfi_run_choose_chunk(r, at);
        if (at) {
            wfi_run_fill_window(r);
            if (r->part.n > 1 && !r->m->messages) WF_TRY(barrier(r->m));
        }
        WF_TRY(run_phases(r));
        wfi_run_empty_window(r);
        wfi_group_count(r->m->group, r->o, &r->part);
    }
    return WF_OK;
}

wf_status wfi_memory_run(wf_group *g, const wfi_operation *o) {
    wfi_memory *m = g->state;
    WF_TRY(wfi_memory_check(m));
    wfi_run r = prepare(m, o);
    wfi_call_write(&m->segment->members[g->rank].call, o);
    wfi_run_write_message(&r);
    wf_status status = prepare_buffers(&r);
    if (status == WF_OK) status = run_all(&r);
    return status == WF_OK ? WF_OK : wfi_memory_fail(m, status);
}
