/* A rank of another process, as a device: its streams run there. All processes issue the
 * same program in the same order, so each knows which task of a stream comes next without
 * being told; here tasks are only counted, and events looked up in the counters that the
 * other process shares.
 */
#include "device/device.h"

/* How often a waiter looks before it sleeps: a few microseconds. */
#define N_SPINS 2000
/* How long it sleeps before it asks whether the other process is still there. */
#define NAP_MS 50

static wf_status remote_stream_create(wfi_device *device, wfi_stream_queue *stream) {
    stream->state = &device->config.epochs[device->n_streams];
    return WF_OK;
}

static void remote_stream_end(wfi_stream_queue *stream) {
    (void)stream;
}

static wf_status remote_push(wfi_stream_queue *stream, wfi_task task, void *self, void *argument) {
    (void)task, (void)self, (void)argument;
    return wfi_device_check(stream->device);
}

/* The other process will wait for a stream of this one: it is told when. */
static wf_status remote_wait(wfi_stream_queue *stream, wfi_event event) {
    const wfi_device *owner = event.stream->device;
    if (owner->config.notify && owner->kind != stream->device->kind)
        WF_TRY(owner->config.notify(owner->config.self, stream->device->config.index,
                                    event.stream->number, event.epoch));
    return wfi_device_check(stream->device);
}

static uint64_t remote_n_done(const wfi_stream_queue *stream) {
    return __atomic_load_n(&((const wfi_shared_epoch *)stream->state)->epoch, __ATOMIC_ACQUIRE);
}

static wf_status too_late(const wfi_event *event, uint64_t now, const wfi_waiter *waiter) {
    const wfi_device_config *config = &event->stream->device->config;
    if (config->awaited_rank)
        return wfi_fail(event->stream->device->ctx, WF_TIMEOUT,
                        "%s of rank %d waited %lld ms for bytes of rank %d: %llu of %llu messages "
                        "have come",
                        waiter->who, config->index, (long long)config->timeout_ms,
                        config->awaited_rank(config->self, event->stream->number),
                        (unsigned long long)now, (unsigned long long)event->epoch);
    char why[512];
    wfi_device_explain(event, waiter, why, sizeof why);
    return wfi_fail(event->stream->device->ctx, WF_TIMEOUT,
                    "%s waited %lld ms for stream %s of rank %d (another process), which has done "
                    "%llu of %llu tasks%s",
                    waiter->who, (long long)config->timeout_ms, event->stream->name, config->index,
                    (unsigned long long)now, (unsigned long long)event->epoch, why);
}

static wf_status remote_event_wait(wfi_event event, const wfi_waiter *waiter) {
    wfi_device *device = event.stream->device;
    wfi_shared_epoch *shared = event.stream->state;
    uint64_t now = 0;
    for (int spin = 0; spin < N_SPINS; spin++) {
        now = __atomic_load_n(&shared->epoch, __ATOMIC_ACQUIRE);
        if (now >= event.epoch) return WF_OK;
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
    }
    wfi_deadline deadline = wfi_deadline_begin(waiter, device->config.timeout_ms, now);
    for (;;) {
        wfi_shared_epoch_sleep(shared, now, wfi_deadline_nap_ms(&deadline, waiter, NAP_MS));
        now = __atomic_load_n(&shared->epoch, __ATOMIC_ACQUIRE);
        if (now >= event.epoch) return WF_OK;
        if (wfi_device_status(device) != WF_OK) return wfi_device_check(device);
        /* It may have done the last task, and gone, since we looked. */
        if (device->config.is_lost &&
            device->config.is_lost(device->config.self, device->config.index) &&
            __atomic_load_n(&shared->epoch, __ATOMIC_ACQUIRE) < event.epoch)
            return wfi_fail(device->ctx, WF_REMOTE,
                            "rank %d has left the job or died: %s waited for its stream %s, which "
                            "has done %llu of "
                            "%llu tasks",
                            device->config.index, waiter->who, event.stream->name,
                            (unsigned long long)now, (unsigned long long)event.epoch);
        if (wfi_deadline_is_over(&deadline, now)) return too_late(&event, now, waiter);
        if (waiter->is_host) wfi_watch_look(waiter->watch, &event);
    }
}

/* Not a rank: what has come for the streams of this one. */
const wfi_device_class wfi_device_arrivals = {
    .name = "arrivals",
    .stream_create = remote_stream_create,
    .stream_finish = remote_stream_end,
    .stream_destroy = remote_stream_end,
    .push = remote_push,
    .wait = remote_wait,
    .event_wait = remote_event_wait,
    .n_done = remote_n_done,
};

const wfi_device_class wfi_device_remote = {
    .name = "remote",
    .has_memory = true,
    .stream_create = remote_stream_create,
    .stream_finish = remote_stream_end,
    .stream_destroy = remote_stream_end,
    .push = remote_push,
    .wait = remote_wait,
    .event_wait = remote_event_wait,
    .n_done = remote_n_done,
};
