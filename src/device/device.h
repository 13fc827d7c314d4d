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
 *   cpu   host memory; each stream has its own thread
 *   null  no memory and no threads: tasks run inline, as a proof of the order
 *   cuda  GPUs that NVIDIA's driver, found at run time, reaches
 *   opencl  what OpenCL's library offers, found at run time; addresses of its memory are places
 * that only kernels and copies may touch; each stream has a thread, and a queue of the device's
 *
 * Streams need no device here: those of other processes are counters (comm/transport/remote.h).
 */
#ifndef WFI_DEVICE_H
#define WFI_DEVICE_H

#include "device/failure.h"
#include "device/launch.h"
#include "device/shared_epoch.h"
#include "device/watch.h"

typedef struct wfi_device wfi_device;
typedef struct wfi_stream_queue wfi_stream_queue;

typedef struct wfi_event {
    wfi_stream_queue *stream; /* NULL: has happened */
    uint64_t epoch;
} wfi_event;

typedef wf_status (*wfi_task)(void *self, void *argument);

/* Whose streams: a rank, here or elsewhere. Borrowed by all that is made for it. */
typedef struct wfi_owner {
    wf_context *ctx;
    int rank;             /* for sentences */
    int64_t timeout_ms;   /* of every wait */
    wfi_failure *failure; /* owners that share one stop */
    /* Of the waits of the host and of streams; also explains a missed deadline. NULL: none. */
    wfi_watch *watch;
} wfi_owner;

/* The first failure of any task or wait is sticky: all later tasks are skipped. If there is one,
 * its sentence becomes the calling thread's. */
wf_status wfi_owner_check(const wfi_owner *owner);
/* With this thread's latest sentence. */
void wfi_owner_fail(const wfi_owner *owner, wf_status status);

/* The kind of that name, of `n` characters, among those that users may ask for; NULL: there is
 * none. */
const struct wfi_device_class *wfi_device_kind(const char *name, size_t n);
/* What is meant where nobody names a kind. */
#define WFI_DEFAULT_DEVICE (&wfi_device_cpu)

/* Cores are divided into `n_places` shares; `place` is the device's. */
wf_status wfi_device_create(const wfi_owner *owner, const struct wfi_device_class *kind, int place,
                            int n_places, wfi_device **device_out);
/* All streams must have been destroyed. NULL is allowed. */
void wfi_device_destroy(wfi_device *device);

/* Where memory lies: near the device's kernels; where the host sees it and the device's copies
 * reach it best; or in a file, of which addresses are places that nobody but copies may touch. */
typedef enum wfi_space { WFI_SPACE_DEVICE, WFI_SPACE_HOST, WFI_SPACE_DISK, WFI_N_SPACES } wfi_space;
const char *wfi_space_name(wfi_space space);
/* What begins in a space begins at a multiple of so many bytes: on disk, of a page, which is moved
 * as it is. */
static inline size_t wfi_space_align(wfi_space space) {
    return space == WFI_SPACE_DISK ? 4096 : WFI_ALIGN_BYTES;
}

/* Files are read and written without a detour by way of a buffer where memory begins at a multiple
 * of so many bytes: a sector of a disk. */
#define WFI_DIRECT_ALIGN 512

/* `name` appears in errors and traces; static. `number` is the stream's among the owner's.
 * `counter` counts what it has done where other processes see it; borrowed; NULL: privately. */
wf_status wfi_stream_create(wfi_device *device, const char *name, int number,
                            wfi_shared_epoch *counter, wfi_stream_queue **stream_out);
/* Finishes what was pushed and ends the thread; nothing may be pushed any more. Streams
 * that wait for each other are all finished before the first is destroyed. NULL is
 * allowed in both. */
void wfi_stream_finish(wfi_stream_queue *stream);
void wfi_stream_destroy(wfi_stream_queue *stream);

/* Appends a task. Errors: TIMEOUT if the queue stays full. */
wf_status wfi_stream_push(wfi_stream_queue *stream, wfi_task task, void *self, void *argument);
/* What is pushed from now on begins after `event`. */
wf_status wfi_stream_wait(wfi_stream_queue *stream, wfi_event event);
/* The event of everything pushed so far. Who waits for it knows that work to be done, and all that
 * it came after; only of this stream also that it is counted. */
wfi_event wfi_stream_record(const wfi_stream_queue *stream);
/* Stops the calling thread, the host's, until the event or the deadline. */
wf_status wfi_event_wait(wfi_event event);
/* How many tasks the stream has done. Any thread. */
uint64_t wfi_stream_n_done(const wfi_stream_queue *stream);
/* From a task, for who measures: what it has queued on the device so far is done. Whether that has
 * failed is known behind the task. */
void wfi_stream_settle(wfi_stream_queue *stream);
/* From a task, twice at most: *ns_out is, when the task is done, the time at which all that its
 * stream was asked for until now was done. */
void wfi_stream_mark(wfi_stream_queue *stream, int64_t *ns_out);
/* ---- how kinds of streams and devices are written ---- */

typedef struct wfi_stream_class {
    void (*finish)(wfi_stream_queue *stream);
    void (*destroy)(wfi_stream_queue *stream); /* its state */
    wf_status (*push)(wfi_stream_queue *stream, wfi_task task, void *self, void *argument);
    wf_status (*wait)(wfi_stream_queue *stream, wfi_event event);
    /* Errors: TIMEOUT: nothing has moved for so long; the sentence says who waited. */
    wf_status (*event_wait)(wfi_event event, const wfi_waiter *waiter);
    uint64_t (*n_done)(const wfi_stream_queue *stream);
} wfi_stream_class;

/* For those who write kinds: a stream without a state. */
wf_status wfi_stream_new(const wfi_owner *owner, const wfi_stream_class *kind, const char *name,
                         int number, wfi_stream_queue **stream_out);

/* A thread's wait for what it has queued on its device, in looks at the device: a driver may never
 * return from one of its own. Its deadline is over before that of those who wait for the stream, so
 * what is said names the device. */
typedef struct wfi_device_wait {
    wfi_deadline deadline;
    int64_t begin_ns;
} wfi_device_wait;
/* So many of a stream's tasks may be queued on its device, and not done. */
#define WFI_MOST_IN_FLIGHT 64

typedef void (*wfi_words_listener)(void *self, int32_t number,
                                   const int32_t words[WFI_LAUNCH_WORDS]);

typedef struct wfi_device_class {
    const char *name;
    bool has_memory;
    /* Only its own kernels and copies reach its memory, no other process does (separate.h). NULL:
     * it is the host's. */
    const struct wfi_separate_class *separate;
    wf_status (*create)(wfi_device *device); /* NULL: nothing to prepare, nothing to undo */
    void (*destroy)(wfi_device *device);
    /* Whether kernels and copies of a device reach the memory of another one of the kind. Of kinds
     * that are separate. */
    bool (*reaches)(const wfi_device *device, const wfi_device *other);
    /* One range of a space, page-aligned, zeroed, touched. The kinds without memory have none of
     * these four. */
    wf_status (*memory_create)(wfi_device *device, wfi_space space, size_t bytes, void **base_out);
    void (*memory_destroy)(wfi_device *device, wfi_space space, void *base, size_t bytes);
    wf_status (*copy)(wfi_device *device, wfi_stream_queue *stream, void *to, wfi_space to_space,
                      const void *from, wfi_space from_space, size_t bytes);
    wf_status (*fill)(wfi_device *device, wfi_stream_queue *stream, void *to, wfi_space space,
                      int byte, size_t bytes);
    const wfi_stream_class *streams;
    /* Fills the stream's state; NULL: it has none. */
    wf_status (*stream_create)(wfi_device *device, wfi_stream_queue *stream,
                               wfi_shared_epoch *counter);
    void (*stream_destroy)(wfi_stream_queue *stream); /* its queue; NULL: it has none */
    /* Of kinds whose streams have a thread, on that thread: before its first task; and behind each,
     * until all that the task has queued on the device is done. NULL: nothing to do. */
    wf_status (*enter_thread)(wfi_device *device);
    wf_status (*finish_task)(wfi_stream_queue *stream);
    /* Of kinds whose devices order streams, on a stream's thread, which then does not wait behind
     * each task. NULL: it does. An event behind all that tasks up to number `task` have queued, of
     * which the stream has so many as may be in flight; whether that has happened; what is queued
     * from now on comes after such an event of another stream of the kind. */
    wf_status (*record)(wfi_stream_queue *stream, uint64_t task);
    wf_status (*look)(wfi_stream_queue *stream, uint64_t task, bool *has_happened_out);
    wf_status (*follow)(wfi_stream_queue *stream, const wfi_stream_queue *other, uint64_t task);
    void (*mark)(wfi_stream_queue *stream, int64_t *ns_out); /* wfi_stream_mark */
    /* The device does not do what the stream has waited for. Errors: TIMEOUT. */
    wf_status (*give_up)(wfi_stream_queue *stream, const wfi_device_wait *wait);
    /* Queues a kernel from a task of the stream. NULL: the kind runs no kernels of that sort. */
    wf_status (*launch)(wfi_stream_queue *stream, const wfi_kernel_launch *launch);
    /* From a task: what another queues on the stream, which waits for nothing, is kept in place of
     * being queued; NULL: it cannot be, and nothing is. It is queued, as often as it is replayed.
     * Streams that have replayed it are idle, or know its end, when it is forgotten. All NULL: the
     * kind keeps nothing. */
    void *(*capture)(wfi_stream_queue *stream, wfi_task task, void *self, void *argument);
    wf_status (*replay)(wfi_stream_queue *stream, const void *captured);
    void (*forget)(const wfi_device *device, void *captured);
    /* From a task: what its kernels have written so far is told when the task is done, if not at
     * once, on this thread; they are 0 again. */
    wf_status (*tell_words)(wfi_stream_queue *stream, wfi_words_listener listener, void *self,
                            int32_t number);
    /* Of kinds whose memory is not the host's: which of the machine's devices that place is on, and
     * what of its memory is free. NULL: nobody knows. */
    wf_status (*find_free)(wf_context *ctx, int place, int *unit_out, size_t *free_bytes_out);
    /* What it has: "1 device: 0 Ryzen"; NULL: `cpu` and `null` are there always. */
    wf_status (*describe)(wf_context *ctx, const struct wfi_device_class *kind, char *text,
                          size_t bytes);
} wfi_device_class;

extern const wfi_device_class wfi_device_cpu, wfi_device_null, wfi_device_opencl, wfi_device_cuda;

struct wfi_device {
    wfi_owner owner;
    const wfi_device_class *kind;
    int place, n_places;
    void *state; /* of the kind; cpu: cores of this rank; separate ones: the wfi_device_unit */
    const char *folder;     /* of its files; borrowed; NULL: TMPDIR's, or /tmp */
    struct wfi_disk *disks; /* disk.c: files that it copies from and to */
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
                                        wfi_space space, int byte, size_t bytes) {
    return device->kind->fill(device, stream, to, space, byte, bytes);
}

/* Whether kernels of the device reach the other's memory; `other` NULL: that of the host. */
bool wfi_device_reaches(const wfi_device *device, const wfi_device *other);
/* From a task of the stream: a copy into the memory of its device from that of another, whose tasks
 * that wrote it are done; by way of the host where the device does not reach it. `owner` NULL: from
 * the host's. */
wf_status wfi_memory_fetch(wfi_stream_queue *stream, void *to, wfi_device *owner, const void *from,
                           size_t bytes);

wfi_device_wait wfi_device_wait_begin(const wfi_device *device);
/* Between two looks. False: nothing of the job has moved for so long that the device hangs. */
bool wfi_device_wait_on(wfi_device_wait *wait);
/* `what` is the device's name; `stream` NULL: the host's. Errors: TIMEOUT. */
wf_status wfi_device_hangs(const wfi_device *device, const wfi_stream_queue *stream,
                           const char *what, const wfi_device_wait *wait);

/* cores.c: which cores a CPU device gets. */
wf_status wfi_cpu_find_cores(wfi_device *device);
void wfi_cpu_release_cores(wfi_device *device);

struct wfi_stream_queue {
    const wfi_stream_class *kind;
    const wfi_owner *owner;
    wfi_device *device; /* NULL: it is elsewhere */
    const char *name;
    int number;
    uint64_t n_pushed; /* tasks; written by the pushing thread only */
    void *state;       /* of the kind */
    void *queue;       /* of the device's kind, where tasks queue kernels and copies on it */
    void *bounce;      /* bounce.c: memory of the host, made when it is needed */
};

#endif
