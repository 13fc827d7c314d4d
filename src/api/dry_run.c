/* The dry run: the program on null devices, one for each rank that is lowered. Nothing is computed;
 * events, FLOPs and bytes are counted, so a plan for any number of ranks can be
 * looked at on a laptop.
 */
#include "device/device.h"
#include "program/program.h"

typedef struct dry_run {
    const wf_program *p;
    wf_dry_run total;
    wfi_failure failure;
    wfi_device **devices;       /* [n_ranks] */
    wfi_stream_queue **streams; /* [n_ranks][WFI_N_STREAMS] */
} dry_run;

static wf_status count(void *self, void *argument) {
    dry_run *w = self;
    const wfi_instruction *now = argument;
    int32_t i = (int32_t)(now - w->p->instructions);
    int64_t n_like = w->p->ranks[now->rank].n_like * wfi_times_of(w->p, i);
    w->total.n_instructions += n_like;
    if (now->segment) w->total.flops += (double)n_like * now->segment->flops;
    return WF_OK;
}

static wf_status run_one(dry_run *w, const wfi_instruction *now) {
    wfi_stream_queue **streams = w->streams + (size_t)now->rank * WFI_N_STREAMS;
    for (int32_t d = 0; d < now->n_depends; d++) {
        const wfi_instruction *before = &w->p->instructions[now->depends[d]];
        wfi_event event = {streams[before->stream], (uint64_t)before->position + 1};
        WF_TRY(wfi_stream_wait(streams[now->stream], event));
    }
    return wfi_stream_push(streams[now->stream], count, w, (void *)(uintptr_t)now);
}

static wf_status run_all(dry_run *w) {
    const wf_program *p = w->p;
    for (int32_t k = 0; k < p->n_lowered; k++) {
        int32_t r = p->lowered[k];
        wfi_owner owner = {.ctx = p->ctx, .rank = r, .failure = &w->failure};
        WF_TRY(wfi_device_create(&owner, &wfi_device_null, 0, 1, &w->devices[r]));
        for (int s = 0; s < WFI_N_STREAMS; s++)
            WF_TRY(wfi_stream_create(w->devices[r], wfi_stream_name((wfi_stream)s), s, NULL,
                                     &w->streams[r * WFI_N_STREAMS + s]));
    }
    for (int32_t k = 0; k < p->n_instructions; k++)
        WF_TRY(run_one(w, &p->instructions[p->order[k]]));
    for (int32_t r = 0; r < p->n_ranks; r++) w->total.sent_bytes += p->ranks[r].sent_bytes;
    return WF_OK;
}

wf_status wf_program_dry_run(const wf_program *p, wf_dry_run *run_out) {
    dry_run w = {.p = wfi_emitted_of(p)};
    size_t n = (size_t)p->n_ranks;
    w.devices = wfi_alloc(p->ctx, n, sizeof *w.devices, "a dry run");
    w.streams = wfi_alloc(p->ctx, n * WFI_N_STREAMS, sizeof *w.streams, "a dry run");
    wf_status status = w.devices && w.streams ? run_all(&w) : WF_NO_MEMORY;
    for (size_t s = 0; s < n * WFI_N_STREAMS && w.streams; s++) wfi_stream_destroy(w.streams[s]);
    for (size_t r = 0; r < n && w.devices; r++) wfi_device_destroy(w.devices[r]);
    wfi_free(p->ctx, w.devices);
    wfi_free(p->ctx, w.streams);
    if (status == WF_OK) *run_out = w.total;
    return status;
}
