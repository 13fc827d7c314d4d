/* The CPU as a device: an arena of host memory, and streams that are queues with
 * a thread of their own. A missing event is therefore a race, which the thread
 * sanitizer reports, long before a GPU would show a wrong number.
 */
#include "device/device.h"

#include <errno.h>
#include <hwloc.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

/* Commands that fit into a queue; a full one makes the pusher wait. */
#define N_COMMANDS 4096
/* How often a waiter looks before it sleeps: a few microseconds. */
#define N_SPINS 2000
/* The smallest page of any machine this runs on. */
#define PAGE_BYTES 4096

typedef struct command {
    wfi_task task; /* NULL: wait for `event` */
    void *self, *argument;
    wfi_event event;
} command;

typedef struct cpu_stream {
    wfi_stream_queue *stream;
    pthread_t thread;
    pthread_mutex_t lock; /* for sleeping only; the counters below are atomic */
    pthread_cond_t changed;
    int n_sleeping;
    uint64_t n_queued;  /* commands ever pushed */
    uint64_t n_started; /* commands ever taken */
    uint64_t own_epoch;
    uint64_t *epoch;          /* tasks done: own_epoch, or where other processes see it */
    wfi_shared_epoch *shared; /* NULL: no other process waits */
    int ends;
    command commands[N_COMMANDS];
} cpu_stream;

/* ---- sleeping until a counter moves ---- */

static void wake(cpu_stream *s) {
    if (__atomic_load_n(&s->n_sleeping, __ATOMIC_SEQ_CST) == 0) return;
    pthread_mutex_lock(&s->lock);
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

typedef struct deadline {
    struct timespec at;
} deadline;

static deadline deadline_in(int64_t ms) {
    deadline d;
    clock_gettime(CLOCK_MONOTONIC, &d.at);
    d.at.tv_sec += ms / 1000;
    d.at.tv_nsec += ms % 1000 * 1000000;
    if (d.at.tv_nsec >= 1000000000) {
        d.at.tv_sec++;
        d.at.tv_nsec -= 1000000000;
    }
    return d;
}

/* Waits until *counter >= target or *ends is set (ends may be NULL). False: too late. */
static bool wait_for(cpu_stream *s, const uint64_t *counter, uint64_t target, const int *ends,
                     int64_t timeout_ms) {
    for (int spin = 0; spin < N_SPINS; spin++) {
        if (__atomic_load_n(counter, __ATOMIC_ACQUIRE) >= target) return true;
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
    }
    deadline until = {{0, 0}};
    if (timeout_ms > 0) until = deadline_in(timeout_ms);
    bool in_time = true;
    pthread_mutex_lock(&s->lock);
    __atomic_fetch_add(&s->n_sleeping, 1, __ATOMIC_SEQ_CST);
    while (in_time && __atomic_load_n(counter, __ATOMIC_SEQ_CST) < target &&
           !(ends && __atomic_load_n(ends, __ATOMIC_SEQ_CST))) {
        int error = timeout_ms > 0 ? pthread_cond_timedwait(&s->changed, &s->lock, &until.at)
                                   : pthread_cond_wait(&s->changed, &s->lock);
        in_time = error != ETIMEDOUT;
    }
    __atomic_fetch_sub(&s->n_sleeping, 1, __ATOMIC_SEQ_CST);
    pthread_mutex_unlock(&s->lock);
    return in_time || __atomic_load_n(counter, __ATOMIC_ACQUIRE) >= target;
}

/* The deadline is one of progress: it begins anew whenever the stream has done a task. */
static wf_status cpu_event_wait(wfi_event event, const char *who) {
    wfi_device *device = event.stream->device;
    cpu_stream *s = event.stream->state;
    uint64_t before, now = __atomic_load_n(s->epoch, __ATOMIC_ACQUIRE);
    do {
        before = now;
        if (wait_for(s, s->epoch, event.epoch, NULL, device->config.timeout_ms)) return WF_OK;
        now = __atomic_load_n(s->epoch, __ATOMIC_ACQUIRE);
    } while (now > before);
    return wfi_fail(device->ctx, WF_TIMEOUT,
                    "%s waited %lld ms for stream %s of rank %d, which has done %llu of %llu tasks",
                    who, (long long)device->config.timeout_ms, event.stream->name,
                    device->config.index, (unsigned long long)now, (unsigned long long)event.epoch);
}

/* ---- the thread ---- */

static void bind_thread(const wfi_device *device) {
    cpu_set_t *cores = device->topology;
    /* A refusal costs speed, not correctness: containers may forbid it. */
    if (cores && pthread_setaffinity_np(pthread_self(), sizeof *cores, cores))
        wfi_log(device->ctx, WF_LOG_INFO, "device", "cores of rank %d could not be bound",
                device->config.index);
}

static void *run_stream(void *argument) {
    cpu_stream *s = argument;
    wfi_device *device = s->stream->device;
    bind_thread(device);
    for (;;) {
        if (s->n_started == __atomic_load_n(&s->n_queued, __ATOMIC_ACQUIRE)) {
            wait_for(s, &s->n_queued, s->n_started + 1, &s->ends, 0);
            if (s->n_started == __atomic_load_n(&s->n_queued, __ATOMIC_ACQUIRE)) return NULL;
        }
        command now = s->commands[s->n_started % N_COMMANDS];
        __atomic_store_n(&s->n_started, s->n_started + 1, __ATOMIC_SEQ_CST);
        wf_status status = WF_OK;
        bool skips = wfi_device_status(device) != WF_OK;
        if (!now.task) {
            if (!skips)
                status = now.event.stream->device->kind->event_wait(now.event, s->stream->name);
        } else {
            if (!skips) status = now.task(now.self, now.argument);
            __atomic_store_n(s->epoch, *s->epoch + 1, __ATOMIC_SEQ_CST);
            if (s->shared) wfi_shared_epoch_wake(s->shared);
        }
        if (status != WF_OK) wfi_device_fail(device, status);
        wake(s);
    }
}

/* ---- the class ---- */

static wf_status cpu_stream_create(wfi_device *device, wfi_stream_queue *stream) {
    cpu_stream *s = wfi_alloc(device->ctx, 1, sizeof *s, "a stream");
    if (!s) return WF_NO_MEMORY;
    s->stream = stream;
    s->epoch = &s->own_epoch;
    if (device->config.epochs) {
        s->shared = &device->config.epochs[device->n_streams];
        s->epoch = &s->shared->epoch;
        __atomic_store_n(s->epoch, 0, __ATOMIC_SEQ_CST);
    }
    stream->state = s;
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    int error = pthread_create(&s->thread, NULL, run_stream, s);
    if (!error) return WF_OK;
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    wfi_free(device->ctx, s);
    return wfi_fail(device->ctx, WF_DEVICE, "the thread of stream %s could not be started: %s",
                    stream->name, strerror(error));
}

static void cpu_stream_finish(wfi_stream_queue *stream) {
    cpu_stream *s = stream->state;
    if (s->ends) return;
    __atomic_store_n(&s->ends, 1, __ATOMIC_SEQ_CST);
    wake(s);
    pthread_join(s->thread, NULL);
}

static void cpu_stream_destroy(wfi_stream_queue *stream) {
    cpu_stream *s = stream->state;
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    wfi_free(stream->device->ctx, s);
}

static wf_status push_command(wfi_stream_queue *stream, command c) {
    cpu_stream *s = stream->state;
    WF_TRY(wfi_device_check(stream->device));
    int64_t timeout_ms = stream->device->config.timeout_ms;
    if (s->n_queued >= N_COMMANDS &&
        !wait_for(s, &s->n_started, s->n_queued - N_COMMANDS + 1, NULL, timeout_ms))
        return wfi_fail(stream->device->ctx, WF_TIMEOUT,
                        "the queue of stream %s of rank %d stayed full for %lld ms", stream->name,
                        stream->device->config.index, (long long)timeout_ms);
    s->commands[s->n_queued % N_COMMANDS] = c;
    __atomic_store_n(&s->n_queued, s->n_queued + 1, __ATOMIC_SEQ_CST);
    wake(s);
    return WF_OK;
}

static wf_status cpu_push(wfi_stream_queue *stream, wfi_task task, void *self, void *argument) {
    return push_command(stream, (command){task, self, argument, {NULL, 0}});
}

static wf_status cpu_wait(wfi_stream_queue *stream, wfi_event event) {
    return push_command(stream, (command){NULL, NULL, NULL, event});
}

static wf_status cpu_arena_create(wfi_device *device, size_t bytes, void **base_out) {
    void *base =
        mmap(NULL, bytes ? bytes : 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED)
        return wfi_fail(device->ctx, WF_NO_MEMORY,
                        "the system refused %zu bytes for rank %d's arena: %s", bytes,
                        device->config.index, strerror(errno));
    /* Large pages where the system allows; every page is touched now (it comes
     * zeroed), so that no step pays for page faults. */
    madvise(base, bytes, MADV_HUGEPAGE);
    for (size_t at = 0; at < bytes; at += PAGE_BYTES) ((volatile char *)base)[at] = 0;
    *base_out = base;
    return WF_OK;
}

static void cpu_arena_destroy(wfi_device *device, void *base, size_t bytes) {
    (void)device;
    munmap(base, bytes ? bytes : 1);
}

const wfi_device_class wfi_device_cpu = {
    .kind = "cpu",
    .has_memory = true,
    .create = wfi_cpu_find_cores,
    .destroy = wfi_cpu_release_cores,
    .arena_create = cpu_arena_create,
    .arena_destroy = cpu_arena_destroy,
    .stream_create = cpu_stream_create,
    .stream_finish = cpu_stream_finish,
    .stream_destroy = cpu_stream_destroy,
    .push = cpu_push,
    .wait = cpu_wait,
    .event_wait = cpu_event_wait,
};
