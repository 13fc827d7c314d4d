/* The progress thread makes all calls of the network and sleeps between them. */
#include "comm/transport/parts.h"

#include "base/clock.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>

/* How long the thread sleeps between two polls: at first, while a message is expected, and while
 * none is. The thread shares its core with a compute thread. */
#define NAP_US         20
#define LONG_NAP_US    200
#define LONGEST_NAP_US 2000
/* How long the thread polls during a collective, whose phases are shorter than its naps. */
#define POLL_US 300
/* How long it polls after a collective: the next may follow. */
#define POLL_AFTER_US 50
/* After so many polls without work the nap doubles. */
#define N_LOOKS 8
/* How often a rank that waits for the network's start checks whether the others use another wire.
 */
#define START_LOOK_MS 50
/* How often epochs of streams are sent to the other ranks without a request. */
#define PULSE_MS 250
/* How long a rank of a failed job waits for the others to confirm the failure. */
#define LEAVE_MS 3000
/* How long it waits for cancelled messages to end. */
#define DRAIN_MS 200
/* A rank may leave as soon as its last messages are through. This rank may take note of that a few
 * polls later than of the leaving. */
#define LAST_LOOKS 16

void wfi_transport_break(wfi_transport *t, wf_status status) {
    wfi_failure_set(t->config.failure, status, wf_context_error(t->own));
    t->is_broken = true;
}

void wfi_transport_wake(wfi_transport *t) {
    if (t->sleeps) pthread_cond_signal(&t->changed);
}

/* ---- the thread ---- */

/* Takes the host's posts since the last poll: requests first, then the state. */
static bool take_posted(wfi_transport *t, bool *ends_out) {
    wfi_message m = {.kind = WFI_MESSAGE_STATE};
    bool worked = wfi_transport_take_posted(t);
    pthread_mutex_lock(&t->lock);
    /* Requests posted in between come first, in the next poll. */
    bool is_state_due = t->is_state_due && !t->posted;
    if (is_state_due) m.state = t->state, t->is_state_due = false;
    *ends_out = t->ends && !t->posted;
    pthread_mutex_unlock(&t->lock);
    if (is_state_due) wfi_transport_send_all(t, &m);
    return worked || is_state_due;
}

static bool is_awaited(const wfi_shared_epoch *e) {
    return __atomic_load_n(&e->n_sleeping, __ATOMIC_RELAXED) != 0;
}

/* Whether a thread waits for a counter, or a collective runs. Requests under way are separate. */
static bool is_expected(const wfi_transport *t) {
    if (__atomic_load_n(&t->n_polling, __ATOMIC_RELAXED)) return true;
    for (int r = 0; r < t->config.n_ranks; r++) {
        const wfi_control_rank *rank = &t->config.ranks[r];
        bool is_other = r != t->config.rank;
        if (is_awaited(&rank->barriers) || is_awaited(&rank->runs)) return true;
        for (int k = 0; k < t->n_parts * WFI_CONTROL_STREAMS && is_other; k++)
            if (is_awaited(&rank->epochs[k / WFI_CONTROL_STREAMS][k % WFI_CONTROL_STREAMS]))
                return true;
    }
    return false;
}

static struct timespec after_us(int64_t us) {
    int64_t ns = wfi_now_ns() + us * 1000;
    return (struct timespec){ns / 1000000000, ns % 1000000000};
}

static void nap(wfi_transport *t, int64_t us) {
    struct timespec until = after_us(us);
    pthread_mutex_lock(&t->lock);
    t->sleeps = true;
    if (!t->posted && !t->is_state_due && (!t->ends || t->is_leaving))
        pthread_cond_timedwait(&t->changed, &t->lock, &until);
    t->sleeps = false;
    pthread_mutex_unlock(&t->lock);
}

/* The results of one poll. */
typedef struct wfi_look {
    bool worked;    /* a message moved */
    bool is_active; /* requests are under way */
    bool ends;      /* the host ended the transport, and all earlier posts are taken */
} wfi_look;

static wfi_look look(wfi_transport *t, bool pulse) {
    wfi_look l = {0};
    pthread_mutex_lock(&t->queues_lock);
    l.worked = take_posted(t, &l.ends);
    l.worked |= wfi_transport_send_failure(t);
    l.worked |= wfi_transport_receive_messages(t);
    bool has_failed = wfi_failure_status(t->config.failure) != WF_OK;
    if (!has_failed && pulse) l.worked |= wfi_transport_send_epochs(t);
    l.worked |= wfi_transport_progress(t);
    l.is_active = t->active != NULL;
    pthread_mutex_unlock(&t->queues_lock);
    __atomic_add_fetch(&t->n_looks, 1, __ATOMIC_RELEASE);
    return l;
}

static bool all_have_left(const wfi_transport *t) {
    for (int r = 0; r < t->config.n_ranks; r++)
        if (r != t->config.rank && (!t->peers[r].has_left || t->peers[r].messages.first))
            return false;
    return true;
}

/* Sends the message that this rank leaves. Returns the deadline for the others' last messages. */
static int64_t begin_leaving(wfi_transport *t) {
    bool has_failed = wfi_failure_status(t->config.failure) != WF_OK;
    int64_t most_ms = t->config.timeout_ms;
    pthread_mutex_lock(&t->queues_lock);
    wfi_transport_send_failure(t);
    wfi_transport_send_all(t, &(wfi_message){.kind = WFI_MESSAGE_LEAVE});
    t->is_leaving = true;
    pthread_mutex_unlock(&t->queues_lock);
    return wfi_now_ms() + (has_failed ? wfi_min_i64(LEAVE_MS, most_ms) : most_ms);
}

static void work(wfi_transport *t) {
    int64_t next_pulse_ms = wfi_now_ms() + PULSE_MS, end_ms = 0, busy_ns = 0;
    for (int64_t n_vain = 0, us = NAP_US;;) {
        bool pulse = wfi_now_ms() >= next_pulse_ms;
        if (pulse) next_pulse_ms = wfi_now_ms() + PULSE_MS;
        wfi_look l = look(t, pulse);
        if (l.ends && !end_ms) end_ms = begin_leaving(t);
        if (l.ends && (all_have_left(t) || t->is_broken || wfi_now_ms() > end_ms)) return;
        bool polls = __atomic_load_n(&t->n_polling, __ATOMIC_RELAXED) != 0;
        if (l.worked && polls) busy_ns = wfi_now_ns();
        if (l.worked) {
            n_vain = 0, us = NAP_US;
            continue;
        }
        if (wfi_now_ns() - busy_ns < (polls ? POLL_US : POLL_AFTER_US) * 1000) {
            sched_yield();
            continue;
        }
        bool expects = l.ends || l.is_active || is_expected(t);
        int64_t most_us = expects ? LONG_NAP_US : LONGEST_NAP_US;
        if (++n_vain % N_LOOKS == 0) us *= 2;
        us = wfi_min_i64(us, most_us);
        nap(t, us);
    }
}

/* Cancels the messages that no rank waits for any more. */
static bool drain(wfi_transport *t) {
    int64_t end_ms = wfi_now_ms() + DRAIN_MS;
    for (bool first = true;; first = false) {
        bool all = wfi_transport_drain(t, first);
        all &= wfi_transport_drain_receives(t, first);
        if (all || t->is_broken || wfi_now_ms() > end_ms) return all;
        nap(t, NAP_US);
    }
}

static void *run(void *argument) {
    wfi_transport *t = argument;
    wfi_network *network = &t->config.network;
    prctl(PR_SET_TIMERSLACK, 1000UL, 0, 0, 0); /* naps are short */
    int rank = -1, n_ranks = 0;
    wf_status status = network->start(network->self, t->own, &rank, &n_ranks);
    if (status == WF_OK && (rank != t->config.rank || n_ranks != t->config.n_ranks))
        status = wfi_fail(t->own, WF_INVALID_ARG,
                          "%s gives this process rank %d of %d, but it was started as %d of %d; "
                          "start the ranks with that library's own mpirun",
                          network->name, rank, n_ranks, t->config.rank, t->config.n_ranks);
    pthread_mutex_lock(&t->lock);
    snprintf(t->start_sentence, sizeof t->start_sentence, "%s",
             status == WF_OK ? "" : wf_context_error(t->own));
    t->start_status = status;
    t->is_started = true;
    bool is_given_up = t->is_given_up;
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->lock);
    bool all_left = false;
    t->is_clean = true;
    if (status == WF_OK && !is_given_up) {
        work(t);
        all_left = all_have_left(t);
        t->is_clean = drain(t);
    }
    network->finish(network->self, t->is_clean && all_left);
    return NULL;
}

/* ---- life ---- */

static void destroy_streams(wfi_transport *t) {
    for (int s = 0; s < WFI_TRANSPORT_STREAMS; s++) {
        wfi_stream_destroy(t->arrivals.streams[s]);
        wfi_stream_destroy(t->departures.streams[s]);
    }
}

static void release(wfi_transport *t) {
    wf_context *own = t->own;
    wfi_transport_free_requests(t);
    wfi_free(own, t->peers);
    pthread_mutex_destroy(&t->queues_lock);
    pthread_cond_destroy(&t->changed);
    pthread_mutex_destroy(&t->lock);
    wfi_free(own, t);
    wf_context_destroy(own);
}

/* For error messages: the rank that has not sent the awaited message. */
static int awaited_sender(const void *self, int stream) {
    const wfi_transport *t = self;
    return __atomic_load_n(&t->receives[stream].awaited, __ATOMIC_RELAXED);
}

/* The rank that has not taken a message. Departures are counted in the order of puts, so it is the
 * oldest. */
static int awaited_reader(const void *self, int stream) {
    const wfi_transport *t = self;
    uint64_t oldest = UINT64_MAX;
    int reader = -1;
    for (int rank = 0; rank < t->config.n_ranks; rank++) {
        uint64_t n = __atomic_load_n(&t->peers[rank].puts[stream].oldest, __ATOMIC_RELAXED);
        if (!n || n >= oldest) continue;
        oldest = n;
        reader = rank;
    }
    return reader;
}

static uint64_t n_looks(const wfi_transport *t) {
    return __atomic_load_n(&t->n_looks, __ATOMIC_ACQUIRE);
}

/* The caller reads its counter again afterwards. */
static bool is_lost(const void *self, int rank) {
    const wfi_transport *t = self;
    const struct timespec time = {0, NAP_US * 1000};
    if (!t->config.is_lost || !t->config.is_lost(t->config.job, rank)) return false;
    int64_t end_ms = wfi_now_ms() + t->config.timeout_ms;
    uint64_t last = n_looks(t) + LAST_LOOKS;
    while (n_looks(t) < last && wfi_now_ms() < end_ms) nanosleep(&time, NULL);
    return true;
}

static void describe_lost(const void *self, int rank, char text_out[WFI_REMOTE_LOST]) {
    (void)self;
    snprintf(text_out, WFI_REMOTE_LOST, "rank %d has left the job", rank);
}

static wf_status create_count(wfi_transport *t, wfi_transport_count *count, const char *direction,
                              int (*awaited_rank)(const void *, int)) {
    count->remote = (wfi_remote){.owner = {.ctx = t->ctx,
                                           .rank = t->config.rank,
                                           .timeout_ms = t->config.timeout_ms,
                                           .failure = t->config.failure},
                                 .counters = count->done,
                                 .is_lost = is_lost,
                                 .describe_lost = describe_lost,
                                 .awaited_rank = awaited_rank,
                                 .direction = direction,
                                 .self = t};
    for (int s = 0; s < WFI_TRANSPORT_STREAMS; s++)
        WF_TRY(wfi_remote_stream_create(&count->remote, "messages", s, &count->streams[s]));
    return WF_OK;
}

/* The network may report a failure only after the others have joined. */
static wf_status wait_for_start(wfi_transport *t) {
    const wfi_network *network = &t->config.network;
    int64_t end_ms = wfi_now_ms() + t->config.timeout_ms;
    int refused_by = -1;
    pthread_mutex_lock(&t->lock);
    while (!t->is_started && refused_by < 0 && wfi_now_ms() < end_ms) {
        struct timespec until = after_us(START_LOOK_MS * 1000);
        (void)pthread_cond_timedwait(&t->changed, &t->lock, &until);
        if (network->refused_by) refused_by = network->refused_by(network->seen);
    }
    bool is_started = t->is_started;
    wf_status status = t->is_started ? t->start_status : WF_TIMEOUT;
    pthread_mutex_unlock(&t->lock);
    if (status == WF_OK) return WF_OK;
    if (is_started) return wfi_fail(t->ctx, status, "%s", t->start_sentence);
    if (refused_by >= 0)
        return wfi_fail(t->ctx, WF_REMOTE,
                        "rank %d was started with the wire mpi, rank %d with shared memory: all "
                        "ranks need the same",
                        t->config.rank, refused_by);
    return wfi_fail(t->ctx, WF_TIMEOUT,
                    "rank %d waited %lld ms for %s to start: not all of the %d ranks have joined",
                    t->config.rank, (long long)t->config.timeout_ms, t->config.network.name,
                    t->config.n_ranks);
}

static void init_lock(wfi_transport *t) {
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&t->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    pthread_mutex_init(&t->lock, NULL);
    pthread_mutex_init(&t->queues_lock, NULL);
}

static void init_queues(wfi_transport *t) {
    for (int s = 0; s < WFI_TRANSPORT_STREAMS; s++) {
        wfi_queue_init(&t->receives[s], &t->arrivals.done[s]);
        t->receives[s].stops_at_failure = true;
    }
    for (int r = 0; r < t->config.n_ranks; r++) {
        wfi_peer *p = &t->peers[r];
        wfi_queue_init(&p->messages, NULL);
        for (int s = 0; s < WFI_TRANSPORT_STREAMS; s++) {
            wfi_queue_init(&p->puts[s], NULL);
            p->puts[s].stops_at_failure = true;
            p->puts[s].departs = s;
        }
        for (int k = 0; k < WFI_CONTROL_TRAINERS * WFI_CONTROL_STREAMS; k++) {
            wfi_queue *q = &p->parts[k / WFI_CONTROL_STREAMS].notify[k % WFI_CONTROL_STREAMS];
            wfi_queue_init(q, NULL);
            q->stops_at_failure = true;
        }
    }
}

static wf_status fill(wfi_transport *t) {
    t->peers = wfi_alloc(t->own, (size_t)t->config.n_ranks, sizeof *t->peers, "a transport");
    if (!t->peers) return wfi_no_memory(t->ctx, sizeof *t->peers, "a transport");
    init_queues(t);
    WF_TRY(create_count(t, &t->arrivals, "of", awaited_sender));
    WF_TRY(create_count(t, &t->departures, "to", awaited_reader));
    int error = pthread_create(&t->thread, NULL, run, t);
    if (!error) return WF_OK;
    return wfi_fail(t->ctx, WF_DEVICE, "the progress thread could not be started: %s",
                    strerror(error));
}

static void end(wfi_transport *t) {
    pthread_mutex_lock(&t->lock);
    t->ends = true;
    wfi_transport_wake(t);
    pthread_mutex_unlock(&t->lock);
}

static wfi_transport *make(wf_context *ctx, const wfi_transport_config *config) {
    wf_context *own;
    if (wf_context_create(NULL, &own) != WF_OK) return NULL;
    wfi_transport *t = wfi_alloc(own, 1, sizeof *t, "a transport");
    if (!t) {
        wf_context_destroy(own);
        return NULL;
    }
    t->ctx = ctx;
    t->own = own;
    t->config = *config;
    init_lock(t);
    return t;
}

/* The thread is inside a call of the library that cannot be interrupted. The thread is detached and
 * keeps its memory; it ends when the call returns, if ever. */
static bool give_up(wfi_transport *t) {
    pthread_mutex_lock(&t->lock);
    t->is_given_up = !t->is_started;
    pthread_mutex_unlock(&t->lock);
    if (t->is_given_up) pthread_detach(t->thread);
    return t->is_given_up;
}

wf_status wfi_transport_create(wf_context *ctx, const wfi_transport_config *config,
                               wfi_transport **transport_out) {
    wfi_transport *t = make(ctx, config);
    wf_status status = t ? fill(t) : wfi_no_memory(ctx, sizeof *t, "a transport");
    if (status != WF_OK) {
        config->network.finish(config->network.self, false);
        if (t) destroy_streams(t);
        if (t) release(t);
        return status;
    }
    status = wait_for_start(t);
    if (status == WF_OK) {
        *transport_out = t;
        return WF_OK;
    }
    bool is_given_up = give_up(t);
    destroy_streams(t);
    if (is_given_up) return status;
    end(t);
    pthread_join(t->thread, NULL);
    release(t);
    return status;
}

bool wfi_transport_destroy(wfi_transport *t) {
    end(t);
    pthread_join(t->thread, NULL);
    bool is_clean = t->is_clean;
    destroy_streams(t);
    if (is_clean) release(t);
    return is_clean;
}
