/* One rank's share of a device. */
#include "run/worker.h"

#include <string.h>

static wf_status create_streams(wfi_worker *w) {
    for (int s = 0; s < WFI_N_STREAMS; s++)
        WF_TRY(wfi_stream_create(w->device, wfi_stream_name((wfi_stream)s), &w->streams[s]));
    return WF_OK;
}

wf_status wfi_worker_create(wf_context *ctx, const wfi_device_config *config, size_t shift_bytes,
                            wfi_worker *w) {
    w->shift_bytes = shift_bytes;
    WF_TRY(wfi_device_create(ctx, config, &w->device));
    if (!wfi_device_has_memory(w->device))
        return wfi_fail(
            ctx, WF_UNSUPPORTED,
            "the null device has no memory to train in; `weft plan` walks programs on it");
    return create_streams(w);
}

void wfi_worker_stop(wfi_worker *w) {
    for (int s = 0; s < WFI_N_STREAMS; s++) wfi_stream_finish(w->streams[s]);
}

void wfi_worker_destroy(wfi_worker *w) {
    for (int s = 0; s < WFI_N_STREAMS; s++) wfi_stream_destroy(w->streams[s]);
    if (w->device) wfi_arena_destroy(w->device, w->base, w->arena_bytes, w->shift_bytes);
    wfi_device_destroy(w->device);
    *w = (wfi_worker){0};
}

typedef struct move {
    char *to;
    const char *from;
    size_t bytes;
} move;

static wf_status move_state(void *self, void *argument) {
    (void)argument;
    const move *m = self;
    memcpy(m->to, m->from, m->bytes);
    return WF_OK;
}

wf_status wfi_worker_grow(wfi_worker *w, size_t bytes, size_t state_bytes) {
    if (bytes <= w->arena_bytes) return WF_OK;
    void *base;
    WF_TRY(wfi_arena_create(w->device, bytes, w->shift_bytes, &base));
    if (w->base) {
        move m = {base, w->base, state_bytes};
        wf_status status = wfi_stream_call(w->streams[WFI_STREAM_COPY], move_state, &m, NULL);
        if (status != WF_OK) {
            wfi_arena_destroy(w->device, base, bytes, w->shift_bytes);
            return status;
        }
        wfi_arena_destroy(w->device, w->base, w->arena_bytes, w->shift_bytes);
    }
    w->base = base;
    w->arena_bytes = bytes;
    w->observer.base = w->base;
    return WF_OK;
}
