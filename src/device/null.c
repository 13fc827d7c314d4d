/* The null device: no memory, no threads. Tasks run inline when they are pushed, so
 * waiting for an event that has not been pushed yet would wait for ever: an error.
 * A program that can be run here in the order of its list has no event missing
 * from that list.
 */
#include "device/device.h"

static wf_status null_push(wfi_stream_queue *stream, wfi_task task, void *self, void *argument) {
    WF_TRY(wfi_owner_check(stream->owner));
    wf_status status = task(self, argument);
    if (status != WF_OK) wfi_owner_fail(stream->owner, status);
    return status;
}

static wf_status null_event_wait(wfi_event event, const wfi_waiter *waiter) {
    (void)waiter;
    if (event.epoch <= event.stream->n_pushed) return wfi_owner_check(event.stream->owner);
    return wfi_fail(event.stream->owner->ctx, WF_BUG,
                    "rank %d waits for task %llu of stream %s, which has %llu",
                    event.stream->owner->rank, (unsigned long long)event.epoch, event.stream->name,
                    (unsigned long long)event.stream->n_pushed);
}

static wf_status null_wait(wfi_stream_queue *stream, wfi_event event) {
    return null_event_wait(event, &(wfi_waiter){.name = stream->name});
}

static uint64_t null_n_done(const wfi_stream_queue *stream) {
    return stream->n_pushed;
}

static const wfi_stream_class null_streams = {
    .push = null_push, .wait = null_wait, .event_wait = null_event_wait, .n_done = null_n_done};

const wfi_device_class wfi_device_null = {
    .name = "null",
    .has_memory = false,
    .streams = &null_streams,
};
