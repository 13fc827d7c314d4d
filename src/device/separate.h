/* Devices with memory of their own, whose library is found at run time: the part that all these
 * kinds share. A kind is a table of functions over its library (wfi_separate_class). Its units are
 * the machine's devices; several ranks may use one unit. Private to src/device, and to kernels and
 * wires of one kind. */
#pragma once

#include "device/device.h"

#include <pthread.h>

#define WFI_MOST_UNITS 64

/* The first member of the kind's struct. */
typedef struct wfi_device_unit {
    struct wfi_machine *machine;
    int number;       /* among the kind's units of this process */
    bool is_open;     /* a rank has used it; this and the members below: under the machine's lock */
    char name[128];   /* from its library */
    char about[32];   /* after the name, in a list */
    void *host_queue; /* for operations of the host */
    wfi_built_list programs;
    /* Atomic access: the unit does not complete its work, and its library might wait for that
     * before it releases anything. So its resources end with the process. */
    int hangs;
} wfi_device_unit;

/* The devices of one kind, for the whole context, as ranks access each other's memory. The first
 * member of the kind's struct. */
typedef struct wfi_machine {
    const struct wfi_separate_class *kind;
    pthread_mutex_t lock; /* of the lazily created members of units */
    wfi_device_unit *units[WFI_MOST_UNITS];
    int n_units;
} wfi_machine;

/* wfi_stream_queue.queue. The first member of the kind's struct. */
typedef struct wfi_device_queue {
    void *handle; /* of the library */
    void *words;  /* [WFI_LAUNCH_WORDS] in the device's memory */
    wfi_built_list kernels;
} wfi_device_queue;

/* The limit of the text that describes a program's target. */
#define WFI_TARGET_BYTES 384

/* All members are set except those that may be NULL. If a stream is NULL, the host is the caller,
 * and the unit's queue for the host is used. */
typedef struct wfi_separate_class {
    const char *noun; /* of a unit, in error messages: "GPU" */
    wfi_shared_kind shared;
    size_t machine_bytes, unit_bytes, queue_bytes; /* of the kind's structs */
    size_t units_at;                               /* offset of the units in the machine's struct */
    /* Finds the units: their number, their names, and the kind's own members. */
    wf_status (*find)(wf_context *ctx, wfi_machine *machine);
    void (*end)(wfi_machine *machine); /* NULL: not needed */
    /* For lists of devices: fails if the machine lacks a further requirement. NULL: no check. */
    wf_status (*check)(wf_context *ctx, const wfi_machine *machine);
    /* Opens a unit for its first rank; called with the lock. `close` is called at the end, also for
     * a unit that was never open; it releases all but the list of programs. */
    wf_status (*open)(wf_context *ctx, wfi_device_unit *unit);
    void (*close)(wfi_device_unit *unit);
    /* Around calls from threads that are not a stream's; stream threads enter once. NULL: not
     * needed. */
    wf_status (*enter)(const wfi_device *device);
    void (*leave)(const wfi_device *device);
    /* The memory is zeroed. */
    wf_status (*memory_create)(wfi_device *device, wfi_space space, size_t bytes, void **base_out);
    void (*memory_destroy)(wfi_device *device, wfi_space space, void *base, size_t bytes);
    /* Queues a copy; at least one of the two addresses is device memory, the other may be host
     * memory. */
    wf_status (*copy)(wfi_device *device, wfi_stream_queue *stream, void *to, bool to_device,
                      const void *from, bool from_device, size_t bytes);
    wf_status (*fill)(wfi_device *device, wfi_stream_queue *stream, void *to, int byte,
                      size_t bytes);
    /* Creates the other members of stream->queue; `queue_destroy` is called also after a failure.
     */
    wf_status (*queue_create)(wfi_stream_queue *stream);
    void (*queue_destroy)(wfi_stream_queue *stream);
    /* Polls whether all queued work is done. *marker is the kind's, NULL at the first poll of a
     * wait. Errors: those of the work; polling then ends. */
    wf_status (*look)(const wfi_device *device, void *queue, void **marker, bool *is_done_out);
    /* Describes all inputs of a program except its text: the target and the compiler. */
    wf_status (*target)(const wfi_device *device, char text[WFI_TARGET_BYTES]);
    /* Loads or builds a program. A build also returns the binary for the cache, of malloc, even on
     * failure; NULL: not cached. */
    wf_status (*load)(const wfi_device *device, const char *kernel, unsigned char *binary,
                      size_t bytes, void **program_out);
    wf_status (*build)(const wfi_device *device, const char *kernel, const char *text,
                       void **program_out, unsigned char **binary_out, size_t *bytes_out);
    wf_status (*kernel)(const wfi_device *device, void *program, const char *name,
                        void **kernel_out);
} wfi_separate_class;

/* ---- units ---- */

/* `shared` of a kind: creates and destroys its machine. */
wf_status wfi_machine_create(wf_context *ctx, const wfi_separate_class *kind, void **machine_out);
void wfi_machine_destroy(void *machine);
/* Finds and opens the unit of a place. Errors: UNSUPPORTED: no such unit. */
wf_status wfi_device_unit_find(wf_context *ctx, const wfi_separate_class *kind, int place,
                               wfi_device_unit **unit_out);

static inline wfi_device_unit *wfi_device_unit_of(const wfi_device *device) {
    return device->state;
}
static inline bool wfi_device_unit_hangs(const wfi_device_unit *unit) {
    return __atomic_load_n(&unit->hangs, __ATOMIC_RELAXED);
}
/* Returns the failure of a unit that hangs; nothing waits for such a unit. Errors: its rank's
 * failure, or TIMEOUT. */
wf_status wfi_separate_given_up(const wfi_device *device);

/* The library's queue of the stream; without a stream, the host's. */
static inline void *wfi_separate_queue(const wfi_device *device, const wfi_stream_queue *stream) {
    return stream ? ((const wfi_device_queue *)stream->queue)->handle
                  : wfi_device_unit_of(device)->host_queue;
}
/* Waits until the queued work is done. Errors: those of the work; TIMEOUT: the unit hangs. */
wf_status wfi_separate_finish(const wfi_device *device, wfi_stream_queue *stream);

/* separate_kernel.c: the kernel of a launch, private to the stream; built or loaded at first use.
 */
wf_status wfi_separate_kernel(wfi_stream_queue *stream, const wfi_kernel_launch *launch,
                              void **kernel_out);

/* ---- functions of wfi_device_class ---- */

wf_status wfi_separate_describe(wf_context *ctx, const wfi_device_class *kind, char *text,
                                size_t bytes);
wf_status wfi_separate_create(wfi_device *device);
wf_status wfi_separate_memory_create(wfi_device *device, wfi_space space, size_t bytes,
                                     void **base_out);
void wfi_separate_memory_destroy(wfi_device *device, wfi_space space, void *base, size_t bytes);
wf_status wfi_separate_copy(wfi_device *device, wfi_stream_queue *stream, void *to,
                            wfi_space to_space, const void *from, wfi_space from_space,
                            size_t bytes);
wf_status wfi_separate_fill(wfi_device *device, wfi_stream_queue *stream, void *to, wfi_space space,
                            int byte, size_t bytes);
wf_status wfi_separate_stream_create(wfi_device *device, wfi_stream_queue *stream,
                                     wfi_shared_epoch *counter);
void wfi_separate_stream_destroy(wfi_stream_queue *stream);
wf_status wfi_separate_enter_thread(wfi_device *device);
wf_status wfi_separate_finish_task(wfi_stream_queue *stream);
wf_status wfi_separate_give_up(wfi_stream_queue *stream, const wfi_device_wait *wait);
wf_status wfi_separate_report_words(wfi_stream_queue *stream, wfi_words_listener listener,
                                    void *self, int32_t number);

/* The members of wfi_device_class that all kinds share. */
#define WFI_SEPARATE_DEVICE                                                                        \
    .has_memory = true, .create = wfi_separate_create,                                             \
    .memory_create = wfi_separate_memory_create, .memory_destroy = wfi_separate_memory_destroy,    \
    .copy = wfi_separate_copy, .fill = wfi_separate_fill, .streams = &wfi_thread_streams,          \
    .stream_create = wfi_separate_stream_create, .stream_destroy = wfi_separate_stream_destroy,    \
    .enter_thread = wfi_separate_enter_thread, .give_up = wfi_separate_give_up,                    \
    .describe = wfi_separate_describe
