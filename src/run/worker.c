/* One rank's share of a device. */
#include "run/worker.h"

static wf_status create_streams(wfi_worker *w) {
    wfi_shared_epoch *counters =
        w->job ? wfi_control_rank_at(w->job, w->owner.rank)->epochs[w->trainer] : NULL;
    bool notifies = w->job && wfi_control_transport(w->job);
    w->remote = (wfi_remote){.owner = w->owner,
                             .counters = counters,
                             .is_lost = wfi_control_is_lost,
                             .notify = notifies ? wfi_control_notify : NULL,
                             .trainer = w->trainer,
                             .self = w->job};
    for (int s = 0; s < WFI_N_STREAMS; s++) {
        const char *name = wfi_stream_name((wfi_stream)s);
        WF_TRY(w->is_local ? wfi_stream_create(w->device, name, s, counters ? counters + s : NULL,
                                               &w->streams[s])
                           : wfi_remote_stream_create(&w->remote, name, s, &w->streams[s]));
    }
    return WF_OK;
}

wf_status wfi_worker_create(wfi_worker *w, const wfi_device_class *kind, int place, int n_places) {
    w->not_finite = &w->own_not_finite;
    w->is_local = !w->job || wf_job_rank(w->job) == w->owner.rank;
    w->is_shadow = !w->is_local && wfi_control_transport(w->job);
    if (!kind->has_memory)
        return wfi_fail(
            w->owner.ctx, WF_UNSUPPORTED,
            "the null device has no memory to train in; `weft plan` runs programs dry on it");
    w->backend = wfi_backend_of(kind);
    if (w->is_local) WF_TRY(wfi_device_create(&w->owner, kind, place, n_places, &w->device));
    return create_streams(w);
}

wf_status wfi_worker_announce(const wfi_worker *w, int stream) {
    if (!w->is_local || !w->remote.notify) return WF_OK;
    return wfi_control_notify(w->job, w->trainer, -1, stream,
                              wfi_stream_record(w->streams[stream]).epoch);
}

void wfi_worker_stop(wfi_worker *w) {
    for (int s = 0; s < WFI_N_STREAMS; s++) wfi_stream_finish(w->streams[s]);
}

static void release_arena(wfi_worker *w) {
    if (!w->base) return;
    if (w->job)
        wfi_control_arena_release(w->job, w->base, w->arena_bytes);
    else
        w->device->kind->memory_destroy(w->device, WFI_SPACE_DEVICE, w->base - w->shift_bytes,
                                        w->arena_bytes + w->shift_bytes);
    w->base = NULL;
}

void wfi_worker_destroy(wfi_worker *w) {
    for (int s = 0; s < WFI_N_STREAMS; s++) wfi_stream_destroy(w->streams[s]);
    release_arena(w);
    wfi_device_destroy(w->device);
    *w = (wfi_worker){0};
}

wf_status wfi_worker_grow(wfi_worker *w, size_t bytes, size_t state_bytes) {
    if (!w->is_local || bytes <= w->arena_bytes) return WF_OK;
    void *base;
    if (w->job)
        WF_TRY(wfi_control_arena_create(w->job, w->trainer, bytes, &base));
    else
        WF_TRY(w->device->kind->memory_create(w->device, WFI_SPACE_DEVICE, bytes + w->shift_bytes,
                                              &base));
    base = (char *)base + w->shift_bytes;
    if (w->base)
        WF_TRY(wfi_memory_copy(w->device, NULL, base, WFI_SPACE_DEVICE, w->base, WFI_SPACE_DEVICE,
                               state_bytes));
    release_arena(w);
    w->base = base;
    w->arena_bytes = bytes;
    w->observer.base = w->base;
    return WF_OK;
}

wf_status wfi_worker_open(wfi_worker *w) {
    if (w->is_local) return WF_OK;
    void *base;
    size_t bytes;
    WF_TRY(wfi_control_arena_open(w->job, w->owner.rank, w->trainer, &bytes, &base));
    release_arena(w);
    w->base = base;
    w->arena_bytes = bytes;
    w->observer.base = w->base;
    return WF_OK;
}

size_t wfi_worker_shadow_bytes(const wfi_worker *w) {
    return w->is_shadow ? wfi_control_shadow_bytes(w->base, w->arena_bytes) : 0;
}
