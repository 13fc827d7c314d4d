#include "comm/transport/remote.h"

/* How long it sleeps before it checks whether the other process still runs. */
#define NAP_MS 50

static const wfi_stream_class remote_streams;

static wfi_shared_epoch *counter_of(const wfi_stream_queue *stream) {
    const wfi_remote *remote = stream->state;
    return &remote->counters[stream->number];
}

static uint64_t remote_n_done(const wfi_stream_queue *stream) {
    return __atomic_load_n(&counter_of(stream)->epoch, __ATOMIC_ACQUIRE);
}

static wf_status remote_push(wfi_stream_queue *stream, wfi_task task, void *self, void *argument) {
    (void)task, (void)self, (void)argument;
    return wfi_owner_check(stream->owner);
}

static wf_status remote_wait(wfi_stream_queue *stream, wfi_event event) {
    (void)event;
    return wfi_owner_check(stream->owner);
}

static wf_status too_late(const wfi_event *event, uint64_t now, const wfi_waiter *waiter) {
    const wfi_remote *remote = event->stream->state;
    const wfi_owner *owner = &remote->owner;
    if (remote->awaited_rank)
        return wfi_fail(owner->ctx, WF_TIMEOUT,
                        "%s of rank %d waited %lld ms for bytes %s rank %d: %llu of %llu messages "
                        "are through",
                        waiter->name, owner->rank, (long long)owner->timeout_ms, remote->direction,
                        remote->awaited_rank(remote->self, event->stream->number),
                        (unsigned long long)now, (unsigned long long)event->epoch);
    char why[512];
    wfi_waiter_explain(waiter, event, why, sizeof why);
    return wfi_fail(owner->ctx, WF_TIMEOUT,
                    "%s waited %lld ms for stream %s of rank %d (another process), which has done "
                    "%llu of %llu tasks%s",
                    waiter->name, (long long)owner->timeout_ms, event->stream->name, owner->rank,
                    (unsigned long long)now, (unsigned long long)event->epoch, why);
}

/* The rank on which the stream depends; -1: unknown. */
static int rank_of(const wfi_event *event) {
    const wfi_remote *remote = event->stream->state;
    return remote->awaited_rank ? remote->awaited_rank(remote->self, event->stream->number)
                                : remote->owner.rank;
}

/* The rank may have completed the last task and left. The stream may then depend on another one. */
static bool is_lost(const wfi_event *event) {
    const wfi_remote *remote = event->stream->state;
    int rank = rank_of(event);
    return remote->is_lost && rank >= 0 && remote->is_lost(remote->self, rank) &&
           remote_n_done(event->stream) < event->epoch && rank_of(event) == rank;
}

static wf_status fail_lost(const wfi_event *event, uint64_t now, const wfi_waiter *waiter) {
    const wfi_remote *remote = event->stream->state;
    const wfi_owner *owner = &remote->owner;
    char lost[WFI_REMOTE_LOST];
    WF_TRY(wfi_owner_check(owner)); /* a rank that failed set this before it left */
    remote->describe_lost(remote->self, rank_of(event), lost);
    return wfi_fail(owner->ctx, WF_REMOTE,
                    "%s: %s waited for its stream %s, which has done %llu of %llu tasks", lost,
                    waiter->name, event->stream->name, (unsigned long long)now,
                    (unsigned long long)event->epoch);
}

static wf_status remote_event_wait(wfi_event event, const wfi_waiter *waiter) {
    const wfi_remote *remote = event.stream->state;
    const wfi_owner *owner = &remote->owner;
    uint64_t now = 0;
    for (int spin = wfi_stream_n_spins(); spin > 0; spin--) {
        now = remote_n_done(event.stream);
        if (now >= event.epoch) return WF_OK;
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
    }
    wfi_deadline deadline = wfi_deadline_begin(waiter, owner->timeout_ms, now);
    for (;;) {
        wfi_shared_epoch_sleep(counter_of(event.stream), now,
                               wfi_deadline_nap_ms(&deadline, waiter, NAP_MS));
        now = remote_n_done(event.stream);
        if (now >= event.epoch) return WF_OK;
        WF_TRY(wfi_owner_check(owner));
        if (is_lost(&event)) return fail_lost(&event, now, waiter);
        if (wfi_deadline_is_over(&deadline, now)) return too_late(&event, now, waiter);
        if (waiter->is_host) wfi_watch_look(waiter->watch, &event);
    }
}

static const wfi_stream_class remote_streams = {
    .push = remote_push,
    .wait = remote_wait,
    .event_wait = remote_event_wait,
    .n_done = remote_n_done,
};

wf_status wfi_remote_stream_create(const wfi_remote *remote, const char *name, int number,
                                   wfi_stream_queue **stream_out) {
    WF_TRY(wfi_stream_new(&remote->owner, &remote_streams, name, number, stream_out));
    (*stream_out)->state = (void *)(uintptr_t)remote;
    return WF_OK;
}

void wfi_remote_stream_count(wfi_stream_queue *stream, uint64_t n_tasks) {
    stream->n_pushed += n_tasks;
}
