/* The transport as the host's threads see it: requests that return at once, but for flush. */
#include "comm/transport/parts.h"

#include "base/clock.h"

#include <string.h>
#include <time.h>

/* How often a flush looks whether what was put has been taken. */
#define LOOK_US 20

void wfi_transport_publish(wfi_transport *t) {
    const wfi_control_rank *own = &t->config.ranks[t->config.rank];
    pthread_mutex_lock(&t->lock);
    t->state.n_barriers = own->barriers.epoch;
    t->state.n_runs = own->runs.epoch;
    t->state.pid = own->pid;
    t->state.state = own->state;
    t->is_state_due = true;
    wfi_transport_wake(t);
    pthread_mutex_unlock(&t->lock);
}

wf_status wfi_transport_reset(wfi_transport *t, int trainer) {
    return wfi_transport_post(t, NULL,
                              &(wfi_request){.kind = WFI_REQUEST_RESET, .trainer = trainer});
}

wf_status wfi_transport_notify(wfi_transport *t, int rank, int trainer, int stream,
                               uint64_t epoch) {
    wfi_request r = {
        .kind = WFI_REQUEST_NOTIFY, .trainer = trainer, .stream = stream, .epoch = epoch};
    r.need[stream] = epoch;
    for (r.peer = 0; r.peer < t->config.n_ranks; r.peer++)
        if (r.peer != t->config.rank && (rank < 0 || rank == r.peer))
            WF_TRY(wfi_transport_post(t, &t->peers[r.peer].parts[trainer].notify[stream], &r));
    return WF_OK;
}

wf_status wfi_transport_put(wfi_transport *t, const wfi_put *put, const void *data, size_t bytes) {
    wfi_request r = {.kind = WFI_REQUEST_SEND,
                     .peer = put->to,
                     .tag = 1 + put->stream,
                     .trainer = put->trainer,
                     .epoch = put->epoch,
                     .data = (char *)(uintptr_t)data,
                     .bytes = bytes};
    if (put->need) memcpy(r.need, put->need, sizeof r.need);
    return bytes ? wfi_transport_post(t, &t->peers[put->to].puts[put->stream], &r) : WF_OK;
}

/* The streams of `arrived` count what was posted for them. */
wf_status wfi_transport_receive(wfi_transport *t, int from, int stream, void *data, size_t bytes) {
    wfi_request r = {.kind = WFI_REQUEST_RECEIVE, .peer = from, .tag = 1 + stream};
    for (size_t at = 0; at < bytes; at += r.bytes) {
        r.data = (char *)data + at;
        r.bytes = bytes - at < WFI_NETWORK_BYTES ? bytes - at : WFI_NETWORK_BYTES;
        WF_TRY(wfi_stream_push(t->streams[stream], NULL, NULL, NULL));
        WF_TRY(wfi_transport_post(t, &t->arrivals[stream], &r));
    }
    return WF_OK;
}

wfi_event wfi_transport_arrival(const wfi_transport *t, int stream) {
    return wfi_stream_record(t->streams[stream]);
}

static bool is_taken(const wfi_transport *t) {
    for (int r = 0; r < t->config.n_ranks; r++) {
        const wfi_queue *q = &t->peers[r].puts[WFI_TRANSPORT_HOST];
        if (__atomic_load_n(&q->n_done, __ATOMIC_ACQUIRE) != q->n_posted) return false;
    }
    return true;
}

wf_status wfi_transport_flush(wfi_transport *t) {
    WF_TRY(wfi_event_wait(wfi_transport_arrival(t, WFI_TRANSPORT_HOST)));
    const struct timespec time = {0, LOOK_US * 1000};
    for (int64_t end_ms = wfi_now_ms() + t->config.timeout_ms; !is_taken(t);
         nanosleep(&time, NULL)) {
        WF_TRY(wfi_owner_check(&t->remote.owner));
        if (wfi_now_ms() < end_ms) continue;
        wf_status status =
            wfi_fail(t->ctx, WF_TIMEOUT, "rank %d waited %lld ms for what it sends to be taken",
                     t->config.rank, (long long)t->config.timeout_ms);
        wfi_owner_fail(&t->remote.owner, status);
        return status;
    }
    return WF_OK;
}

/* ---- groups ---- */

wfi_transport_slots *wfi_transport_slots_of(wfi_transport *t) {
    return &t->slots;
}

bool wfi_transport_has_engine(const wfi_transport *t) {
    return t->config.network.sum != NULL;
}

void wfi_transport_enter(wfi_transport *t, wfi_transport_group *group) {
    for (int i = 0; i < WFI_N_QUEUES; i++) wfi_queue_init(&group->queues[i], &group->done[i]);
    pthread_mutex_lock(&t->queues_lock);
    group->next = t->groups;
    t->groups = group;
    pthread_mutex_unlock(&t->queues_lock);
}

void wfi_transport_depart(wfi_transport *t, wfi_transport_group *group) {
    pthread_mutex_lock(&t->queues_lock);
    wfi_transport_group **at = &t->groups;
    while (*at && *at != group) at = &(*at)->next;
    if (*at) *at = group->next;
    pthread_mutex_unlock(&t->queues_lock);
}

void wfi_transport_poll(wfi_transport *t, bool begins) {
    __atomic_add_fetch(&t->n_polling, begins ? 1 : -1, __ATOMIC_RELAXED);
}
