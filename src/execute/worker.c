/* One rank's share of a device. */
#include "execute/worker.h"

#include "device/disk.h"

_Static_assert(WFI_REMOTE_LOST == WFI_CONTROL_DEAD, "the same text");

static wf_status create_streams(wfi_worker *w) {
    wfi_shared_epoch *counters =
        w->job ? wfi_control_rank_at(w->job, w->owner.rank)->epochs[w->trainer] : NULL;
    w->remote = (wfi_remote){.owner = w->owner,
                             .counters = counters,
                             .is_lost = wfi_control_is_lost,
                             .describe_lost = wfi_control_describe_lost,
                             .self = w->job};
    for (int s = 0; s < WFI_N_STREAMS; s++) {
        const char *name = wfi_stream_name((wfi_stream)s);
        WF_TRY(w->is_local ? wfi_stream_create(w->device, name, s, counters ? counters + s : NULL,
                                               &w->streams[s])
                           : wfi_remote_stream_create(&w->remote, name, s, &w->streams[s]));
    }
    w->has_host_copy = w->job && w->backend->device->separate;
    return WF_OK;
}

wf_status wfi_worker_create(wfi_worker *w, const wfi_device_class *kind, int place, int n_places) {
    w->not_finite = &w->own_not_finite;
    w->is_local = !w->job || wf_job_rank(w->job) == w->owner.rank;
    w->is_apart = !w->is_local && wfi_control_transport(w->job);
    if (!kind->has_memory)
        return wfi_fail(
            w->owner.ctx, WF_UNSUPPORTED,
            "the null device has no memory to train in; `weft plan` runs programs dry on it");
    w->backend = wfi_backend_of(kind);
    if (w->is_local) {
        WF_TRY(wfi_device_create(&w->owner, kind, place, n_places, &w->device));
        w->device->folder = w->folder;
        w->copier = w->device;
    }
    return create_streams(w);
}

wf_status wfi_worker_announce(const wfi_worker *w, int stream) {
    if (!w->is_local || !w->job || !wfi_control_transport(w->job)) return WF_OK;
    return wfi_control_notify(w->job, w->trainer, -1, stream,
                              wfi_stream_record(w->streams[stream]).epoch);
}

void wfi_worker_stop(wfi_worker *w) {
    for (int s = 0; s < WFI_N_STREAMS; s++) wfi_stream_finish(w->streams[s]);
    wfi_device_wire_leave(w->wire);
    wfi_stream_finish(w->wire_stream);
}

/* Whether this is memory of a local rank's device that no other process sees. */
static bool is_hidden(const wfi_worker *w, wfi_space space) {
    return w->has_host_copy && w->is_local && space == WFI_SPACE_DEVICE;
}

/* Memory that processes share. */
static bool is_shared(const wfi_worker *w, wfi_space space) {
    return w->job && space != WFI_SPACE_DISK && !is_hidden(w, space);
}

static size_t shift_of(const wfi_worker *w, wfi_space space) {
    return space == WFI_SPACE_DEVICE ? w->shift_bytes : 0;
}

static void release_arena(wfi_worker *w, wfi_space space) {
    wfi_arena *a = &w->arenas[space];
    size_t shift_bytes = shift_of(w, space);
    if (!a->base) return;
    if (w->host_copy && is_hidden(w, space)) {
        wfi_control_arena_release(w->job, w->host_copy, a->bytes);
        w->host_copy = NULL;
    }
    if (is_shared(w, space))
        wfi_control_arena_release(w->job, a->base, a->bytes);
    else
        w->copier->kind->memory_destroy(w->copier, space, a->base - shift_bytes,
                                        a->bytes + shift_bytes);
    a->base = NULL;
}

static void take_arena(wfi_worker *w, wfi_space space, char *base, size_t bytes) {
    wfi_arena *a = &w->arenas[space];
    release_arena(w, space);
    a->base = base;
    a->bytes = bytes;
}

void wfi_worker_destroy(wfi_worker *w) {
    wfi_device_wire_close(w->wire);
    for (int s = 0; s < WFI_N_STREAMS; s++) wfi_stream_destroy(w->streams[s]);
    wfi_stream_destroy(w->wire_stream);
    for (int s = 0; s < WFI_N_SPACES; s++) release_arena(w, (wfi_space)s);
    wfi_device_destroy(w->device);
    *w = (wfi_worker){0};
}

/* Every page is touched now, so that no step pays for it. */
static wf_status create_shared(wfi_worker *w, wfi_space space, size_t bytes, void **base_out) {
    WF_TRY(wfi_control_arena_create(w->job, w->trainer, (int)space, bytes, base_out));
    for (size_t at = 0; at < bytes; at += 4096) ((volatile char *)*base_out)[at] = 0;
    return WF_OK;
}

/* All of the old arena is kept: hidden state of forward runs is behind the memory of steps. */
static wf_status grow_arena(wfi_worker *w, wfi_space space, const wfi_arena_plan *need) {
    size_t shift_bytes = shift_of(w, space);
    const wfi_arena *a = &w->arenas[space];
    void *base;
    if (need->peak_bytes <= a->bytes) return WF_OK;
    if (is_shared(w, space))
        WF_TRY(create_shared(w, space, need->peak_bytes, &base));
    else
        WF_TRY(w->device->kind->memory_create(w->device, space, need->peak_bytes + shift_bytes,
                                              &base));
    base = (char *)base + shift_bytes;
    if (a->base) WF_TRY(wfi_memory_copy(w->device, NULL, base, space, a->base, space, a->bytes));
    take_arena(w, space, base, need->peak_bytes);
    if (is_hidden(w, space)) {
        WF_TRY(wfi_control_arena_create(w->job, w->trainer, (int)space, need->peak_bytes, &base));
        w->host_copy = base;
    }
    if (w->job && space == WFI_SPACE_DISK)
        return wfi_control_file_publish(w->job, w->trainer, (int)space,
                                        wfi_disk_descriptor(w->device, base), need->peak_bytes);
    return WF_OK;
}

wf_status wfi_worker_grow(wfi_worker *w, const wfi_arena_plan needs[WFI_N_SPACES]) {
    for (int s = 0; s < WFI_N_SPACES && w->is_local; s++)
        WF_TRY(grow_arena(w, (wfi_space)s, &needs[s]));
    return WF_OK;
}

/* Another process's; none where processes see no more of each other than they are sent. */
static wf_status open_file(const wfi_worker *w, size_t *bytes_out, void **base_out) {
    int fd;
    *base_out = NULL;
    WF_TRY(wfi_control_file_open(w->job, w->owner.rank, w->trainer, (int)WFI_SPACE_DISK, bytes_out,
                                 &fd));
    return fd < 0 ? WF_OK : wfi_disk_open(w->copier, fd, *bytes_out, base_out);
}

wf_status wfi_worker_open(wfi_worker *w) {
    for (int s = 0; s < WFI_N_SPACES && !w->is_local; s++) {
        void *base;
        size_t bytes;
        if (s == WFI_SPACE_DISK)
            WF_TRY(open_file(w, &bytes, &base));
        else
            WF_TRY(wfi_control_arena_open(w->job, w->owner.rank, w->trainer, s, &bytes, &base));
        take_arena(w, (wfi_space)s, base, bytes);
    }
    return WF_OK;
}
