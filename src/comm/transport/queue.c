/* Requests: posting, beginning, completion and cancellation. */
#include "comm/transport/parts.h"

#include "base/clock.h"

#include <stdlib.h>
#include <time.h>

/* How many receives of a queue are posted ahead: more make the network search long lists. */
#define N_AHEAD 16
/* How long a failed collective waits for its requests to end, and how often it polls. */
#define CANCEL_MS 200
#define LOOK_US   200

void wfi_queue_init(wfi_queue *queue, wfi_shared_epoch *done) {
    *queue = (wfi_queue){.done = done, .awaited = -1, .departs = -1};
}

/* ---- posting ---- */

static void append(wfi_request **first, wfi_request **last, wfi_request *r) {
    r->next = NULL;
    if (*first)
        (*last)->next = r;
    else
        *first = r;
    *last = r;
}

/* Called with `lock`. */
static wfi_request *copy(wfi_transport *t, wfi_queue *queue, const wfi_request *what) {
    wfi_request *r = t->unused;
    if (r)
        t->unused = r->next;
    else
        r = wfi_alloc(t->own, 1, sizeof *r, "a request");
    if (!r) return NULL;
    *r = *what;
    r->queue = queue;
    return r;
}

static wf_status post(wfi_transport *t, wfi_queue *queue, const wfi_request *what) {
    pthread_mutex_lock(&t->lock);
    wfi_request *r = copy(t, queue, what);
    if (r) {
        append(&t->posted, &t->last_posted, r);
        if (queue) queue->n_posted++;
        wfi_transport_wake(t);
    }
    pthread_mutex_unlock(&t->lock);
    return r ? WF_OK : wfi_no_memory(t->ctx, sizeof *r, "a request");
}

wf_status wfi_transport_post(wfi_transport *t, wfi_queue *queue, const wfi_request *request) {
    wfi_request piece = *request;
    for (size_t at = 0; at < request->bytes; at += piece.bytes) {
        size_t left = request->bytes - at;
        piece.data = request->data + at;
        piece.bytes = left < WFI_NETWORK_BYTES ? left : WFI_NETWORK_BYTES;
        WF_TRY(post(t, queue, &piece));
    }
    return request->bytes ? WF_OK : post(t, queue, request);
}

static void recycle(wfi_transport *t, wfi_request *r) {
    if (r->owns_data) wfi_free(t->own, r->data);
    r->owns_data = false;
    pthread_mutex_lock(&t->lock);
    r->next = t->unused;
    t->unused = r;
    pthread_mutex_unlock(&t->lock);
}

/* Notifications are sorted by epoch; mostly they are posted in this order. */
static void insert(wfi_queue *q, wfi_request *r) {
    bool is_last = r->kind != WFI_REQUEST_NOTIFY || !q->first || q->last->epoch <= r->epoch;
    if (is_last) {
        append(&q->first, &q->last, r);
        return;
    }
    wfi_request **at = &q->first;
    while ((*at)->epoch < r->epoch) at = &(*at)->next;
    r->next = *at;
    *at = r;
}

/* For error messages of other threads. */
static void show_first(wfi_queue *q) {
    __atomic_store_n(&q->awaited, q->first ? q->first->peer : -1, __ATOMIC_RELAXED);
    __atomic_store_n(&q->oldest, q->first ? q->first->number : 0, __ATOMIC_RELAXED);
}

static void add(wfi_transport *t, wfi_request *r) {
    wfi_queue *q = r->queue, **at = &t->active;
    if (!q->first) {
        while (*at) at = &(*at)->next;
        q->next = NULL;
        *at = q;
    }
    insert(q, r);
    show_first(q);
}

bool wfi_queue_add(wfi_transport *t, wfi_queue *queue, const wfi_request *request) {
    pthread_mutex_lock(&t->lock);
    wfi_request *r = copy(t, queue, request);
    pthread_mutex_unlock(&t->lock);
    if (r) add(t, r);
    return r != NULL;
}

/* A rank that has sent its last message sends no other. */
static bool is_mute(const wfi_transport *t, const wfi_request *r) {
    return r->owns_data && (t->is_broken || t->is_leaving);
}

bool wfi_transport_take_posted(wfi_transport *t) {
    pthread_mutex_lock(&t->lock);
    wfi_request *posted = t->posted;
    t->posted = NULL;
    pthread_mutex_unlock(&t->lock);
    for (wfi_request *r = posted, *next; r; r = next) {
        next = r->next;
        if (r->kind == WFI_REQUEST_RESET) wfi_transport_reset_streams(t, r->trainer);
        if (r->kind == WFI_REQUEST_RESET || is_mute(t, r))
            recycle(t, r);
        else
            add(t, r);
    }
    return posted != NULL;
}

/* ---- beginning and ending ---- */

static bool is_ready(const wfi_transport *t, const wfi_request *r) {
    const wfi_shared_epoch *own = t->config.ranks[t->config.rank].epochs[r->trainer];
    return r->epoch <= __atomic_load_n(&own[r->stream].epoch, __ATOMIC_ACQUIRE);
}

static wf_status begin(wfi_transport *t, wfi_request *r) {
    const wfi_network *network = &t->config.network;
    switch (r->kind) {
    case WFI_REQUEST_SEND:
        return network->send(network->self, r->peer, r->tag, r->data, r->bytes, &r->handle);
    case WFI_REQUEST_RECEIVE:
        return network->receive(network->self, r->peer, r->tag, r->data, r->bytes, &r->handle);
    case WFI_REQUEST_OPEN_ENGINE:
        return network->open_engine(network->self, r->tag, &r->handle);
    case WFI_REQUEST_SUM:
        return network->sum(network->self, r->tag, &r->sum, &r->handle);
    case WFI_REQUEST_NOTIFY:
        wfi_transport_send_epoch(t, r);
        return WF_OK;
    case WFI_REQUEST_RESET:
        break;
    }
    return WF_BUG;
}

/* Whether the request has completed or was cancelled before it began. */
static bool has_ended(wfi_transport *t, wfi_request *r) {
    bool done = r->kind == WFI_REQUEST_NOTIFY;
    if (!r->is_under_way) return r->is_cancelled;
    if (done || t->is_broken) return done;
    wf_status status = t->config.network.test(t->config.network.self, &r->handle, &done);
    if (status != WF_OK) wfi_transport_break(t, status);
    return done;
}

static void cancel(wfi_transport *t, wfi_request *r) {
    bool can_end = r->is_under_way && r->peer >= 0 && r->kind != WFI_REQUEST_NOTIFY;
    if (can_end && !t->is_broken) t->config.network.cancel(t->config.network.self, &r->handle);
    r->is_cancelled = true;
}

/* Only receives are cancelled; sends usually complete. */
static bool begin_requests(wfi_transport *t, wfi_queue *q) {
    bool worked = false, is_cancelled = __atomic_load_n(&q->is_cancelled, __ATOMIC_ACQUIRE);
    int n = 0;
    for (wfi_request *r = q->first; r; r = r->next, n++) {
        if (is_cancelled && !r->is_cancelled) {
            bool is_sent = r->is_under_way && r->kind != WFI_REQUEST_RECEIVE;
            if (!is_sent) cancel(t, r);
            r->is_cancelled = true;
        }
        if (r->is_under_way || r->is_cancelled || t->is_broken) continue;
        /* The epochs that the tasks of a stream need only grow, so later requests wait as well. */
        if ((r->kind == WFI_REQUEST_RECEIVE && n >= N_AHEAD) || !is_ready(t, r)) break;
        wf_status status = begin(t, r);
        r->is_under_way = status == WF_OK;
        worked = true;
        if (status != WF_OK) wfi_transport_break(t, status);
    }
    return worked;
}

/* Puts to one rank complete in order, puts to different ranks do not. The count stops before the
 * oldest incomplete put. */
static void count_departures(wfi_transport *t, int stream) {
    uint64_t n = t->last_departed[stream];
    for (int r = 0; r < t->config.n_ranks; r++) {
        const wfi_request *first = t->peers[r].puts[stream].first;
        if (first && first->number <= n) n = first->number - 1;
    }
    wfi_shared_epoch *done = &t->departures.done[stream];
    __atomic_store_n(&done->epoch, n, __ATOMIC_SEQ_CST);
    wfi_shared_epoch_wake(done);
}

static bool end_requests(wfi_transport *t, wfi_queue *q) {
    bool worked = false;
    while (q->first && has_ended(t, q->first)) {
        wfi_request *r = q->first;
        q->first = r->next;
        show_first(q);
        if (q->departs >= 0 && r->number > t->last_departed[q->departs])
            t->last_departed[q->departs] = r->number;
        recycle(t, r);
        __atomic_add_fetch(&q->n_done, 1, __ATOMIC_RELEASE);
        if (q->done) __atomic_add_fetch(&q->done->epoch, 1, __ATOMIC_SEQ_CST);
        worked = true;
    }
    if (worked && q->done) wfi_shared_epoch_wake(q->done);
    if (worked && q->departs >= 0) count_departures(t, q->departs);
    return worked;
}

bool wfi_transport_progress(wfi_transport *t) {
    bool worked = false, has_failed = wfi_failure_status(t->config.failure) != WF_OK;
    for (wfi_queue **at = &t->active, *q; (q = *at) != NULL;) {
        if (!has_failed || !q->stops_at_failure) {
            worked |= begin_requests(t, q);
            worked |= end_requests(t, q);
        }
        if (q->first)
            at = &q->next;
        else
            *at = q->next;
    }
    return worked;
}

/* ---- cancellation ---- */

static void deactivate(wfi_transport *t, const wfi_queue *q) {
    wfi_queue **at = &t->active;
    while (*at && *at != q) at = &(*at)->next;
    if (*at) *at = q->next;
}

void wfi_queue_clear(wfi_transport *t, wfi_queue *q) {
    if (!q->first) return;
    for (wfi_request *r = q->first, *next; r; r = next) {
        next = r->next;
        recycle(t, r);
    }
    q->first = NULL;
    deactivate(t, q);
}

/* Moves the requests that are still under way from the queue to the list of lost requests. */
static void lose(wfi_transport *t, wfi_queue *q) {
    pthread_mutex_lock(&t->queues_lock);
    (void)wfi_transport_take_posted(t);
    for (wfi_request *r = q->first, *next; r; r = next) {
        next = r->next;
        if (r->is_under_way) {
            r->next = t->lost;
            t->lost = r;
        } else {
            recycle(t, r);
        }
    }
    if (q->first) deactivate(t, q);
    q->first = NULL;
    q->n_posted = q->n_done;
    pthread_mutex_unlock(&t->queues_lock);
}

static bool is_done(const wfi_queue *q) {
    return __atomic_load_n(&q->n_done, __ATOMIC_ACQUIRE) == q->n_posted;
}

bool wfi_transport_cancel(wfi_transport *t, wfi_transport_group *group) {
    const struct timespec time = {0, LOOK_US * 1000};
    int64_t end_ms = wfi_now_ms() + CANCEL_MS;
    wfi_queue *queues = group->queues;
    for (int i = 0; i < WFI_N_QUEUES; i++)
        __atomic_store_n(&queues[i].is_cancelled, true, __ATOMIC_RELEASE);
    while (!is_done(&queues[WFI_QUEUE_RECEIVED]) || !is_done(&queues[WFI_QUEUE_SENT])) {
        if (wfi_now_ms() > end_ms) {
            for (int i = 0; i < WFI_N_QUEUES; i++) lose(t, &queues[i]);
            return false;
        }
        nanosleep(&time, NULL);
    }
    return true;
}

/* Returns the requests that are still under way. */
static wfi_request *drain(wfi_transport *t, wfi_request *first, bool cancels) {
    wfi_request *left = NULL;
    for (wfi_request *r = first, *next; r; r = next) {
        next = r->next;
        if (cancels) cancel(t, r);
        if (has_ended(t, r)) {
            recycle(t, r);
        } else {
            r->next = left;
            left = r;
        }
    }
    return left;
}

bool wfi_transport_drain(wfi_transport *t, bool cancels) {
    bool all = true;
    pthread_mutex_lock(&t->queues_lock);
    for (wfi_queue *q = t->active; q; q = q->next) {
        q->first = drain(t, q->first, cancels);
        all &= !q->first;
    }
    t->lost = drain(t, t->lost, cancels);
    all &= !t->lost;
    pthread_mutex_unlock(&t->queues_lock);
    return all;
}

static void free_list(wfi_transport *t, wfi_request *first) {
    for (wfi_request *r = first, *next; r; r = next) {
        next = r->next;
        if (r->owns_data) wfi_free(t->own, r->data);
        wfi_free(t->own, r);
    }
}

void wfi_transport_free_requests(wfi_transport *t) {
    for (int i = 0; i < 2; i++) free_list(t, i ? t->unused : t->posted);
    for (int i = 0; i < WFI_TRANSPORT_SLOTS; i++) free(t->slots.bounce[i].data);
}
