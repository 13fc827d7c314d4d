/* The host threads' side of the transport: requests that return at once. */
#include "comm/transport/parts.h"

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
    for (r.peer = 0; r.peer < t->config.n_ranks; r.peer++)
        if (r.peer != t->config.rank && (rank < 0 || rank == r.peer))
            WF_TRY(wfi_transport_post(t, &t->peers[r.peer].parts[trainer].notify[stream], &r));
    return WF_OK;
}

/* Splits the bytes into messages; each is a task of the stream that counts them. */
static wf_status move(wfi_transport *t, wfi_stream_queue *stream, wfi_queue *queue, wfi_request *r,
                      const void *data, size_t bytes) {
    for (size_t at = 0; at < bytes; at += r->bytes) {
        r->data = (char *)(uintptr_t)data + at;
        r->bytes = bytes - at < WFI_NETWORK_BYTES ? bytes - at : WFI_NETWORK_BYTES;
        WF_TRY(wfi_stream_push(stream, NULL, NULL, NULL));
        r->number = wfi_stream_record(stream).epoch;
        WF_TRY(wfi_transport_post(t, queue, r));
    }
    return WF_OK;
}

static wfi_request request_of(const wfi_route *route, wfi_request_kind kind) {
    return (wfi_request){.kind = kind,
                         .peer = route->peer,
                         .tag = 1 + route->reads_in,
                         .trainer = route->trainer,
                         .stream = route->stream,
                         .epoch = route->epoch};
}

wf_status wfi_transport_put(wfi_transport *t, const wfi_route *route, const void *data,
                            size_t bytes) {
    wfi_request r = request_of(route, WFI_REQUEST_SEND);
    return move(t, t->departures.streams[route->reads_in],
                &t->peers[route->peer].puts[route->reads_in], &r, data, bytes);
}

wf_status wfi_transport_receive(wfi_transport *t, const wfi_route *route, void *data,
                                size_t bytes) {
    wfi_request r = request_of(route, WFI_REQUEST_RECEIVE);
    return move(t, t->arrivals.streams[route->reads_in], &t->receives[route->reads_in], &r, data,
                bytes);
}

wfi_event wfi_transport_arrival(const wfi_transport *t, int stream) {
    return wfi_stream_record(t->arrivals.streams[stream]);
}

wfi_event wfi_transport_departure(const wfi_transport *t, int stream) {
    return wfi_stream_record(t->departures.streams[stream]);
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
