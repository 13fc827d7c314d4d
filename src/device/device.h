/* Devices: memory and streams. Private.
 *
 * Memory of a device is in one of its spaces. Only kernels and the copies below access it: the
 * library's host code never dereferences an address of a device's memory.
 *
 * A stream is an in-order queue. Only waits for events order work on different streams. An event is
 * a stream and an epoch: "the first n tasks of that stream are done". A push waits only for room in
 * the queue, never for work to finish.
 *
 *   cpu     host memory; each stream has its own thread
 *   null    no memory and no threads: tasks run inline, as a proof of the order
 *   cuda    GPUs that NVIDIA's driver finds; the driver is found at run time
 *   opencl  devices of OpenCL's library, found at run time; only kernels and copies may access
 *           addresses of their memory; each stream has a thread and a command queue
 *
 * Streams of other processes have no device here: they are counters (comm/transport/remote.h).
 */
#pragma once

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

/* The owner of streams: a rank of this or another process. All objects made for it borrow this
 * struct. */
typedef struct wfi_owner {
    wf_context *ctx;
    int rank;             /* for error messages */
    int64_t timeout_ms;   /* of every wait */
    wfi_failure *failure; /* shared: owners with the same failure stop together */
    /* Watches the waits of the host and of streams, and explains missed deadlines. NULL: none. */
    wfi_watch *watch;
} wfi_owner;

/* Returns the first failure of any task or wait, after which all later tasks are skipped. Its
 * message becomes the calling thread's. */
wf_status wfi_owner_check(const wfi_owner *owner);
/* Records a failure with this thread's latest error message. */
void wfi_owner_fail(const wfi_owner *owner, wf_status status);

/* The kind with that name of `n` characters, among the kinds for users; NULL: unknown. */
const struct wfi_device_class *wfi_device_kind(const char *name, size_t n);
#define WFI_N_DEVICE_KINDS 4
extern const struct wfi_device_class *const wfi_device_kinds[WFI_N_DEVICE_KINDS];
/* The kind if none is named. */
#define WFI_DEFAULT_DEVICE (&wfi_device_cpu)

/* Cores are divided into `n_places` shares; share `place` is the device's. */
wf_status wfi_device_create(const wfi_owner *owner, const struct wfi_device_class *kind, int place,
                            int n_places, wfi_device **device_out);
/* Called after all of its streams are destroyed. NULL is allowed. */
void wfi_device_destroy(wfi_device *device);

/* Spaces of memory: the device's memory; host memory, in the form that the device's copies reach
 * best; or a file, with addresses that only copies may use. */
typedef enum wfi_space { WFI_SPACE_DEVICE, WFI_SPACE_HOST, WFI_SPACE_DISK, WFI_N_SPACES } wfi_space;
const char *wfi_space_name(wfi_space space);
/* The alignment of allocations in a space, in bytes; on disk that of a page, which is moved whole.
 */
static inline size_t wfi_space_align(wfi_space space) {
    return space == WFI_SPACE_DISK ? 4096 : WFI_ALIGN_BYTES;
}

/* The alignment of memory, in bytes, for which files are read and written without a bounce buffer:
 * a sector of a disk. */
#define WFI_DIRECT_ALIGN 512

/* Creates a stream. `name` appears in errors and traces; static. `number` is the stream's among the
 * owner's. `counter` counts completed tasks in memory that other processes read; borrowed; NULL: a
 * private counter. */
wf_status wfi_stream_create(wfi_device *device, const char *name, int number,
                            wfi_shared_epoch *counter, wfi_stream_queue **stream_out);
/* Finishes the pushed tasks and ends the thread; no task may be pushed any more. Streams that wait
 * for each other are all finished before the first is destroyed. NULL is allowed in both. */
void wfi_stream_finish(wfi_stream_queue *stream);
void wfi_stream_destroy(wfi_stream_queue *stream);

/* Appends a task. Errors: TIMEOUT if the queue stays full. */
wf_status wfi_stream_push(wfi_stream_queue *stream, wfi_task task, void *self, void *argument);
/* Later tasks of the stream begin after `event`. */
wf_status wfi_stream_wait(wfi_stream_queue *stream, wfi_event event);
/* The event of all tasks pushed so far. A waiter knows that this work, and all work before it, is
 * done; only for this stream also that it is counted. */
wfi_event wfi_stream_record(const wfi_stream_queue *stream);
/* Blocks the calling host thread until the event or the deadline. */
wf_status wfi_event_wait(wfi_event event);
/* How often a waiter polls before it sleeps: less if this process has more streams than cores. */
int wfi_stream_n_spins(void);
/* The number of tasks that the stream has completed. Any thread. */
uint64_t wfi_stream_n_done(const wfi_stream_queue *stream);
/* Called from a task that measures time: waits until the work that it has queued on the device is
 * done. Errors of this work are known after the task. */
void wfi_stream_settle(wfi_stream_queue *stream);
/* Called from a task, at most twice: when the task is done, *ns_out is the time at which all work
 * queued so far on its stream was done. */
void wfi_stream_mark(wfi_stream_queue *stream, int64_t *ns_out);
/* ---- interface of kinds of streams and devices ---- */

typedef struct wfi_stream_class {
    void (*finish)(wfi_stream_queue *stream);
    void (*destroy)(wfi_stream_queue *stream); /* its state */
    wf_status (*push)(wfi_stream_queue *stream, wfi_task task, void *self, void *argument);
    wf_status (*wait)(wfi_stream_queue *stream, wfi_event event);
    /* Errors: TIMEOUT: no progress until the deadline; the message names the waiter. */
    wf_status (*event_wait)(wfi_event event, const wfi_waiter *waiter);
    uint64_t (*n_done)(const wfi_stream_queue *stream);
} wfi_stream_class;

/* For implementations of kinds: a stream without a state. */
wf_status wfi_stream_new(const wfi_owner *owner, const wfi_stream_class *kind, const char *name,
                         int number, wfi_stream_queue **stream_out);

/* A thread's wait for work that it has queued on its device. The thread polls, as a wait inside the
 * driver may never return. Its deadline ends before that of waiters for the stream, so the error
 * message names the device. */
typedef struct wfi_device_wait {
    wfi_deadline deadline;
    int64_t begin_ns;
} wfi_device_wait;
/* Limit of a stream's tasks that are queued on its device and not done. */
#define WFI_MOST_IN_FLIGHT 64

typedef void (*wfi_words_listener)(void *self, int32_t number,
                                   const int32_t words[WFI_LAUNCH_WORDS]);

typedef struct wfi_device_class {
    const char *name;
    bool has_memory;
    /* Only kernels and copies of the device reach its memory, not other processes (separate.h).
     * NULL: host memory. */
    const struct wfi_separate_class *separate;
    wf_status (*create)(wfi_device *device); /* NULL: no preparation needed */
    void (*destroy)(wfi_device *device);
    /* Whether kernels and copies of a device reach the memory of another device of the kind. Only
     * for separate kinds. */
    bool (*reaches)(const wfi_device *device, const wfi_device *other);
    /* Allocates one range of a space, page-aligned, zeroed, touched. Kinds without memory have none
     * of these four functions. */
    wf_status (*memory_create)(wfi_device *device, wfi_space space, size_t bytes, void **base_out);
    void (*memory_destroy)(wfi_device *device, wfi_space space, void *base, size_t bytes);
    wf_status (*copy)(wfi_device *device, wfi_stream_queue *stream, void *to, wfi_space to_space,
                      const void *from, wfi_space from_space, size_t bytes);
    wf_status (*fill)(wfi_device *device, wfi_stream_queue *stream, void *to, wfi_space space,
                      int byte, size_t bytes);
    const wfi_stream_class *streams;
    /* Fills the stream's state; NULL: no state. */
    wf_status (*stream_create)(wfi_device *device, wfi_stream_queue *stream,
                               wfi_shared_epoch *counter);
    void (*stream_destroy)(wfi_stream_queue *stream); /* its queue; NULL: no queue */
    /* For kinds with stream threads, called on the thread: before its first task; and after each
     * task, until the work that the task queued on the device is done. NULL: not needed. */
    wf_status (*enter_thread)(wfi_device *device);
    wf_status (*finish_task)(wfi_stream_queue *stream);
    /* For kinds with devices that order streams, called on a stream's thread, which then does not
     * wait after each task. NULL: the thread waits. `record` records an event after the work of
     * tasks up to number `task`; a stream has as many events as tasks may be in flight. `look`
     * polls it. `follow` makes later work wait for such an event of another stream of the kind. */
    wf_status (*record)(wfi_stream_queue *stream, uint64_t task);
    wf_status (*look)(wfi_stream_queue *stream, uint64_t task, bool *has_happened_out);
    wf_status (*follow)(wfi_stream_queue *stream, const wfi_stream_queue *other, uint64_t task);
    void (*mark)(wfi_stream_queue *stream, int64_t *ns_out); /* wfi_stream_mark */
    /* Gives up work that the device does not complete. Errors: TIMEOUT. */
    wf_status (*give_up)(wfi_stream_queue *stream, const wfi_device_wait *wait);
    /* Queues a kernel from a task of the stream. NULL: the kind runs no such kernels. */
    wf_status (*launch)(wfi_stream_queue *stream, const wfi_kernel_launch *launch);
    /* Called from a task: `capture` records the work that another task queues on the stream,
     * instead of queueing it; that task must not wait. NULL result: it cannot be captured, and
     * nothing is queued. `replay` queues the captured work. Streams that have replayed it are idle,
     * or know its end, before `forget`. All NULL: no captures. */
    void *(*capture)(wfi_stream_queue *stream, wfi_task task, void *self, void *argument);
    wf_status (*replay)(wfi_stream_queue *stream, const void *captured);
    void (*forget)(const wfi_device *device, void *captured);
    /* Called from a task: reports the words that its kernels have written so far, on this thread,
     * when the task is done or at once; then clears them. */
    wf_status (*report_words)(wfi_stream_queue *stream, wfi_words_listener listener, void *self,
                              int32_t number);
    /* For kinds with memory of their own: the machine's device of that place, and its free memory.
     * NULL: unknown. */
    wf_status (*find_free)(wf_context *ctx, int place, int *unit_out, size_t *free_bytes_out);
    /* Describes the kind's devices: "1 device: 0 Ryzen"; NULL: `cpu` and `null` always exist. */
    wf_status (*describe)(wf_context *ctx, const struct wfi_device_class *kind, char *text,
                          size_t bytes);
} wfi_device_class;

extern const wfi_device_class wfi_device_cpu, wfi_device_null, wfi_device_opencl, wfi_device_cuda;

struct wfi_device {
    wfi_owner owner;
    const wfi_device_class *kind;
    int place, n_places;
    void *state; /* of the kind; cpu: cores of this rank; separate kinds: the wfi_device_unit */
    const char *folder;     /* of its files; borrowed; NULL: TMPDIR's, or /tmp */
    struct wfi_disk *disks; /* disk.c: files that it copies from and to */
};

/* Copies between or within spaces, or sets each of `bytes` bytes. From a task of `stream`: in the
 * order of that stream, done before its later work begins. From the host: `stream` is NULL, the
 * streams that use the memory are idle, and the copy is done on return. */
static inline wf_status wfi_memory_copy(wfi_device *device, wfi_stream_queue *stream, void *to,
                                        wfi_space to_space, const void *from, wfi_space from_space,
                                        size_t bytes) {
    return device->kind->copy(device, stream, to, to_space, from, from_space, bytes);
}
static inline wf_status wfi_memory_fill(wfi_device *device, wfi_stream_queue *stream, void *to,
                                        wfi_space space, int byte, size_t bytes) {
    return device->kind->fill(device, stream, to, space, byte, bytes);
}

/* Whether kernels of the device reach the other's memory; `other` NULL: the host's. */
bool wfi_device_reaches(const wfi_device *device, const wfi_device *other);
/* Called from a task of the stream: copies into the memory of its device from that of another
 * device, after the tasks that wrote it. If the device does not reach that memory, the copy goes
 * through the host. `owner` NULL: from host memory. */
wf_status wfi_memory_fetch(wfi_stream_queue *stream, void *to, wfi_device *owner, const void *from,
                           size_t bytes);

wfi_device_wait wfi_device_wait_begin(const wfi_device *device);
/* Called between two polls. False: the job has made no progress for so long that the device hangs.
 */
bool wfi_device_wait_on(wfi_device_wait *wait);
/* Fails because the device named `what` hangs; `stream` NULL: the host waits. Errors: TIMEOUT. */
wf_status wfi_device_hangs(const wfi_device *device, const wfi_stream_queue *stream,
                           const char *what, const wfi_device_wait *wait);

/* cores.c: the cores of a CPU device. */
wf_status wfi_cpu_find_cores(wfi_device *device);
void wfi_cpu_release_cores(wfi_device *device);

struct wfi_stream_queue {
    const wfi_stream_class *kind;
    const wfi_owner *owner;
    wfi_device *device; /* NULL: in another process */
    const char *name;
    int number;
    uint64_t n_pushed; /* tasks; written by the pushing thread only */
    void *state;       /* of the kind */
    void *queue;       /* of the device's kind, for kernels and copies of tasks */
    void *bounce;      /* bounce.c: host memory, allocated at first use */
};
