/* The part that all kinds of devices share. */
#include "device/bounce.h"

#include <sched.h>
#include <string.h>
#include <time.h>

/* A wait for a device polls for LOOK_NS without a nap. Then each nap is an eighth of the time
 * waited, at most MOST_NAP_NS. */
#define LOOK_NS     100000
#define MOST_NAP_NS 1000000

const wfi_device_class *const wfi_device_kinds[WFI_N_DEVICE_KINDS] = {
    &wfi_device_cpu, &wfi_device_null, &wfi_device_opencl, &wfi_device_cuda};

const wfi_device_class *wfi_device_kind(const char *name, size_t n) {
    for (int i = 0; i < WFI_N_DEVICE_KINDS; i++)
        if (strlen(wfi_device_kinds[i]->name) == n && !memcmp(wfi_device_kinds[i]->name, name, n))
            return wfi_device_kinds[i];
    return NULL;
}

const char *wfi_space_name(wfi_space space) {
    static const char *const names[WFI_N_SPACES] = {"device", "host", "disk"};
    return (unsigned)space < WFI_N_SPACES ? names[space] : "?";
}

wf_status wfi_device_create(const wfi_owner *owner, const wfi_device_class *kind, int place,
                            int n_places, wfi_device **device_out) {
    wfi_device *device = wfi_alloc(owner->ctx, 1, sizeof *device, "a device");
    if (!device) return WF_NO_MEMORY;
    *device = (wfi_device){.owner = *owner, .kind = kind, .place = place, .n_places = n_places};
    wf_status status = kind->create ? kind->create(device) : WF_OK;
    if (status != WF_OK) {
        wfi_free(owner->ctx, device);
        return status;
    }
    *device_out = device;
    return WF_OK;
}

void wfi_device_destroy(wfi_device *device) {
    if (!device) return;
    if (device->kind->destroy) device->kind->destroy(device);
    wfi_free(device->owner.ctx, device);
}

wf_status wfi_owner_check(const wfi_owner *owner) {
    return wfi_failure_check(owner->ctx, owner->failure);
}

void wfi_owner_fail(const wfi_owner *owner, wf_status status) {
    wfi_failure_set(owner->failure, status, wf_context_error(owner->ctx));
}

wf_status wfi_stream_new(const wfi_owner *owner, const wfi_stream_class *kind, const char *name,
                         int number, wfi_stream_queue **stream_out) {
    wfi_stream_queue *stream = wfi_alloc(owner->ctx, 1, sizeof *stream, "a stream");
    if (!stream) return WF_NO_MEMORY;
    *stream = (wfi_stream_queue){.kind = kind, .owner = owner, .name = name, .number = number};
    *stream_out = stream;
    return WF_OK;
}

wf_status wfi_stream_create(wfi_device *device, const char *name, int number,
                            wfi_shared_epoch *counter, wfi_stream_queue **stream_out) {
    wfi_stream_queue *stream;
    WF_TRY(wfi_stream_new(&device->owner, device->kind->streams, name, number, &stream));
    stream->device = device;
    wf_status status =
        device->kind->stream_create ? device->kind->stream_create(device, stream, counter) : WF_OK;
    if (status != WF_OK) {
        wfi_free(device->owner.ctx, stream);
        return status;
    }
    *stream_out = stream;
    return WF_OK;
}

void wfi_stream_finish(wfi_stream_queue *stream) {
    if (stream && stream->kind->finish) stream->kind->finish(stream);
}

void wfi_stream_destroy(wfi_stream_queue *stream) {
    if (!stream) return;
    wfi_stream_finish(stream);
    if (stream->kind->destroy) stream->kind->destroy(stream);
    if (stream->queue) stream->device->kind->stream_destroy(stream);
    wfi_bounce_free(stream);
    wfi_free(stream->owner->ctx, stream);
}

wf_status wfi_stream_push(wfi_stream_queue *stream, wfi_task task, void *self, void *argument) {
    WF_TRY(stream->kind->push(stream, task, self, argument));
    stream->n_pushed++;
    return WF_OK;
}

wf_status wfi_stream_wait(wfi_stream_queue *stream, wfi_event event) {
    if (!event.stream || event.stream == stream) return WF_OK; /* a stream is in order */
    return stream->kind->wait(stream, event);
}

wfi_event wfi_stream_record(const wfi_stream_queue *stream) {
    return (wfi_event){(wfi_stream_queue *)stream, stream->n_pushed};
}

wf_status wfi_event_wait(wfi_event event) {
    if (!event.stream) return WF_OK;
    const wfi_owner *owner = event.stream->owner;
    const wfi_waiter host = {"the host", owner->watch, true};
    wf_status status = event.stream->kind->event_wait(event, &host);
    if (status != WF_OK) wfi_owner_fail(owner, status);
    wf_status failed = wfi_owner_check(owner);
    return failed != WF_OK ? failed : status;
}

void wfi_stream_settle(wfi_stream_queue *stream) {
    const wfi_device_class *kind = stream->device->kind;
    wf_status ignored = kind->finish_task ? kind->finish_task(stream) : WF_OK;
    (void)ignored;
}

void wfi_stream_mark(wfi_stream_queue *stream, int64_t *ns_out) {
    if (stream->device->kind->mark) {
        stream->device->kind->mark(stream, ns_out);
        return;
    }
    wfi_stream_settle(stream);
    *ns_out = wfi_now_ns();
}

uint64_t wfi_stream_n_done(const wfi_stream_queue *stream) {
    return stream->kind->n_done(stream);
}

/* ---- waiting for a device ---- */

wfi_device_wait wfi_device_wait_begin(const wfi_device *device) {
    const wfi_waiter own = {"a stream", device->owner.watch, false};
    int64_t timeout_ms = device->owner.timeout_ms;
    return (wfi_device_wait){wfi_deadline_begin(&own, timeout_ms - timeout_ms / 4, 0),
                             wfi_now_ns()};
}

bool wfi_device_wait_on(wfi_device_wait *wait) {
    int64_t waited_ns = wfi_now_ns() - wait->begin_ns;
    if (waited_ns < LOOK_NS) return sched_yield() == 0;
    if (wait->deadline.timeout_ms && wfi_deadline_is_over(&wait->deadline, 0)) return false;
    struct timespec nap = {0, (long)wfi_min_i64(waited_ns / 8, MOST_NAP_NS)};
    nanosleep(&nap, NULL);
    return true;
}

wf_status wfi_device_hangs(const wfi_device *device, const wfi_stream_queue *stream,
                           const char *what, const wfi_device_wait *wait) {
    const wfi_owner *owner = &device->owner;
    char why[512] = "";
    if (stream) {
        const wfi_waiter own = {stream->name, owner->watch, false};
        const wfi_event event = {(wfi_stream_queue *)stream, wfi_stream_n_done(stream) + 1};
        wfi_waiter_explain(&own, &event, why, sizeof why);
    }
    return wfi_fail(owner->ctx, WF_TIMEOUT,
                    "%s: %s hangs: in %lld ms it has not completed the work of %s of rank %d%s; if "
                    "it is only slow, raise WEFT_TIMEOUT_MS",
                    device->kind->name, what, (long long)wait->deadline.timeout_ms,
                    stream ? stream->name : "the host", owner->rank, why);
}

/* ---- memory of several devices ---- */

static bool is_host(const wfi_device *device) {
    return !device || !device->kind->separate;
}

bool wfi_device_reaches(const wfi_device *device, const wfi_device *other) {
    if (is_host(device) || is_host(other)) return is_host(device) && is_host(other);
    return device->kind == other->kind && device->kind->reaches(device, other);
}

wf_status wfi_memory_fetch(wfi_stream_queue *stream, void *to, wfi_device *owner, const void *from,
                           size_t bytes) {
    wfi_device *device = stream->device;
    if (wfi_device_reaches(device, owner))
        return wfi_memory_copy(device, stream, to, WFI_SPACE_DEVICE, from, WFI_SPACE_DEVICE, bytes);
    if (is_host(owner))
        return wfi_memory_copy(device, stream, to, WFI_SPACE_DEVICE, from, WFI_SPACE_HOST, bytes);
    if (is_host(device))
        return wfi_memory_copy(owner, NULL, to, WFI_SPACE_HOST, from, WFI_SPACE_DEVICE, bytes);
    return wfi_bounce_copy(stream, device, to, WFI_SPACE_DEVICE, owner, from, WFI_SPACE_DEVICE,
                           bytes);
}
