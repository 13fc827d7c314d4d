#include "execute/issue.h"

static bool is_local(const wfi_executor *e, int32_t i) {
    return e->workers[e->p->instructions[i].rank].is_local;
}

/* ---- tasks ---- */

wf_status wfi_issue_touch(const wfi_executor *e, const wfi_reference *reference, size_t offset,
                          size_t bytes, int access) {
    return e->happens ? wfi_happens_touch(e->happens, reference, offset, bytes, access) : WF_OK;
}

wf_status wfi_issue(wfi_executor *e, int32_t i, int32_t phase, const wfi_work *work) {
    const wfi_instruction *now = &e->p->instructions[i];
    if (e->happens) WF_TRY(wfi_happens_task(e->happens, i));
    if (e->happens && work->touch) WF_TRY(work->touch(e, i, phase));
    if (!is_local(e, i)) return WF_OK;
    return wfi_stream_push(e->workers[now->rank].streams[now->stream], work->run, e,
                           wfi_argument(i, phase));
}

/* ---- waits ---- */

wf_status wfi_issue_wait(wfi_executor *e, int32_t i, wfi_event event) {
    const wfi_instruction *now = &e->p->instructions[i];
    if (++e->n_waits == e->left_out_wait) return WF_OK;
    if (e->carrier > WFI_CARRIER_HOST && event.stream->owner->rank != now->rank) return WF_OK;
    if (e->happens) wfi_happens_wait(e->happens, i, event);
    return wfi_stream_wait(e->workers[now->rank].streams[now->stream], event);
}

wf_status wfi_issue_depends(wfi_executor *e, int32_t i, int32_t of) {
    const wfi_instruction *now = &e->p->instructions[of];
    for (int32_t d = 0; d < now->n_depends; d++)
        WF_TRY(wfi_issue_wait(e, i, wfi_executor_event(e, now->depends[d], 0)));
    return WF_OK;
}

wf_status wfi_issue_barrier(wfi_executor *e, int32_t at, int32_t n_left) {
    const int32_t *group = e->p->order + at;
    int32_t n = e->n_group[group[0]];
    for (int32_t m = 0; m < n; m++)
        for (int32_t k = 0; k < n && (e->happens || is_local(e, group[m])); k++)
            if (k != m)
                WF_TRY(wfi_issue_wait(e, group[m], wfi_executor_event(e, group[k], n_left)));
    return WF_OK;
}

/* ---- a step ---- */

void wfi_issue_begin(wfi_executor *e) {
    e->n_waits = 0;
    if (e->happens) wfi_happens_begin(e->happens);
    for (int32_t s = 0; s < e->p->n_ranks * WFI_N_STREAMS; s++) {
        const wfi_worker *w = &e->workers[s / WFI_N_STREAMS];
        wfi_stream_queue *stream = w->streams[s % WFI_N_STREAMS];
        e->begin[s] = wfi_stream_record(stream).epoch;
        if (!w->is_local) wfi_remote_stream_count(stream, (uint64_t)e->n_tasks[s]);
    }
}

static wf_status touch_references(const wfi_executor *e, int32_t i, int32_t phase) {
    const wfi_instruction *now = &e->p->instructions[i];
    (void)phase;
    for (int32_t k = 0; k < now->n_references; k++) {
        const wfi_reference *r = &now->references[k];
        WF_TRY(wfi_issue_touch(e, r, 0, r->bytes, r->access));
    }
    return WF_OK;
}

wf_status wfi_issue_all(wfi_executor *e) {
    static const wfi_work instruction = {wfi_executor_instruction, touch_references};
    for (int32_t k = 0; k < e->n_own; k++) {
        int32_t i = e->p->order[e->own[k]];
        wfi_instruction_class class = wfi_type_of(&e->p->instructions[i])->class;
        if (class == WFI_CLASS_TRANSFER || class == WFI_CLASS_CHANGE) {
            WF_TRY(wfi_issue_transfer(e, e->own[k]));
            continue;
        }
        WF_TRY(wfi_issue_depends(e, i, i));
        WF_TRY(wfi_issue(e, i, 0, &instruction));
    }
    return WF_OK;
}

wf_status wfi_issue_end(wfi_executor *e) {
    wf_status status = WF_OK;
    for (int32_t r = 0; r < e->p->n_ranks && status == WF_OK; r++)
        for (int s = 0; s < WFI_N_STREAMS && status == WF_OK; s++)
            status = wfi_worker_announce(&e->workers[r], s);
    for (int32_t r = 0; r < e->p->n_ranks; r++)
        for (int s = 0; s < WFI_N_STREAMS; s++) {
            wfi_event event = wfi_stream_record(e->workers[r].streams[s]);
            wf_status waited = wfi_event_wait(event);
            if (e->happens) wfi_happens_host_wait(e->happens, event);
            if (status == WF_OK) status = waited;
        }
    if (status == WF_OK && e->happens) status = wfi_happens_end(e->happens);
    return status;
}
