/* Devices: memory and streams. Private.
 *
 * Memory of a device lies in one of its spaces. Only kernels and the copies below touch it: the
 * library's host code never dereferences an address of a device's memory.
 *
 * A stream is an in-order queue. Work on different streams is ordered only by
 * waiting for events. An event is a stream and an epoch: "the first n tasks of that
 * stream are done". Pushing never waits for work to finish, only for room in the
 * queue.
 *
 *   cpu      an arena of host memory; each stream has its own thread
 *   remote   a rank of another process: its streams run there
 *   arrivals what other processes send, counted by the transport (comm/transport/transport.h)
 *   null     no memory and no threads: tasks run inline, as a proof of the order
 */
#ifndef WFI_DEVICE_H
#define WFI_DEVICE_H

#include "device/failure.h"
#include "device/shared_epoch.h"
#include "device/watch.h"

typedef struct wfi_device wfi_device;
typedef struct wfi_stream_queue wfi_stream_queue;

typedef struct wfi_event {
    wfi_stream_queue *stream; /* NULL: has happened */
    uint64_t epoch;
} wfi_event;

typedef wf_status (*wfi_task)(void *self, void *argument);

typedef struct wfi_device_config {
    const struct wfi_device_class *kind;
    int index;           /* the rank, for sentences */
    int place, n_places; /* cores are divided into n_places shares; this is its share */
    int64_t timeout_ms;  /* of every wait */
    /* Devices that share one stop together. Borrowed; NULL: the device has its own. */
    wfi_failure *failure;
    /* Of the waits of the host and of its streams; also explains a missed deadline. Borrowed;
     * NULL: none. */
    wfi_watch *watch;
    /* What the rank's streams, in the order of their making, have done, if other processes are
     * to see it; on the remote side, the same memory. Borrowed; NULL: private. */
    wfi_shared_epoch *epochs;
    /* remote: whether that rank's process is gone. */
    bool (*is_lost)(const void *self, int index);
    const void *self;
    /* cpu, remote: called when somebody elsewhere will wait for the event of a local stream (by
     * its number): `rank`, or -1: every process's host. NULL: the counters are shared. */
    wf_status (*notify)(const void *self, int rank, int stream, uint64_t epoch);
    /* arrivals: who has not sent yet what the stream waits for. */
    int (*awaited_rank)(const void *self, int stream);
} wfi_device_config;

/* The kind of that name, of `n` characters, among those that users may ask for; NULL: there is
 * none. */
const struct wfi_device_class *wfi_device_kind(const char *name, size_t n);
/* What is meant where nobody names a kind. */
#define WFI_DEFAULT_DEVICE (&wfi_device_cpu)

wf_status wfi_device_create(wf_context *ctx, const wfi_device_config *config,
                            wfi_device **device_out);
/* All streams must have been destroyed. */
void wfi_device_destroy(wfi_device *device);
bool wfi_device_has_memory(const wfi_device *device); /* false: null */
int wfi_device_n_cores(const wfi_device *device);

/* The first failure of any task or wait, on this device or on one that shares its fate;
 * sticky: all later tasks are skipped. */
wf_status wfi_device_status(const wfi_device *device);
/* The same, and its sentence becomes the calling thread's. */
wf_status wfi_device_check(const wfi_device *device);
/* With this thread's latest sentence. */
void wfi_device_fail(wfi_device *device, wf_status status);

/* Where memory lies: near the device's kernels, or where the host sees it and the device's copies
 * reach it best. */
typedef enum wfi_space { WFI_SPACE_DEVICE, WFI_SPACE_HOST, WFI_N_SPACES } wfi_space;

/* `name` appears in errors and traces; static. */
wf_status wfi_stream_create(wfi_device *device, const char *name, wfi_stream_queue **stream_out);
/* Finishes what was pushed and ends the thread; nothing may be pushed any more. Streams
 * that wait for each other are all finished before the first is destroyed. NULL is
 * allowed in both. */
void wfi_stream_finish(wfi_stream_queue *stream);
void wfi_stream_destroy(wfi_stream_queue *stream);

/* Appends a task. Errors: TIMEOUT if the queue stays full. */
wf_status wfi_stream_push(wfi_stream_queue *stream, wfi_task task, void *self, void *argument);
/* What is pushed from now on begins after `event`. */
wf_status wfi_stream_wait(wfi_stream_queue *stream, wfi_event event);
/* The event of everything pushed so far. */
wfi_event wfi_stream_record(const wfi_stream_queue *stream);
/* All processes' hosts are going to wait for the event, sooner or later: who owns the stream may
 * say already when it comes. wfi_event_wait does it, too. */
wf_status wfi_event_announce(wfi_event event);
/* Stops the calling thread, the host's, until the event or the deadline. */
wf_status wfi_event_wait(wfi_event event);
/* How many tasks the stream has done. Any thread. */
uint64_t wfi_stream_n_done(const wfi_stream_queue *stream);
/* push + wait. */
wf_status wfi_stream_call(wfi_stream_queue *stream, wfi_task task, void *self, void *argument);

/* ---- how a kind of device is written ---- */

typedef struct wfi_device_class {
    const char *name;
    bool has_memory;
    wf_status (*create)(wfi_device *device); /* NULL: nothing to prepare, nothing to undo */
    void (*destroy)(wfi_device *device);
    /* One range of a space, page-aligned, zeroed, touched. The kinds without memory have none of
     * these four. */
    wf_status (*memory_create)(wfi_device *device, wfi_space space, size_t bytes, void **base_out);
    void (*memory_destroy)(wfi_device *device, wfi_space space, void *base, size_t bytes);
    wf_status (*copy)(wfi_device *device, wfi_stream_queue *stream, void *to, wfi_space to_space,
                      const void *from, wfi_space from_space, size_t bytes);
    wf_status (*fill)(wfi_device *device, wfi_stream_queue *stream, void *to, int byte,
                      size_t bytes);
    wf_status (*stream_create)(wfi_device *device, wfi_stream_queue *stream);
    void (*stream_finish)(wfi_stream_queue *stream);
    void (*stream_destroy)(wfi_stream_queue *stream);
    wf_status (*push)(wfi_stream_queue *stream, wfi_task task, void *self, void *argument);
    wf_status (*wait)(wfi_stream_queue *stream, wfi_event event);
    /* Errors: TIMEOUT: nothing has moved for so long; the sentence says who waited. */
    wf_status (*event_wait)(wfi_event event, const wfi_waiter *waiter);
    uint64_t (*n_done)(const wfi_stream_queue *stream);
} wfi_device_class;

/* For the sentence of a missed deadline: a colon and who does not move, or "". */
void wfi_device_explain(const wfi_event *event, const wfi_waiter *waiter, char *text, size_t bytes);

extern const wfi_device_class wfi_device_cpu;
extern const wfi_device_class wfi_device_null;
extern const wfi_device_class wfi_device_remote;
extern const wfi_device_class wfi_device_arrivals;

struct wfi_device {
    wf_context *ctx;
    const wfi_device_class *kind;
    wfi_device_config config;
    int n_cores;
    int n_streams;        /* made so far */
    wfi_failure *failure; /* given, or &own_failure */
    wfi_failure own_failure;
    void *topology; /* cpu: cores of this rank */
};

/* Copies between or within spaces, and sets each of `bytes` bytes. From a task of `stream`: in the
 * order of that stream, done when what comes later in it begins. From the host: `stream` is NULL,
 * the streams that know the memory are idle, and it is done on return. */
static inline wf_status wfi_memory_copy(wfi_device *device, wfi_stream_queue *stream, void *to,
                                        wfi_space to_space, const void *from, wfi_space from_space,
                                        size_t bytes) {
    return device->kind->copy(device, stream, to, to_space, from, from_space, bytes);
}
static inline wf_status wfi_memory_fill(wfi_device *device, wfi_stream_queue *stream, void *to,
                                        int byte, size_t bytes) {
    return device->kind->fill(device, stream, to, byte, bytes);
}

/* cores.c: which cores a CPU device gets. */
wf_status wfi_cpu_find_cores(wfi_device *device);
void wfi_cpu_release_cores(wfi_device *device);

struct wfi_stream_queue {
    wfi_device *device;
    const char *name;
    int number;        /* among the device's, in the order of their making */
    uint64_t n_pushed; /* tasks; written by the pushing thread only */
    void *state;       /* of the kind */
};

#endif
