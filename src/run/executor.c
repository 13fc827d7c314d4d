#include "run/executor.h"

static wf_status prepare_segment(const wfi_segment *segment) {
    if (!segment) return WF_OK;
    for (int32_t s = 0; s < segment->n_steps; s++) {
        WF_TRY(wfi_kernel_prepare(segment->steps[s].kernel));
        if (segment->steps[s].kernel_add) WF_TRY(wfi_kernel_prepare(segment->steps[s].kernel_add));
    }
    return WF_OK;
}

static wf_status prepare_all(void *self, void *argument) {
    (void)argument;
    wfi_executor *e = self;
    const wf_program *p = e->p;
    const wfi_rank *r = &p->ranks[e->rank];
    WF_TRY(wfi_kernel_thread_enter(p->ctx, p->recipe.n_threads));
    for (int32_t u = p->first_unit[r->stage]; u < p->first_unit[r->stage + 1]; u++)
        for (int part = 0; part < WFI_N_PARTS; part++) {
            WF_TRY(prepare_segment(p->code->units[u].part[part]));
            WF_TRY(prepare_segment(p->code->units[u].pack[part]));
        }
    return WF_OK;
}

wf_status wfi_executor_prepare(wfi_executor *e) {
    return wfi_stream_call(e->streams[WFI_STREAM_COMPUTE], prepare_all, e, NULL);
}

static wf_status issue(wfi_executor *e, const wfi_event *begin) {
    const wf_program *p = e->p;
    for (int32_t k = 0; k < p->n_instructions; k++) {
        const wfi_instruction *now = &p->instructions[p->order[k]];
        if (now->rank != e->rank) continue;
        wfi_stream_queue *stream = e->streams[now->stream];
        for (int32_t d = 0; d < now->n_depends; d++) {
            const wfi_instruction *before = &p->instructions[now->depends[d]];
            wfi_event event = begin[before->stream];
            event.epoch += (uint64_t)before->position + 1;
            WF_TRY(wfi_stream_wait(stream, event));
        }
        WF_TRY(wfi_stream_push(stream, wfi_executor_instruction, e, (void *)(intptr_t)p->order[k]));
    }
    return WF_OK;
}

wf_status wfi_executor_run(wfi_executor *e, wfi_step *step) {
    e->step = step;
    wfi_event begin[WFI_N_STREAMS];
    for (int s = 0; s < WFI_N_STREAMS; s++) begin[s] = wfi_stream_record(e->streams[s]);
    wf_status status = issue(e, begin);
    /* Also after a failure: nothing may run on when this returns. */
    for (int s = 0; s < WFI_N_STREAMS; s++) {
        wf_status waited = wfi_event_wait(wfi_stream_record(e->streams[s]));
        if (status == WF_OK) status = waited;
    }
    e->step = NULL;
    return status;
}
