/* Mail between threads of one process, in place of MPI's. What is sent is read where it lies when
 * it is received, so whoever writes there too early is found, by the thread sanitizer at the
 * latest. */
#ifndef TESTS_FAKE_MAIL_H
#define TESTS_FAKE_MAIL_H

#include "comm/courier/mail.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef struct fake_letter {
    struct fake_letter *next;
    int from, to, tag;
    bool is_receive, is_done;
    char *data;
    size_t bytes;
} fake_letter;

typedef struct fake_net {
    pthread_mutex_t lock;
    fake_letter *first;
    int n_ranks;
    size_t n_carried;
    int silent_from; /* tag from which on what rank 1 sends never comes; 0: all comes */
} fake_net;

typedef struct fake_box {
    fake_net *net;
    int rank;
} fake_box;

static inline wf_status fake_start(void *self, wf_context *ctx, int *rank_out, int *n_ranks_out) {
    const fake_box *box = self;
    (void)ctx;
    *rank_out = box->rank;
    *n_ranks_out = box->net->n_ranks;
    return WF_OK;
}

static inline wf_status fake_post(fake_box *box, fake_letter letter, wfi_mail_ticket *ticket_out) {
    fake_letter *new = malloc(sizeof *new), **at = &box->net->first;
    *new = letter;
    ticket_out->pointer = new;
    pthread_mutex_lock(&box->net->lock);
    while (*at) at = &(*at)->next;
    *at = new;
    pthread_mutex_unlock(&box->net->lock);
    return WF_OK;
}

static inline wf_status fake_send(void *self, int to, int tag, const void *data, size_t bytes,
                                  wfi_mail_ticket *ticket_out) {
    fake_box *box = self;
    return fake_post(
        box, (fake_letter){NULL, box->rank, to, tag, false, false, (char *)(uintptr_t)data, bytes},
        ticket_out);
}

static inline wf_status fake_receive(void *self, int from, int tag, void *data, size_t bytes,
                                     wfi_mail_ticket *ticket_out) {
    fake_box *box = self;
    return fake_post(box, (fake_letter){NULL, from, box->rank, tag, true, false, data, bytes},
                     ticket_out);
}

/* The oldest letter that is a receive's, or the other way round. */
static inline fake_letter *fake_match(fake_net *net, const fake_letter *mine) {
    fake_letter *at = net->first;
    while (at && (at->is_receive == mine->is_receive || at->is_done || at->from != mine->from ||
                  at->to != mine->to || at->tag != mine->tag))
        at = at->next;
    return at;
}

static inline wf_status fake_test(void *self, wfi_mail_ticket *ticket, bool *done_out) {
    fake_net *net = ((fake_box *)self)->net;
    fake_letter *mine = ticket->pointer, *other, **at = &net->first;
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

static inline void fake_cancel(void *self, wfi_mail_ticket *ticket) {
    fake_net *net = ((fake_box *)self)->net;
    pthread_mutex_lock(&net->lock);
    ((fake_letter *)ticket->pointer)->is_done = true;
    pthread_mutex_unlock(&net->lock);
}

static inline void fake_finish(void *self, bool together) {
    (void)self, (void)together;
}

static inline wfi_mail fake_mail(fake_box *box) {
    return (wfi_mail){.name = "the fake",
                      .seen = -1,
                      .self = box,
                      .start = fake_start,
                      .send = fake_send,
                      .receive = fake_receive,
                      .test = fake_test,
                      .cancel = fake_cancel,
                      .finish = fake_finish};
}

#endif
