#include "comm/courier/parts.h"

#include "base/clock.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>

/* How long the thread sleeps between two looks: at first, while something is expected, and while
 * nothing is. It shares its core with the one that computes. */
#define NAP_US         20
#define LONG_NAP_US    200
#define LONGEST_NAP_US 2000
/* How long it does not sleep in the middle of a collective: naps are longer than its phases. */
#define HURRY_US 300
/* And after one: the next may follow. */
#define LINGER_US 50
/* After so many looks in vain it sleeps twice as long. */
#define N_LOOKS 8
/* How often one that waits for the mail to start looks whether it waits in the wrong place. */
#define START_LOOK_MS 50
/* How often the others are told how far our streams are, if nobody has asked. */
#define PULSE_MS 250
/* How long a failed job waits for the others to say that they know. */
#define FAREWELL_MS 3000
/* And how long for what is under way, which nobody wants any more, to end. */
#define CLEAR_MS 200

void wfi_courier_break(wfi_courier *c, wf_status status) {
    wfi_failure_set(c->config.failure, status, wf_context_error(c->own));
    c->is_broken = true;
}

/* ---- the thread ---- */

static void carry_out(wfi_courier *c, wfi_order *order) {
    switch (order->kind) {
    case WFI_ORDER_SEND:
        wfi_order_put(&c->peers[order->peer].parcels[order->stream], order);
        break;
    case WFI_ORDER_RECEIVE:
        wfi_order_put(&c->arrivals[order->stream], order);
        break;
    case WFI_ORDER_PROMISE:
        wfi_courier_add_promise(c, order);
        break;
    case WFI_ORDER_RESET:
        wfi_courier_forget_streams(c, order->trainer);
        wfi_courier_reuse(c, order);
        break;
    case WFI_ORDER_WORD:
        (void)wfi_courier_tell_sent(c, order->peer, order->word);
        wfi_courier_reuse(c, order);
        break;
    }
}

/* What the host has said since the last look; orders before the state. */
static bool take_orders(wfi_courier *c, bool *ends_out) {
    wfi_courier_note note = {.kind = WFI_NOTE_STATE};
    pthread_mutex_lock(&c->lock);
    wfi_order_list orders = c->orders;
    c->orders = (wfi_order_list){NULL, NULL};
    bool is_state_due = c->is_state_due;
    note.state = c->state;
    c->is_state_due = false;
    *ends_out = c->ends;
    pthread_mutex_unlock(&c->lock);
    bool worked = orders.first || is_state_due;
    for (wfi_order *order; (order = wfi_order_take(&orders)) != NULL;) carry_out(c, order);
    if (is_state_due) wfi_courier_tell_all(c, &note);
    return worked;
}

static bool is_awaited(const wfi_shared_epoch *e) {
    return __atomic_load_n(&e->n_sleeping, __ATOMIC_RELAXED) != 0;
}

/* Somebody waits for the rank's streams of that trainer, or it for ours. */
static bool expects_part(const wfi_courier *c, int rank, int trainer) {
    const wfi_control_part *part = &c->config.ranks[rank].parts[trainer];
    for (int s = 0; s < WFI_CONTROL_STREAMS; s++)
        if (c->peers[rank].parts[trainer].promises[s].first ||
            (rank != c->config.rank && is_awaited(&part->epochs[s])))
            return true;
    return false;
}

/* Somebody is waiting, or will be. */
static bool expects(const wfi_courier *c) {
    if (wfi_courier_has_parcels(c) || __atomic_load_n(&c->n_hurried, __ATOMIC_RELAXED)) return true;
    for (int r = 0; r < c->config.n_ranks; r++) {
        const wfi_control_rank *rank = &c->config.ranks[r];
        if (is_awaited(&rank->meetings) || is_awaited(&rank->runs)) return true;
        for (int t = 0; t < c->n_parts; t++)
            if (expects_part(c, r, t)) return true;
    }
    return false;
}

static struct timespec after_us(int64_t us) {
    int64_t ns = wfi_now_ns() + us * 1000;
    return (struct timespec){ns / 1000000000, ns % 1000000000};
}

static void nap(wfi_courier *c, int64_t us) {
    struct timespec until = after_us(us);
    pthread_mutex_lock(&c->lock);
    c->sleeps = true;
    if (!c->orders.first && !c->posted && !c->is_state_due && (!c->ends || c->is_leaving))
        pthread_cond_timedwait(&c->changed, &c->lock, &until);
    c->sleeps = false;
    pthread_mutex_unlock(&c->lock);
}

/* Looks once. */
static bool look(wfi_courier *c, bool pulse, bool *ends_out) {
    bool worked = take_orders(c, ends_out);
    worked |= wfi_courier_tell_failure(c);
    worked |= wfi_courier_hear(c);
    bool has_failed = wfi_failure_status(c->config.failure) != WF_OK;
    if (!has_failed) {
        worked |= wfi_courier_keep_promises(c, pulse);
        worked |= wfi_courier_move_parcels(c);
        wfi_courier_see_off(c);
    }
    worked |= wfi_courier_move_letters(c);
    return wfi_courier_finish_notes(c) || worked;
}

static bool all_have_left(const wfi_courier *c) {
    for (int r = 0; r < c->config.n_ranks; r++)
        if (r != c->config.rank && (!c->peers[r].has_left || c->peers[r].notes_first)) return false;
    return true;
}

static void work(wfi_courier *c) {
    int64_t next_pulse_ms = wfi_now_ms() + PULSE_MS, end_ms = 0, busy_ns = 0;
    for (int64_t n_vain = 0, us = NAP_US;;) {
        bool ends, pulse = wfi_now_ms() >= next_pulse_ms;
        if (pulse) next_pulse_ms = wfi_now_ms() + PULSE_MS;
        bool worked = look(c, pulse, &ends);
        if (ends && !end_ms) {
            bool has_failed = wfi_failure_status(c->config.failure) != WF_OK;
            end_ms = wfi_now_ms() + (has_failed ? wfi_min_i64(FAREWELL_MS, c->config.timeout_ms)
                                                : c->config.timeout_ms);
            wfi_courier_tell_failure(c);
            wfi_courier_tell_all(c, &(wfi_courier_note){.kind = WFI_NOTE_BYE});
            c->is_leaving = true;
        }
        if (ends && (all_have_left(c) || c->is_broken || wfi_now_ms() > end_ms)) return;
        bool hurries = __atomic_load_n(&c->n_hurried, __ATOMIC_RELAXED) != 0;
        if (worked && hurries) busy_ns = wfi_now_ns();
        if (worked) {
            n_vain = 0, us = NAP_US;
            continue;
        }
        if (wfi_now_ns() - busy_ns < (hurries ? HURRY_US : LINGER_US) * 1000) {
            sched_yield();
            continue;
        }
        int64_t most_us = ends || expects(c) ? LONG_NAP_US : LONGEST_NAP_US;
        if (++n_vain % N_LOOKS == 0) us *= 2;
        us = wfi_min_i64(us, most_us);
        nap(c, us);
    }
}

/* Ends what nobody waits for any more. */
static bool clear_up(wfi_courier *c) {
    int64_t end_ms = wfi_now_ms() + CLEAR_MS;
    for (bool first = true;; first = false) {
        bool all = wfi_courier_drop_parcels(c, first);
        all &= wfi_courier_drop_letters(c, first);
        all &= wfi_courier_drop_notes(c, first);
        if (all || c->is_broken || wfi_now_ms() > end_ms) return all;
        nap(c, NAP_US);
    }
}

static void *run_courier(void *argument) {
    wfi_courier *c = argument;
    wfi_mail *mail = &c->config.mail;
    prctl(PR_SET_TIMERSLACK, 1000UL, 0, 0, 0); /* naps are short */
    int rank = -1, n_ranks = 0;
    wf_status status = mail->start(mail->self, c->own, &rank, &n_ranks);
    if (status == WF_OK && (rank != c->config.rank || n_ranks != c->config.n_ranks))
        status = wfi_fail(c->own, WF_INVALID_ARG,
                          "%s says that this is rank %d of %d, but it was started as %d of %d; "
                          "start the ranks by that library's own mpirun",
                          mail->name, rank, n_ranks, c->config.rank, c->config.n_ranks);
    pthread_mutex_lock(&c->lock);
    snprintf(c->start_sentence, sizeof c->start_sentence, "%s",
             status == WF_OK ? "" : wf_context_error(c->own));
    c->start_status = status;
    c->is_started = true;
    bool is_given_up = c->is_given_up;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    bool together = false;
    c->is_clean = true;
    if (status == WF_OK && !is_given_up) {
        work(c);
        together = all_have_left(c);
        c->is_clean = clear_up(c);
    }
    mail->finish(mail->self, c->is_clean && together);
    return NULL;
}

/* ---- life ---- */

static void destroy_device(wfi_courier *c) {
    for (int s = 0; s < WFI_COURIER_STREAMS; s++) wfi_stream_destroy(c->streams[s]);
    wfi_device_destroy(c->device);
}

static void release(wfi_courier *c) {
    wf_context *own = c->own;
    for (int s = 0; s < WFI_COURIER_STREAMS; s++) wfi_courier_free_orders(c, &c->arrivals[s]);
    for (int r = 0; r < c->config.n_ranks && c->peers; r++) {
        wfi_peer *p = &c->peers[r];
        for (int s = 0; s < WFI_COURIER_STREAMS; s++) wfi_courier_free_orders(c, &p->parcels[s]);
        for (int k = 0; k < WFI_CONTROL_TRAINERS * WFI_CONTROL_STREAMS; k++)
            wfi_courier_free_orders(
                c, &p->parts[k / WFI_CONTROL_STREAMS].promises[k % WFI_CONTROL_STREAMS]);
        while (p->notes_first) {
            wfi_courier_sent *next = p->notes_first->next;
            wfi_free(own, p->notes_first);
            p->notes_first = next;
        }
    }
    for (const wfi_order *order = c->orders.first; order; order = order->next)
        wfi_free(own, order->word);
    wfi_courier_free_orders(c, &c->orders);
    wfi_courier_free_orders(c, &c->unused);
    wfi_free(own, c->peers);
    wfi_courier_free_kept(c);
    pthread_mutex_destroy(&c->groups_lock);
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->lock);
    wfi_free(own, c);
    wf_context_destroy(own);
}

/* For sentences: who has not sent what is awaited. */
static int awaited_rank(const void *self, int stream) {
    const wfi_courier *c = self;
    return __atomic_load_n(&c->awaited_from[stream], __ATOMIC_RELAXED);
}

static wf_status create_device(wfi_courier *c) {
    wfi_device_config config = {.kind = &wfi_device_arrivals,
                                .index = c->config.rank,
                                .timeout_ms = c->config.timeout_ms,
                                .failure = c->config.failure,
                                .epochs = c->arrived,
                                .awaited_rank = awaited_rank,
                                .self = c};
    WF_TRY(wfi_device_create(c->ctx, &config, &c->device));
    for (int s = 0; s < WFI_COURIER_STREAMS; s++)
        WF_TRY(wfi_stream_create(c->device, "arrivals", &c->streams[s]));
    return WF_OK;
}

/* The mail may have to wait for the others before it can say anything. */
static wf_status wait_for_start(wfi_courier *c) {
    int64_t end_ms = wfi_now_ms() + c->config.timeout_ms;
    int refused_by = -1;
    pthread_mutex_lock(&c->lock);
    while (!c->is_started && refused_by < 0 && wfi_now_ms() < end_ms) {
        struct timespec until = after_us(START_LOOK_MS * 1000);
        (void)pthread_cond_timedwait(&c->changed, &c->lock, &until);
        refused_by = wfi_rendezvous_refused_by(c->config.mail.seen);
    }
    bool is_started = c->is_started;
    wf_status status = c->is_started ? c->start_status : WF_TIMEOUT;
    pthread_mutex_unlock(&c->lock);
    if (status == WF_OK) return WF_OK;
    if (is_started) return wfi_fail(c->ctx, status, "%s", c->start_sentence);
    if (refused_by >= 0)
        return wfi_fail(c->ctx, WF_REMOTE,
                        "rank %d was started with the wire mpi, rank %d with shared memory: all "
                        "ranks need the same",
                        c->config.rank, refused_by);
    return wfi_fail(c->ctx, WF_TIMEOUT,
                    "rank %d waited %lld ms for %s to start: not all of the %d ranks have come",
                    c->config.rank, (long long)c->config.timeout_ms, c->config.mail.name,
                    c->config.n_ranks);
}

static void init_lock(wfi_courier *c) {
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&c->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    pthread_mutex_init(&c->lock, NULL);
    pthread_mutex_init(&c->groups_lock, NULL);
}

static wf_status fill(wfi_courier *c) {
    c->peers = wfi_alloc(c->own, (size_t)c->config.n_ranks, sizeof *c->peers, "a courier");
    if (!c->peers) return wfi_no_memory(c->ctx, sizeof *c->peers, "a courier");
    WF_TRY(create_device(c));
    int error = pthread_create(&c->thread, NULL, run_courier, c);
    if (!error) return WF_OK;
    return wfi_fail(c->ctx, WF_DEVICE, "the courier's thread could not be started: %s",
                    strerror(error));
}

static void end(wfi_courier *c) {
    pthread_mutex_lock(&c->lock);
    c->ends = true;
    wfi_courier_wake(c);
    pthread_mutex_unlock(&c->lock);
}

static wfi_courier *make(wf_context *ctx, const wfi_courier_config *config) {
    wf_context *own;
    if (wf_context_create(NULL, &own) != WF_OK) return NULL;
    wfi_courier *c = wfi_alloc(own, 1, sizeof *c, "a courier");
    if (!c) {
        wf_context_destroy(own);
        return NULL;
    }
    c->ctx = ctx;
    c->own = own;
    c->config = *config;
    init_lock(c);
    return c;
}

/* The thread is inside the library, which nobody can call back: it keeps what it uses, and goes
 * when it returns, if ever. */
static bool give_up(wfi_courier *c) {
    pthread_mutex_lock(&c->lock);
    c->is_given_up = !c->is_started;
    pthread_mutex_unlock(&c->lock);
    if (c->is_given_up) pthread_detach(c->thread);
    return c->is_given_up;
}

wf_status wfi_courier_create(wf_context *ctx, const wfi_courier_config *config,
                             wfi_courier **courier_out) {
    wfi_courier *c = make(ctx, config);
    wf_status status = c ? fill(c) : wfi_no_memory(ctx, sizeof *c, "a courier");
    if (status != WF_OK) {
        config->mail.finish(config->mail.self, false);
        if (c) destroy_device(c);
        if (c) release(c);
        return status;
    }
    status = wait_for_start(c);
    if (status == WF_OK) {
        *courier_out = c;
        return WF_OK;
    }
    bool is_given_up = give_up(c);
    destroy_device(c);
    if (is_given_up) return status;
    end(c);
    pthread_join(c->thread, NULL);
    release(c);
    return status;
}

bool wfi_courier_destroy(wfi_courier *c) {
    end(c);
    pthread_join(c->thread, NULL);
    bool is_clean = c->is_clean;
    destroy_device(c);
    if (is_clean) release(c);
    return is_clean;
}
