/* One rank's share of a device. */
#include "run/worker.h"

static wf_status create_streams(wfi_worker *w) {
    for (int s = 0; s < WFI_N_STREAMS; s++)
        WF_TRY(wfi_stream_create(w->device, wfi_stream_name((wfi_stream)s), &w->streams[s]));
    return WF_OK;
}

static bool is_lost(const void *self, int rank) {
    const wfi_worker *w = self;
    return wfi_control_is_lost(w->job, rank);
}

static wf_status notify(const void *self, int rank, int stream, uint64_t epoch) {
    const wfi_worker *w = self;
    return wfi_control_notify(w->job, w->trainer, rank, stream, epoch);
}

wf_status wfi_worker_create(wf_context *ctx, const wfi_device_config *config, wfi_control *job,
                            int trainer, size_t shift_bytes, wfi_worker *w) {
    wfi_device_config here = *config;
    w->job = job;
    w->trainer = trainer;
    w->rank = config->index;
    w->not_finite = &w->own_not_finite;
    w->is_local = !job || wfi_control_rank_number(job) == w->rank;
    w->shift_bytes = job ? 0 : shift_bytes;
    if (job) {
        here.failure = wfi_control_failure(job);
        here.epochs = wfi_control_part_of(job, w->rank, trainer)->epochs;
        here.is_lost = is_lost;
        here.self = w;
        w->is_mirror = wfi_control_transport(job) && !w->is_local;
        if (wfi_control_transport(job)) here.notify = notify;
        if (!w->is_local) here.kind = &wfi_device_remote;
    }
    WF_TRY(wfi_device_create(ctx, &here, &w->device));
    if (!wfi_device_has_memory(w->device))
        return wfi_fail(
            ctx, WF_UNSUPPORTED,
            "the null device has no memory to train in; `weft plan` runs programs dry on it");
    w->backend = wfi_backend_of(w->device->kind);
    return create_streams(w);
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
    if (w->device) release_arena(w);
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
    WF_TRY(wfi_control_arena_open(w->job, w->rank, w->trainer, &bytes, &base));
    release_arena(w);
    w->base = base;
    w->arena_bytes = bytes;
    w->observer.base = w->base;
    return WF_OK;
}

size_t wfi_worker_mirror_bytes(const wfi_worker *w) {
    return w->is_mirror ? wfi_control_mirror_bytes(w->base, w->arena_bytes) : 0;
}

void wfi_worker_empty_mirror(wfi_worker *w) {
    if (w->is_mirror) wfi_control_mirror_empty(w->base, w->arena_bytes);
}
