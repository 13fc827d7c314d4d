/* Messages between threads of one process, in place of MPI's. What is sent is read where it lies
 * when it is received, so whoever writes there too early is found, by the thread sanitizer at the
 * latest. The sender hears that it was received only when it has asked a few times more, and its
 * bytes have to be the same until then. */
#pragma once

#include "comm/transport/network.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef struct fake_message {
    struct fake_message *next;
    int from, to, tag;
    bool is_receive, is_done, is_cancelled;
    uint64_t hash; /* of what has been received */
    int n_asked;   /* since then */
    char *data;
    size_t bytes;
} fake_message;

typedef struct fake_net {
    pthread_mutex_t lock;
    fake_message *first;
    int n_ranks;
    size_t n_carried;
    int silent_from; /* tag from which on what rank 1 sends never comes; 0: all comes */
} fake_net;

typedef struct fake_rank {
    fake_net *net;
    int rank;
} fake_rank;

static inline wf_status fake_start(void *self, wf_context *ctx, int *rank_out, int *n_ranks_out) {
    const fake_rank *rank = self;
    *rank_out = rank->rank;
    *n_ranks_out = rank->net->n_ranks;
    return WF_OK;
}

static inline wf_status fake_post(fake_rank *rank, fake_message message,
                                  wfi_network_handle *handle_out) {
    fake_message *new = malloc(sizeof *new), **at = &rank->net->first;
    *new = message;
    handle_out->pointer = new;
    pthread_mutex_lock(&rank->net->lock);
    while (*at) at = &(*at)->next;
    *at = new;
    pthread_mutex_unlock(&rank->net->lock);
    return WF_OK;
}

static inline wf_status fake_send(void *self, int to, int tag, const void *data, size_t bytes,
                                  wfi_network_handle *handle_out) {
    fake_rank *rank = self;
    return fake_post(rank,
                     (fake_message){.from = rank->rank,
                                    .to = to,
                                    .tag = tag,
                                    .data = (char *)(uintptr_t)data,
                                    .bytes = bytes},
                     handle_out);
}

static inline wf_status fake_receive(void *self, int from, int tag, void *data, size_t bytes,
                                     wfi_network_handle *handle_out) {
    fake_rank *rank = self;
    return fake_post(rank,
                     (fake_message){.from = from,
                                    .to = rank->rank,
                                    .tag = tag,
                                    .is_receive = true,
                                    .data = data,
                                    .bytes = bytes},
                     handle_out);
}

#define FAKE_LATE 3

static inline uint64_t fake_hash(const fake_message *message) {
    uint64_t hash = 1;
    for (size_t i = 0; i < message->bytes; i++)
        hash = (hash ^ (unsigned char)message->data[i]) * UINT64_C(0x100000001B3);
    return hash;
}

/* The oldest message that is a receive's, or the other way round. */
static inline fake_message *fake_match(fake_net *net, const fake_message *mine) {
    fake_message *at = net->first;
    while (at && (at->is_receive == mine->is_receive || at->is_done || at->from != mine->from ||
                  at->to != mine->to || at->tag != mine->tag))
        at = at->next;
    return at;
}

static inline wf_status fake_test(void *self, wfi_network_handle *handle, bool *done_out) {
    fake_net *net = ((fake_rank *)self)->net;
    fake_message *mine = handle->pointer, *other, **at = &net->first;
    pthread_mutex_lock(&net->lock);
    bool is_silent = net->silent_from && mine->from == 1 && mine->tag >= net->silent_from;
    if (mine->is_receive && !mine->is_done && !is_silent &&
        (other = fake_match(net, mine)) != NULL) {
        if (other->bytes > mine->bytes) abort();
        memcpy(mine->data, other->data, other->bytes);
        mine->is_done = other->is_done = true;
        other->hash = fake_hash(other);
        net->n_carried++;
    }
    bool is_sent = !mine->is_receive && mine->is_done && !mine->is_cancelled;
    if (is_sent && fake_hash(mine) != mine->hash) abort();
    *done_out = mine->is_done && !(is_sent && mine->n_asked++ < FAKE_LATE);
    while (*done_out && *at != mine) at = &(*at)->next;
    if (*done_out) {
        *at = mine->next;
        free(mine);
    }
    pthread_mutex_unlock(&net->lock);
    return WF_OK;
}

static inline void fake_cancel(void *self, wfi_network_handle *handle) {
    fake_net *net = ((fake_rank *)self)->net;
    pthread_mutex_lock(&net->lock);
    ((fake_message *)handle->pointer)->is_done = true;
    ((fake_message *)handle->pointer)->is_cancelled = true;
    pthread_mutex_unlock(&net->lock);
}

static inline void fake_finish(void *self, bool is_clean) {}

static inline wfi_network fake_network(fake_rank *rank) {
    return (wfi_network){.name = "the fake",
                         .seen = -1,
                         .self = rank,
                         .start = fake_start,
                         .send = fake_send,
                         .receive = fake_receive,
                         .test = fake_test,
                         .cancel = fake_cancel,
                         .finish = fake_finish};
}
