/* The courier as the host's thread sees it: orders that return at once, but for the last. */
#include "comm/courier/parts.h"

#include "base/clock.h"

#include <string.h>
#include <time.h>

/* How often it looks whether what it sends has been taken. */
#define LOOK_US 20

void wfi_courier_publish(wfi_courier *c) {
    const wfi_control_rank *own = &c->config.ranks[c->config.rank];
    pthread_mutex_lock(&c->lock);
    c->state = (wfi_courier_state){.n_meetings = own->meetings.epoch,
                                   .n_runs = own->runs.epoch,
                                   .run = {own->run[0], own->run[1]},
                                   .stop = {own->stop[0], own->stop[1]},
                                   .not_finite = {own->not_finite[0], own->not_finite[1]},
                                   .host = own->host,
                                   .pid = own->pid};
    for (int t = 0; t < WFI_CONTROL_TRAINERS; t++) {
        c->state.parts[t].peak_bytes = own->parts[t].peak_bytes;
        c->state.parts[t].mirror_bytes = own->parts[t].mirror_bytes;
        c->state.parts[t].arena_bytes = own->parts[t].arena_bytes;
    }
    memcpy(c->state.numbers, own->numbers, sizeof c->state.numbers);
    memcpy(c->state.doing, own->doing, sizeof c->state.doing);
    memcpy(c->state.purpose, own->purpose, sizeof c->state.purpose);
    c->is_state_due = true;
    wfi_courier_wake(c);
    pthread_mutex_unlock(&c->lock);
}

wf_status wfi_courier_reset(wfi_courier *c, int trainer) {
    return wfi_courier_give(c, &(wfi_order){.kind = WFI_ORDER_RESET, .trainer = trainer});
}

wf_status wfi_courier_promise(wfi_courier *c, int rank, int trainer, int stream, uint64_t epoch) {
    wfi_order order = {
        .kind = WFI_ORDER_PROMISE, .trainer = trainer, .stream = stream, .epoch = epoch};
    for (order.peer = 0; order.peer < c->config.n_ranks; order.peer++)
        if (order.peer != c->config.rank && (rank < 0 || rank == order.peer))
            WF_TRY(wfi_courier_give(c, &order));
    return WF_OK;
}

/* Tag 0 is the notes'. */
static int next_tag(uint32_t *n) {
    return 1 + (int)((*n)++ % WFI_MAIL_PARCELS);
}

wf_status wfi_courier_send(wfi_courier *c, const wfi_parcel *parcel, const void *data,
                           size_t bytes) {
    wfi_order order = {.kind = WFI_ORDER_SEND,
                       .peer = parcel->to,
                       .trainer = parcel->trainer,
                       .stream = parcel->stream,
                       .epoch = parcel->epoch};
    if (parcel->need) memcpy(order.need, parcel->need, sizeof order.need);
    for (size_t at = 0; at < bytes; at += order.bytes) {
        order.data = (char *)(uintptr_t)data + at;
        order.bytes = bytes - at < WFI_MAIL_BYTES ? bytes - at : WFI_MAIL_BYTES;
        order.tag = next_tag(&c->peers[order.peer].n_sent);
        if (order.stream == WFI_COURIER_HOST)
            __atomic_add_fetch(&c->n_host_sends, 1, __ATOMIC_RELAXED);
        WF_TRY(wfi_courier_give(c, &order));
    }
    return WF_OK;
}

wf_status wfi_courier_receive(wfi_courier *c, int from, int stream, void *data, size_t bytes) {
    wfi_order order = {.kind = WFI_ORDER_RECEIVE, .peer = from, .stream = stream};
    for (size_t at = 0; at < bytes; at += order.bytes) {
        order.data = (char *)data + at;
        order.bytes = bytes - at < WFI_MAIL_BYTES ? bytes - at : WFI_MAIL_BYTES;
        order.tag = next_tag(&c->peers[from].n_received);
        WF_TRY(wfi_stream_push(c->streams[stream], NULL, NULL, NULL));
        order.epoch = wfi_stream_record(c->streams[stream]).epoch;
        WF_TRY(wfi_courier_give(c, &order));
    }
    return WF_OK;
}

wfi_event wfi_courier_arrival(const wfi_courier *c, int stream) {
    return wfi_stream_record(c->streams[stream]);
}

wf_status wfi_courier_flush(wfi_courier *c) {
    WF_TRY(wfi_event_wait(wfi_courier_arrival(c, WFI_COURIER_HOST)));
    struct timespec time = {0, LOOK_US * 1000};
    for (int64_t end_ms = wfi_now_ms() + c->config.timeout_ms;
         __atomic_load_n(&c->n_host_sends, __ATOMIC_ACQUIRE); nanosleep(&time, NULL)) {
        WF_TRY(wfi_device_check(c->device));
        if (wfi_now_ms() < end_ms) continue;
        wf_status status =
            wfi_fail(c->ctx, WF_TIMEOUT, "rank %d waited %lld ms for what it sends to be taken",
                     c->config.rank, (long long)c->config.timeout_ms);
        wfi_device_fail(c->device, status);
        return status;
    }
    return WF_OK;
}
