#include "run/issue.h"

static wfi_stream_queue *stream_of(const wfi_executor *e, int32_t i) {
    const wfi_instruction *now = &e->p->instructions[i];
    return e->workers[now->rank].streams[now->stream];
}

static bool is_followed(const wfi_executor *e) {
    return e->happens || e->reads;
}

static wf_status begin_task(wfi_executor *e, int32_t i) {
    if (e->happens) WF_TRY(wfi_happens_task(e->happens, i));
    if (e->reads) WF_TRY(wfi_reads_task(e->reads, i));
    return WF_OK;
}

wf_status wfi_issue_touch(const wfi_executor *e, const wfi_reference *reference, size_t offset,
                          size_t bytes, int access) {
    if (e->happens) WF_TRY(wfi_happens_touch(e->happens, reference, offset, bytes, access));
    if (e->reads && access & WFI_READ) WF_TRY(wfi_reads_read(e->reads, reference, offset, bytes));
    return WF_OK;
}

static wf_status end_touches(wfi_executor *e, int32_t i) {
    return e->reads ? wfi_reads_arrive(e->reads, i) : WF_OK;
}

wf_status wfi_issue(wfi_executor *e, int32_t i, const wfi_work *work) {
    if (is_followed(e)) {
        WF_TRY(begin_task(e, i));
        if (work->touch) WF_TRY(work->touch(e, i));
        WF_TRY(end_touches(e, i));
    }
    return wfi_stream_push(stream_of(e, i), work->run, e, (void *)(intptr_t)i);
}

wf_status wfi_issue_phase(wfi_executor *e, int32_t i, int32_t phase, const wfi_phase_work *work) {
    intptr_t argument = (intptr_t)phase << 31 | i;
    if (is_followed(e)) {
        WF_TRY(begin_task(e, i));
        WF_TRY(work->touch(e, i, phase));
        WF_TRY(end_touches(e, i));
    }
    return wfi_stream_push(stream_of(e, i), work->run, e, (void *)argument);
}

wf_status wfi_issue_barrier(wfi_executor *e, int32_t at) {
    wfi_event *here = e->here;
    const int32_t *group = e->p->order + at;
    int32_t n = e->n_group[group[0]];
    for (int32_t m = 0; m < n; m++) here[m] = wfi_issue_event(e, group[m]);
    for (int32_t m = 0; m < n; m++)
        for (int32_t k = 0; k < n; k++)
            if (k != m) WF_TRY(wfi_issue_wait(e, group[m], here[k]));
    return WF_OK;
}

wf_status wfi_issue_wait(wfi_executor *e, int32_t i, wfi_event event) {
    if (++e->n_waits == e->left_out_wait) return WF_OK;
    if (e->happens) wfi_happens_wait(e->happens, i, event);
    if (e->reads) wfi_reads_wait(e->reads, i, event);
    return wfi_stream_wait(stream_of(e, i), event);
}

wf_status wfi_issue_depends(wfi_executor *e, int32_t i, int32_t of) {
    const wfi_instruction *now = &e->p->instructions[of];
    for (int32_t d = 0; d < now->n_depends; d++)
        WF_TRY(wfi_issue_wait(e, i, e->done[now->depends[d]]));
    return WF_OK;
}

wfi_event wfi_issue_event(const wfi_executor *e, int32_t i) {
    return wfi_stream_record(stream_of(e, i));
}

void wfi_issue_begin(wfi_executor *e) {
    e->n_waits = 0;
    if (e->happens) wfi_happens_begin(e->happens);
    if (e->reads) wfi_reads_begin(e->reads);
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
