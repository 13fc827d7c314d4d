/* Streams with a thread each, which runs their tasks.
 *
 * If tasks queue work on a device, the thread waits for it after each task
 * (wfi_device_class.finish_task). If the device itself orders streams, the thread continues once an
 * event is recorded after the task (record). The task is then in flight until the thread sees it
 * done; the thread polls the oldest task in flight whenever it is idle. A stream of the same kind
 * waits only until the task is in flight, and its device waits for the rest (follow). All other
 * waiters wait until the task is done. A thread with tasks in flight polls them during all of its
 * waits, as others may wait for those tasks.
 */
#include "device/thread_stream.h"

#include "base/clock.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <time.h>
#include <weft/info.h>

/* The capacity of a queue; a full queue makes the pusher wait. */
#define N_COMMANDS      4096
#define N_SPINS         2000 /* some 25 us: less than a sleep and its end take */
#define N_SPINS_CROWDED 50   /* more streams than cores: another stream needs this core */

typedef struct command {
    wfi_task task; /* NULL: wait for `event` */
    void *self, *argument;
    wfi_event event;
} command;

/* A counter that threads sleep on until it reaches a value. They share a core with the counting
 * thread, so none is woken early. */
typedef struct gate {
    uint64_t own_count;
    uint64_t *count;      /* atomic access; grows: own_count, or in shared memory */
    uint64_t next;        /* atomic access: the smallest count that a sleeper waits for */
    pthread_mutex_t lock; /* for sleeping only */
    pthread_cond_t changed;
} gate;

typedef struct thread_stream {
    wfi_stream_queue *stream;
    const wfi_device_class *kind; /* the device's, when the thread began */
    pthread_t thread;
    gate queued;          /* commands pushed so far */
    gate started;         /* commands begun so far */
    gate issued;          /* tasks that have queued all their work on a device with events */
    gate done;            /* tasks: the epoch */
    wfi_device_wait wait; /* for the oldest task in flight */
    bool waits_longer;    /* the work that this task follows is not done either */
    wfi_event follows[WFI_MOST_IN_FLIGHT]; /* by task: the latest event that its device waits for */
    wfi_shared_epoch *shared;              /* the epoch, if other processes wait for it */
    int ends;
    command commands[N_COMMANDS];
} thread_stream;

/* ---- sleeping until a counter moves ---- */

static int n_streams; /* threads of this process; atomic access */
static int n_cores;   /* at the first wait */

static void count_cores(void) {
    n_cores = wf_info_limits().n_cores;
}

int wfi_stream_n_spins(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, count_cores);
    return __atomic_load_n(&n_streams, __ATOMIC_RELAXED) > n_cores ? N_SPINS_CROWDED : N_SPINS;
}

#define NO_TARGET UINT64_MAX

static void gate_init(gate *g) {
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_mutex_init(&g->lock, NULL);
    pthread_cond_init(&g->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    g->next = NO_TARGET;
    g->count = &g->own_count;
}

static void gate_release(gate *g) {
    pthread_cond_destroy(&g->changed);
    pthread_mutex_destroy(&g->lock);
}

static uint64_t gate_count(const gate *g) {
    return __atomic_load_n(g->count, __ATOMIC_ACQUIRE);
}

static void gate_wake(gate *g) {
    pthread_mutex_lock(&g->lock);
    __atomic_store_n(&g->next, NO_TARGET, __ATOMIC_SEQ_CST); /* sleepers set it again */
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
}

/* Only one thread counts. Either it sees the sleeper's target, or the sleeper sees its count. */
static void gate_add(gate *g) {
    uint64_t count = *g->count + 1;
    __atomic_store_n(g->count, count, __ATOMIC_SEQ_CST);
    if (count >= __atomic_load_n(&g->next, __ATOMIC_SEQ_CST)) gate_wake(g);
}

static struct timespec time_in(int64_t ms) {
    int64_t ns = wfi_now_ns() + ms * 1000000;
    return (struct timespec){ns / 1000000000, ns % 1000000000};
}

/* Waits until the count is `target` or *ends is set (ends may be NULL). False: too late. */
static bool gate_wait(gate *g, uint64_t target, const int *ends, int64_t timeout_ms) {
    for (int spin = wfi_stream_n_spins(); spin > 0; spin--) {
        if (gate_count(g) >= target) return true;
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
    }
    struct timespec until = {0, 0};
    if (timeout_ms > 0) until = time_in(timeout_ms);
    bool in_time = true;
    pthread_mutex_lock(&g->lock);
    while (in_time && !(ends && __atomic_load_n(ends, __ATOMIC_SEQ_CST))) {
        if (g->next > target) __atomic_store_n(&g->next, target, __ATOMIC_SEQ_CST);
        if (__atomic_load_n(g->count, __ATOMIC_SEQ_CST) >= target) break;
        int error = timeout_ms > 0 ? pthread_cond_timedwait(&g->changed, &g->lock, &until)
                                   : pthread_cond_wait(&g->changed, &g->lock);
        in_time = error != ETIMEDOUT;
    }
    pthread_mutex_unlock(&g->lock);
    return in_time || gate_count(g) >= target;
}

/* The extension of a wait that may follow from another wait, as a fraction of the deadline. */
#define LONGER 16

/* The same, but fails only after the job has made no progress for the deadline. `event` is the
 * awaited event. */
static bool gate_wait_watched(gate *g, uint64_t target, int64_t timeout_ms,
                              const wfi_waiter *waiter, const wfi_event *event) {
    wfi_deadline deadline = wfi_deadline_begin(waiter, timeout_ms, gate_count(g));
    for (;;) {
        int64_t nap_ms = wfi_deadline_nap_ms(&deadline, waiter, timeout_ms);
        if (gate_wait(g, target, NULL, nap_ms)) return true;
        if (wfi_deadline_is_over(&deadline, gate_count(g))) return false;
        if (waiter->is_host) wfi_watch_look(waiter->watch, event);
    }
}

static uint64_t thread_n_done(const wfi_stream_queue *stream) {
    return gate_count(&((const thread_stream *)stream->state)->done);
}

static wf_status wait_at(gate *g, wfi_event event, const wfi_waiter *waiter) {
    const wfi_owner *owner = event.stream->owner;
    const thread_stream *s = event.stream->state;
    int64_t timeout_ms = owner->timeout_ms;
    /* This stream may itself wait for another rank. Its own wait then fails first and names that
     * rank. */
    int64_t longer_ms = waiter->is_host ? 0 : timeout_ms / LONGER;
    char why[512];
    if (gate_wait_watched(g, event.epoch, timeout_ms + longer_ms, waiter, &event)) return WF_OK;
    wfi_waiter_explain(waiter, &event, why, sizeof why);
    return wfi_fail(owner->ctx, WF_TIMEOUT,
                    "%s waited %lld ms for stream %s of rank %d, which has done %llu of %llu "
                    "tasks%s",
                    waiter->name, (long long)timeout_ms, event.stream->name, owner->rank,
                    (unsigned long long)gate_count(&s->done), (unsigned long long)event.epoch, why);
}

static wf_status thread_event_wait(wfi_event event, const wfi_waiter *waiter) {
    return wait_at(&((thread_stream *)event.stream->state)->done, event, waiter);
}

/* ---- tasks in flight ---- */

static uint64_t n_in_flight(const thread_stream *s) {
    return s->kind->record ? gate_count(&s->issued) - gate_count(&s->done) : 0;
}

static wfi_event *followed_by(thread_stream *s, uint64_t task) {
    return &s->follows[task % WFI_MOST_IN_FLIGHT];
}

static void await_next(thread_stream *s) {
    s->wait = wfi_device_wait_begin(s->stream->device);
    s->waits_longer = false;
}

static void count_issued(thread_stream *s) {
    gate_add(&s->issued);
    if (n_in_flight(s) == 1) await_next(s);
}

static void count_done(thread_stream *s) {
    followed_by(s, gate_count(&s->done))->stream = NULL;
    gate_add(&s->done);
    if (s->shared) wfi_shared_epoch_wake(s->shared);
    if (n_in_flight(s)) await_next(s);
}

/* The device does not report the failed task: it may be any from the oldest in flight on. */
static wf_status fail_late(const thread_stream *s, wf_status status) {
    const wfi_owner *owner = s->stream->owner;
    const wfi_event event = {s->stream, gate_count(&s->done) + 1};
    char name[256];
    wfi_watch_name(owner->watch, &event, name, sizeof name);
    if (*name)
        status = wfi_fail_at(owner->ctx, status, "rank %d, of the tasks in flight from %s on",
                             owner->rank, name);
    return status;
}

/* Polls the oldest task in flight. False: it is not done. */
static bool look(thread_stream *s) {
    bool is_done = true;
    wf_status status = s->kind->look(s->stream, gate_count(&s->done), &is_done);
    if (status != WF_OK) wfi_owner_fail(s->stream->owner, fail_late(s, status));
    if (is_done) count_done(s);
    return is_done;
}

/* The work that the task follows may hang. The thread of that work then fails first. */
static bool may_wait_longer(thread_stream *s) {
    const wfi_event *before = followed_by(s, gate_count(&s->done));
    if (s->waits_longer || !before->stream || wfi_stream_n_done(before->stream) >= before->epoch)
        return false;
    s->wait.deadline.timeout_ms += s->stream->owner->timeout_ms / LONGER;
    return s->waits_longer = true;
}

/* The same with a nap. A device that hangs is given up, with all its tasks in flight. */
static void look_on(thread_stream *s) {
    if (look(s) || wfi_device_wait_on(&s->wait) || may_wait_longer(s)) return;
    wfi_owner_fail(s->stream->owner, s->kind->give_up(s->stream, &s->wait));
    while (n_in_flight(s)) count_done(s);
}

void wfi_thread_stream_drain(wfi_stream_queue *stream) {
    while (n_in_flight(stream->state)) look_on(stream->state);
}

/* ---- the thread ---- */

static bool has_failed(const thread_stream *s) {
    return wfi_failure_status(s->stream->owner->failure) != WF_OK;
}

/* The stream, if this stream's device can wait for its event; NULL: the thread waits. */
static thread_stream *find_followed(const thread_stream *s, const wfi_event *event) {
    bool follows = s->kind->follow && event->stream->kind == &wfi_thread_streams &&
                   event->stream->device->kind == s->kind;
    return follows ? event->stream->state : NULL;
}

static wf_status wait_for(thread_stream *s, wfi_event event) {
    const wfi_waiter own = {s->stream->name, s->stream->owner->watch, false};
    thread_stream *other = find_followed(s, &event);
    while (n_in_flight(s) && !has_failed(s) &&
           (other ? gate_count(&other->issued) : wfi_stream_n_done(event.stream)) < event.epoch)
        look_on(s);
    if (!other) return event.stream->kind->event_wait(event, &own);
    WF_TRY(wait_at(&other->issued, event, &own));
    if (gate_count(&other->done) >= event.epoch) return WF_OK;
    *followed_by(s, gate_count(&s->issued)) = event;
    return s->kind->follow(s->stream, event.stream, event.epoch - 1);
}

/* A failed task may have queued work. */
static wf_status run_task(thread_stream *s, const command *now) {
    wf_status status = now->task(now->self, now->argument), behind = WF_OK;
    if (status != WF_OK && n_in_flight(s)) status = fail_late(s, status);
    if (s->kind->record) {
        behind = s->kind->record(s->stream, gate_count(&s->issued));
        if (behind != WF_OK) wfi_stream_settle(s->stream);
    } else if (s->kind->finish_task) {
        behind = s->kind->finish_task(s->stream);
    }
    return status != WF_OK ? status : behind;
}

static void do_task(thread_stream *s, const command *now) {
    bool skips = has_failed(s);
    wf_status status = skips ? WF_OK : run_task(s, now);
    if (status != WF_OK) wfi_owner_fail(s->stream->owner, status);
    if (skips) wfi_thread_stream_drain(s->stream);
    if (s->kind->record) count_issued(s);
    if (skips || !s->kind->record)
        count_done(s);
    else
        look(s);
}

static bool next_command(thread_stream *s, command *now_out) {
    uint64_t n = *s->started.count;
    while (n_in_flight(s) && (n_in_flight(s) == WFI_MOST_IN_FLIGHT || n == gate_count(&s->queued)))
        look_on(s);
    if (n == gate_count(&s->queued)) {
        gate_wait(&s->queued, n + 1, &s->ends, 0);
        if (n == gate_count(&s->queued)) return false;
    }
    *now_out = s->commands[n % N_COMMANDS];
    gate_add(&s->started);
    return true;
}

static void *run_stream(void *argument) {
    thread_stream *s = argument;
    const wfi_owner *owner = s->stream->owner;
    command now;
    wf_status status = s->kind->enter_thread ? s->kind->enter_thread(s->stream->device) : WF_OK;
    if (status != WF_OK) wfi_owner_fail(owner, status);
    while (next_command(s, &now)) {
        if (now.task) {
            do_task(s, &now);
            continue;
        }
        status = has_failed(s) ? WF_OK : wait_for(s, now.event);
        if (status != WF_OK) wfi_owner_fail(owner, status);
    }
    return NULL;
}

/* ---- the class ---- */

static void release(thread_stream *s) {
    gate_release(&s->queued);
    gate_release(&s->started);
    gate_release(&s->issued);
    gate_release(&s->done);
    wfi_free(s->stream->owner->ctx, s);
}

wf_status wfi_thread_stream_create(wfi_device *device, wfi_stream_queue *stream,
                                   wfi_shared_epoch *counter) {
    thread_stream *s = wfi_alloc(device->owner.ctx, 1, sizeof *s, "a stream");
    if (!s) return WF_NO_MEMORY;
    s->stream = stream;
    s->kind = device->kind;
    stream->state = s;
    gate_init(&s->queued);
    gate_init(&s->started);
    gate_init(&s->issued);
    gate_init(&s->done);
    if (counter) {
        s->shared = counter;
        s->done.count = &counter->epoch;
        __atomic_store_n(s->done.count, 0, __ATOMIC_SEQ_CST);
    }
    int error = pthread_create(&s->thread, NULL, run_stream, s);
    if (!error) {
        __atomic_add_fetch(&n_streams, 1, __ATOMIC_RELAXED);
        return WF_OK;
    }
    release(s);
    return wfi_fail(device->owner.ctx, WF_DEVICE,
                    "the thread of stream %s could not be started: %s", stream->name,
                    strerror(error));
}

static void thread_stream_finish(wfi_stream_queue *stream) {
    thread_stream *s = stream->state;
    if (s->ends) return;
    __atomic_store_n(&s->ends, 1, __ATOMIC_SEQ_CST);
    gate_wake(&s->queued);
    pthread_join(s->thread, NULL);
    __atomic_sub_fetch(&n_streams, 1, __ATOMIC_RELAXED);
}

static void thread_stream_destroy(wfi_stream_queue *stream) {
    release(stream->state);
}

static wf_status push_command(wfi_stream_queue *stream, command c) {
    thread_stream *s = stream->state;
    const wfi_owner *owner = stream->owner;
    WF_TRY(wfi_owner_check(owner));
    int64_t timeout_ms = owner->timeout_ms;
    uint64_t n = *s->queued.count;
    const wfi_waiter host = {"the host", owner->watch, true};
    wfi_event own = {stream, stream->n_pushed};
    if (n >= N_COMMANDS &&
        !gate_wait_watched(&s->started, n - N_COMMANDS + 1, timeout_ms, &host, &own))
        return wfi_fail(owner->ctx, WF_TIMEOUT,
                        "the queue of stream %s of rank %d stayed full for %lld ms", stream->name,
                        owner->rank, (long long)timeout_ms);
    s->commands[n % N_COMMANDS] = c;
    gate_add(&s->queued);
    return WF_OK;
}

static wf_status thread_push(wfi_stream_queue *stream, wfi_task task, void *self, void *argument) {
    return push_command(stream, (command){task, self, argument, {NULL, 0}});
}

static wf_status thread_wait(wfi_stream_queue *stream, wfi_event event) {
    return push_command(stream, (command){NULL, NULL, NULL, event});
}

const wfi_stream_class wfi_thread_streams = {.finish = thread_stream_finish,
                                             .destroy = thread_stream_destroy,
                                             .push = thread_push,
                                             .wait = thread_wait,
                                             .event_wait = thread_event_wait,
                                             .n_done = thread_n_done};
