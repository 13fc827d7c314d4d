/* Devices with memory of their own, which a library finds at run time: what all kinds of these
 * share. A kind is a table of what its library does (wfi_separate_class); its units are the
 * machine's devices, which several ranks may be on. Private to src/device, and to kernels and wires
 * of one kind.
 */
#ifndef WFI_SEPARATE_H
#define WFI_SEPARATE_H

#include "device/device.h"

#include <pthread.h>

#define WFI_MOST_UNITS 64

/* The first member of its kind's. */
typedef struct wfi_device_unit {
    struct wfi_machine *machine;
    int number;       /* among those of the kind that the process sees */
    bool is_open;     /* a rank has been on it; under the machine's lock, as what follows */
    char name[128];   /* its library's */
    char about[32];   /* behind the name, in a list */
    void *host_queue; /* of what the host asks for */
    wfi_built_list programs;
    /* Atomic access: it does not end what it was asked for, and its library might wait for that
     * before it takes anything back: what is on it goes with the process. */
    int hangs;
} wfi_device_unit;

/* Of the whole context: ranks see each other's memory. The first member of its kind's. */
typedef struct wfi_machine {
    const struct wfi_separate_class *kind;
    pthread_mutex_t lock; /* of what is made of units when it is needed */
    wfi_device_unit *units[WFI_MOST_UNITS];
    int n_units;
} wfi_machine;

/* wfi_stream_queue.queue. The first member of its kind's. */
typedef struct wfi_device_queue {
    void *handle; /* of the library's */
    void *words;  /* [WFI_LAUNCH_WORDS] in the device's memory */
    wfi_built_list kernels;
} wfi_device_queue;

/* Room for what a program is made for. */
#define WFI_TARGET_BYTES 384

/* All are there but those that may be NULL. A stream that is NULL: the host asks, on the unit's
 * queue for that. */
typedef struct wfi_separate_class {
    const char *noun; /* of a unit, in sentences: "GPU" */
    wfi_shared_kind shared;
    size_t machine_bytes, unit_bytes, queue_bytes; /* of its own */
    size_t units_at;                               /* where in the machine's the units are */
    /* Fills in the units: how many, their names, and what is the kind's. */
    wf_status (*find)(wf_context *ctx, wfi_machine *machine);
    void (*end)(wfi_machine *machine); /* NULL: nothing to do */
    /* Fails where the machine lacks something besides, for a list. NULL: nothing. */
    wf_status (*check)(wf_context *ctx, const wfi_machine *machine);
    /* For its first rank; under the lock. Undone at the end, also of a unit that was never open:
     * all but its list of programs. */
    wf_status (*open)(wf_context *ctx, wfi_device_unit *unit);
    void (*close)(wfi_device_unit *unit);
    /* Around what a thread calls that is no stream's; those enter once. NULL: nothing to do. */
    wf_status (*enter)(const wfi_device *device);
    void (*leave)(const wfi_device *device);
    /* Zeroed. */
    wf_status (*memory_create)(wfi_device *device, wfi_space space, size_t bytes, void **base_out);
    void (*memory_destroy)(wfi_device *device, wfi_space space, void *base, size_t bytes);
    /* What is queued: of the two one at least is memory of devices; else of the host. */
    wf_status (*copy)(wfi_device *device, wfi_stream_queue *stream, void *to, bool to_device,
                      const void *from, bool from_device, size_t bytes);
    wf_status (*fill)(wfi_device *device, wfi_stream_queue *stream, void *to, int byte,
                      size_t bytes);
    /* The rest of stream->queue; undone also if it failed. */
    wf_status (*queue_create)(wfi_stream_queue *stream);
    void (*queue_destroy)(wfi_stream_queue *stream);
    /* Whether all that was queued is done. *marker is the kind's, NULL at the first look of a wait.
     * Errors: what has failed; then nobody looks again. */
    wf_status (*look)(const wfi_device *device, void *queue, void **marker, bool *is_done_out);
    /* All that a program is made for and by, but its text. */
    wf_status (*target)(const wfi_device *device, char text[WFI_TARGET_BYTES]);
    /* A program; of a text also its binary, of malloc, also if it fails, to be kept; NULL: it is
     * not kept. */
    wf_status (*load)(const wfi_device *device, const char *kernel, unsigned char *binary,
                      size_t bytes, void **program_out);
    wf_status (*build)(const wfi_device *device, const char *kernel, const char *text,
                       void **program_out, unsigned char **binary_out, size_t *bytes_out);
    wf_status (*kernel)(const wfi_device *device, void *program, const char *name,
                        void **kernel_out);
} wfi_separate_class;

/* ---- units ---- */

/* `shared` of a kind: its machine. */
wf_status wfi_machine_create(wf_context *ctx, const wfi_separate_class *kind, void **machine_out);
void wfi_machine_destroy(void *machine);
/* The one that a place is on, open. Errors: UNSUPPORTED: there is none. */
wf_status wfi_device_unit_find(wf_context *ctx, const wfi_separate_class *kind, int place,
                               wfi_device_unit **unit_out);

static inline wfi_device_unit *wfi_device_unit_of(const wfi_device *device) {
    return device->state;
}
static inline bool wfi_device_unit_hangs(const wfi_device_unit *unit) {
    return __atomic_load_n(&unit->hangs, __ATOMIC_RELAXED);
}
/* Of a unit that hangs nothing more is waited for. Errors: its rank's failure, or TIMEOUT. */
wf_status wfi_separate_given_up(const wfi_device *device);

/* The library's; the host's, without a stream. */
static inline void *wfi_separate_queue(const wfi_device *device, const wfi_stream_queue *stream) {
    return stream ? ((const wfi_device_queue *)stream->queue)->handle
                  : wfi_device_unit_of(device)->host_queue;
}
/* All that was queued there is done. Errors: what of it has failed; TIMEOUT: the unit hangs. */
wf_status wfi_separate_finish(const wfi_device *device, wfi_stream_queue *stream);

/* separate_kernel.c: the kernel that is launched, of the stream alone: built, or loaded, when it
 * is first asked for. */
wf_status wfi_separate_kernel(wfi_stream_queue *stream, const wfi_kernel_launch *launch,
                              void **kernel_out);

/* ---- of wfi_device_class ---- */

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
wf_status wfi_separate_tell_words(wfi_stream_queue *stream, wfi_words_listener listener, void *self,
                                  int32_t number);

/* A kind's members but those that say which kind, what it reaches, what is done behind each task,
 * and how kernels are launched. */
#define WFI_SEPARATE_DEVICE                                                                        \
    .has_memory = true, .create = wfi_separate_create,                                             \
    .memory_create = wfi_separate_memory_create, .memory_destroy = wfi_separate_memory_destroy,    \
    .copy = wfi_separate_copy, .fill = wfi_separate_fill, .streams = &wfi_thread_streams,          \
    .stream_create = wfi_separate_stream_create, .stream_destroy = wfi_separate_stream_destroy,    \
    .enter_thread = wfi_separate_enter_thread, .give_up = wfi_separate_give_up,                    \
    .describe = wfi_separate_describe

#endif
