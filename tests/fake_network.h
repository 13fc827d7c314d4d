/* Messages between threads of one process, in place of MPI's. What is sent is read where it lies
 * when it is received, so whoever writes there too early is found, by the thread sanitizer at the
 * latest. */
#ifndef TESTS_FAKE_NETWORK_H
#define TESTS_FAKE_NETWORK_H

#include "comm/transport/network.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef struct fake_message {
    struct fake_message *next;
    int from, to, tag;
    bool is_receive, is_done;
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
    (void)ctx;
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
    return fake_post(
        rank,
        (fake_message){NULL, rank->rank, to, tag, false, false, (char *)(uintptr_t)data, bytes},
        handle_out);
}

static inline wf_status fake_receive(void *self, int from, int tag, void *data, size_t bytes,
                                     wfi_network_handle *handle_out) {
    fake_rank *rank = self;
    return fake_post(rank, (fake_message){NULL, from, rank->rank, tag, true, false, data, bytes},
                     handle_out);
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
        net->n_carried++;
    }
    *done_out = mine->is_done;
    while (mine->is_done && *at != mine) at = &(*at)->next;
    if (mine->is_done) {
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
    pthread_mutex_unlock(&net->lock);
}

static inline void fake_finish(void *self, bool is_clean) {
    (void)self, (void)is_clean;
}

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

#endif
