/* What all kinds of devices share. */
#include "device/device.h"

#include <stdio.h>
#include <string.h>

const wfi_device_class *wfi_device_kind(const char *name, size_t n) {
    static const wfi_device_class *const kinds[] = {&wfi_device_cpu, &wfi_device_null};
    for (size_t i = 0; i < WFI_COUNT(kinds); i++)
        if (strlen(kinds[i]->name) == n && !memcmp(kinds[i]->name, name, n)) return kinds[i];
    return NULL;
}

wf_status wfi_device_create(wf_context *ctx, const wfi_device_config *config,
                            wfi_device **device_out) {
    wfi_device *device = wfi_alloc(ctx, 1, sizeof *device, "a device");
    if (!device) return WF_NO_MEMORY;
    device->ctx = ctx;
    device->kind = config->kind;
    device->config = *config;
    device->n_cores = 1;
    device->failure = config->failure ? config->failure : &device->own_failure;
    wf_status status = device->kind->create ? device->kind->create(device) : WF_OK;
    if (status != WF_OK) {
        wfi_free(ctx, device);
        return status;
    }
    *device_out = device;
    return WF_OK;
}

void wfi_device_destroy(wfi_device *device) {
    if (!device) return;
    if (device->kind->destroy) device->kind->destroy(device);
    wfi_free(device->ctx, device);
}

bool wfi_device_has_memory(const wfi_device *device) {
    return device->kind->has_memory;
}

int wfi_device_n_cores(const wfi_device *device) {
    return device->n_cores;
}

wf_status wfi_device_status(const wfi_device *device) {
    return wfi_failure_status(device->failure);
}

wf_status wfi_device_check(const wfi_device *device) {
    return wfi_failure_check(device->ctx, device->failure);
}

void wfi_device_fail(wfi_device *device, wf_status status) {
    wfi_failure_set(device->failure, status, wf_context_error(device->ctx));
}

wf_status wfi_stream_create(wfi_device *device, const char *name, wfi_stream_queue **stream_out) {
    wfi_stream_queue *stream = wfi_alloc(device->ctx, 1, sizeof *stream, "a stream");
    if (!stream) return WF_NO_MEMORY;
    stream->device = device;
    stream->name = name;
    stream->number = device->n_streams;
    wf_status status = device->kind->stream_create(device, stream);
    if (status != WF_OK) {
        wfi_free(device->ctx, stream);
        return status;
    }
    device->n_streams++;
    *stream_out = stream;
    return WF_OK;
}

void wfi_stream_finish(wfi_stream_queue *stream) {
    if (stream) stream->device->kind->stream_finish(stream);
}

void wfi_stream_destroy(wfi_stream_queue *stream) {
    if (!stream) return;
    wfi_stream_finish(stream);
    stream->device->kind->stream_destroy(stream);
    wfi_free(stream->device->ctx, stream);
}

wf_status wfi_stream_push(wfi_stream_queue *stream, wfi_task task, void *self, void *argument) {
    WF_TRY(stream->device->kind->push(stream, task, self, argument));
    stream->n_pushed++;
    return WF_OK;
}

wf_status wfi_stream_wait(wfi_stream_queue *stream, wfi_event event) {
    if (!event.stream || event.stream == stream) return WF_OK; /* a stream is in order */
    return stream->device->kind->wait(stream, event);
}

wfi_event wfi_stream_record(const wfi_stream_queue *stream) {
    return (wfi_event){(wfi_stream_queue *)stream, stream->n_pushed};
}

wf_status wfi_event_announce(wfi_event event) {
    if (!event.stream) return WF_OK;
    const wfi_device_config *config = &event.stream->device->config;
    if (!config->notify || event.stream->device->kind == &wfi_device_remote) return WF_OK;
    return config->notify(config->self, -1, event.stream->number, event.epoch);
}

wf_status wfi_event_wait(wfi_event event) {
    if (!event.stream) return WF_OK;
    wfi_device *device = event.stream->device;
    WF_TRY(wfi_event_announce(event));
    const wfi_waiter host = {"the host", device->config.watch, true};
    wf_status status = device->kind->event_wait(event, &host);
    if (status != WF_OK) wfi_device_fail(device, status);
    wf_status failed = wfi_device_check(device);
    return failed != WF_OK ? failed : status;
}

uint64_t wfi_stream_n_done(const wfi_stream_queue *stream) {
    return stream->device->kind->n_done(stream);
}

void wfi_device_explain(const wfi_event *event, const wfi_waiter *waiter, char *text,
                        size_t bytes) {
    const wfi_watch *watch = waiter->watch;
    snprintf(text, bytes, "%s", watch ? ": " : "");
    if (watch && bytes > 2)
        watch->explain(watch->self, event, waiter->is_host, "", text + 2, bytes - 2);
}

wf_status wfi_stream_call(wfi_stream_queue *stream, wfi_task task, void *self, void *argument) {
    WF_TRY(wfi_stream_push(stream, task, self, argument));
    return wfi_event_wait(wfi_stream_record(stream));
}
