/* Messages between transports: states of ranks, epochs of streams, failures, messages of groups,
 * and the last message of a rank that leaves. */
#include "comm/transport/parts.h"

#include <stdio.h>
#include <string.h>

#define MAGIC UINT32_C(0x77656605) /* changes with the messages */

static bool is_other(const wfi_transport *t, int rank) {
    return rank != t->config.rank;
}

static size_t message_bytes(const wfi_message *m) {
    switch ((wfi_message_kind)m->kind) {
    case WFI_MESSAGE_STATE:
        return offsetof(wfi_message, state) + sizeof m->state;
    case WFI_MESSAGE_EPOCHS:
        return offsetof(wfi_message, streams) + sizeof m->streams;
    case WFI_MESSAGE_FAILURE:
        return offsetof(wfi_message, failure) + sizeof m->failure;
    case WFI_MESSAGE_GROUP:
        return offsetof(wfi_message, group.bytes) + m->group.n_bytes;
    case WFI_MESSAGE_LEAVE:
        break;
    }
    return offsetof(wfi_message, state);
}

/* ---- sending ---- */

/* A request that owns a copy of the message. Its `data` are NULL if memory is exhausted. */
static wfi_request request_of(wfi_transport *t, int peer, const wfi_message *m) {
    size_t bytes = message_bytes(m);
    wfi_message *copy = wfi_alloc(t->own, 1, bytes, "a message");
    if (copy) {
        memcpy(copy, m, bytes);
        copy->magic = MAGIC;
    }
    return (wfi_request){.kind = WFI_REQUEST_SEND,
                         .peer = peer,
                         .data = (char *)copy,
                         .bytes = bytes,
                         .owns_data = true};
}

static bool send(wfi_transport *t, int peer, const wfi_message *m) {
    if (t->is_broken || t->is_leaving) return false;
    wfi_request r = request_of(t, peer, m);
    if (!r.data) return false;
    bool added = wfi_queue_add(t, &t->peers[peer].messages, &r);
    if (!added) wfi_free(t->own, r.data);
    return added;
}

bool wfi_transport_send_all(wfi_transport *t, const wfi_message *m) {
    bool sent = false;
    for (int r = 0; r < t->config.n_ranks; r++)
        if (is_other(t, r)) sent |= send(t, r, m);
    return sent;
}

bool wfi_transport_send_failure(wfi_transport *t) {
    const wfi_failure_entry *first = wfi_failure_first(t->config.failure);
    bool sent = false;
    if (!first) return false;
    wfi_message m = {.kind = WFI_MESSAGE_FAILURE};
    m.failure.status = first->status;
    snprintf(m.failure.sentence, sizeof m.failure.sentence, "%s", first->sentence);
    for (int r = 0; r < t->config.n_ranks; r++)
        if (is_other(t, r) && !t->peers[r].knows_failure) {
            t->peers[r].knows_failure = true;
            sent |= send(t, r, &m);
        }
    return sent;
}

wf_status wfi_transport_send(wfi_transport *t, uint64_t serial, int to, const void *data,
                             size_t bytes) {
    wfi_message m = {.kind = WFI_MESSAGE_GROUP};
    m.group.serial = serial;
    m.group.n_bytes = bytes;
    memcpy(m.group.bytes, data, bytes);
    wfi_request r = request_of(t, to, &m);
    if (!r.data) return wfi_no_memory(t->ctx, r.bytes, "a message to another rank");
    wf_status status = wfi_transport_post(t, &t->peers[to].messages, &r);
    if (status != WF_OK) wfi_free(t->own, r.data);
    return status;
}

/* ---- epochs ---- */

static uint64_t own_epoch(const wfi_transport *t, int trainer, int stream) {
    const wfi_control_rank *own = &t->config.ranks[t->config.rank];
    return __atomic_load_n(&own->epochs[trainer][stream].epoch, __ATOMIC_ACQUIRE);
}

static bool send_epochs(wfi_transport *t, int peer, int trainer) {
    wfi_message m = {.kind = WFI_MESSAGE_EPOCHS};
    m.streams.trainer = (uint64_t)trainer;
    m.streams.generation = t->generation[trainer];
    for (int s = 0; s < WFI_CONTROL_STREAMS; s++)
        m.streams.epochs[s] = t->peers[peer].parts[trainer].sent[s] = own_epoch(t, trainer, s);
    return send(t, peer, &m);
}

void wfi_transport_send_epoch(wfi_transport *t, const wfi_request *r) {
    if (r->epoch > t->peers[r->peer].parts[r->trainer].sent[r->stream])
        (void)send_epochs(t, r->peer, r->trainer);
}

bool wfi_transport_send_epochs(wfi_transport *t) {
    bool sent = false;
    for (int r = 0; r < t->config.n_ranks; r++)
        for (int k = 0; k < t->n_parts && is_other(t, r) && !t->peers[r].has_left; k++) {
            bool is_news = false;
            for (int s = 0; s < WFI_CONTROL_STREAMS; s++)
                is_news |= own_epoch(t, k, s) > t->peers[r].parts[k].sent[s];
            if (is_news) sent |= send_epochs(t, r, k);
        }
    return sent;
}

void wfi_transport_reset_streams(wfi_transport *t, int trainer) {
    t->generation[trainer]++;
    if (trainer >= t->n_parts) t->n_parts = trainer + 1;
    for (int r = 0; r < t->config.n_ranks; r++)
        for (int s = 0; s < WFI_CONTROL_STREAMS && is_other(t, r); s++) {
            wfi_peer_part *p = &t->peers[r].parts[trainer];
            p->sent[s] = 0;
            wfi_queue_clear(t, &p->notify[s]);
            __atomic_store_n(&t->config.ranks[r].epochs[trainer][s].epoch, 0, __ATOMIC_SEQ_CST);
        }
}

/* ---- receiving ---- */

_Static_assert(sizeof(wfi_control_state) % sizeof(uint64_t) == 0, "a state is whole words");

/* Host threads read the state during this copy, so each word is stored atomically. */
static void receive_state(wfi_transport *t, int peer, const wfi_message_state *m) {
    wfi_control_rank *rank = &t->config.ranks[peer];
    uint64_t *to = (uint64_t *)(void *)&rank->state, word;
    for (size_t k = 0; k < sizeof rank->state / sizeof word; k++) {
        memcpy(&word, (const char *)&m->state + k * sizeof word, sizeof word);
        __atomic_store_n(&to[k], word, __ATOMIC_RELAXED);
    }
    __atomic_store_n(&rank->pid, m->pid, __ATOMIC_RELEASE);
    __atomic_store_n(&rank->runs.epoch, m->n_runs, __ATOMIC_SEQ_CST);
    wfi_shared_epoch_wake(&rank->runs);
    __atomic_store_n(&rank->barriers.epoch, m->n_barriers, __ATOMIC_SEQ_CST);
    wfi_shared_epoch_wake(&rank->barriers);
}

static void receive_epochs(wfi_transport *t, int peer, const wfi_message *m) {
    uint64_t trainer = m->streams.trainer;
    if (trainer >= WFI_CONTROL_TRAINERS || m->streams.generation != t->generation[trainer])
        return; /* the message belongs to an earlier trainer in this slot */
    for (int s = 0; s < WFI_CONTROL_STREAMS; s++) {
        wfi_shared_epoch *epoch = &t->config.ranks[peer].epochs[trainer][s];
        if (m->streams.epochs[s] <= __atomic_load_n(&epoch->epoch, __ATOMIC_RELAXED)) continue;
        __atomic_store_n(&epoch->epoch, m->streams.epochs[s], __ATOMIC_SEQ_CST);
        wfi_shared_epoch_wake(epoch);
    }
}

/* After a failure, leaving is not the reason why a rank does not arrive, so it is not reported. */
static void receive_leaving(wfi_transport *t, int peer) {
    wfi_control_rank *rank = &t->config.ranks[peer];
    t->peers[peer].has_left = true;
    if (wfi_failure_status(t->config.failure) != WF_OK) return;
    __atomic_store_n(&rank->pid, -rank->pid, __ATOMIC_RELEASE); /* as in a shared segment */
    wfi_shared_epoch_wake(&rank->barriers);
    wfi_shared_epoch_wake(&rank->runs);
}

/* A rank that has left the group ignores its messages. */
static void receive_group(wfi_transport *t, int peer, const wfi_message *m) {
    for (wfi_transport_group *g = t->groups; g; g = g->next)
        if (g->serial == m->group.serial) g->receive(g->self, peer, m->group.bytes);
}

static void receive_message(wfi_transport *t, int peer, const wfi_message *m) {
    wfi_peer *p = &t->peers[peer];
    if (m->magic != MAGIC) {
        char sentence[80];
        snprintf(sentence, sizeof sentence, "rank %d runs another version of weft", peer);
        wfi_failure_set(t->config.failure, WF_REMOTE, sentence);
        return;
    }
    switch ((wfi_message_kind)m->kind) {
    case WFI_MESSAGE_STATE:
        receive_state(t, peer, &m->state);
        break;
    case WFI_MESSAGE_EPOCHS:
        receive_epochs(t, peer, m);
        break;
    case WFI_MESSAGE_FAILURE:
        p->knows_failure = true;
        wfi_failure_receive(t->config.failure, m->failure.status, m->failure.sentence);
        break;
    case WFI_MESSAGE_GROUP:
        receive_group(t, peer, m);
        break;
    case WFI_MESSAGE_LEAVE:
        receive_leaving(t, peer);
        break;
    }
}

bool wfi_transport_receive_messages(wfi_transport *t) {
    const wfi_network *network = &t->config.network;
    bool received = false;
    for (int r = 0; r < t->config.n_ranks; r++) {
        wfi_peer *p = &t->peers[r];
        while (is_other(t, r) && !p->has_left && !t->is_broken) {
            bool done = false;
            wf_status status = WF_OK;
            if (p->listens) status = network->test(network->self, &p->handle, &done);
            if (status == WF_OK && p->listens && !done) break;
            if (status == WF_OK && done) receive_message(t, r, &p->incoming);
            received |= done;
            p->listens = status == WF_OK && !p->has_left;
            if (p->listens)
                status = network->receive(network->self, r, 0, &p->incoming, sizeof p->incoming,
                                          &p->handle);
            if (status != WF_OK) wfi_transport_break(t, status);
        }
    }
    return received;
}

bool wfi_transport_drain_receives(wfi_transport *t, bool cancels) {
    const wfi_network *network = &t->config.network;
    bool all = true;
    for (int r = 0; r < t->config.n_ranks; r++) {
        wfi_peer *p = &t->peers[r];
        bool done = false;
        if (p->listens && cancels) network->cancel(network->self, &p->handle);
        if (p->listens && (network->test(network->self, &p->handle, &done) != WF_OK || done))
            p->listens = false;
        all &= !p->listens;
    }
    return all;
}
