/* OpenCL devices: what opencl_devices.c (which there are), opencl_memory.c (memory and copies) and
 * opencl.c (streams and launches) share. Private to them and kernel/opencl.
 */
#ifndef WFI_OPENCL_H
#define WFI_OPENCL_H

#include "device/device.h"
#include "device/opencl_library.h"

#include <pthread.h>

#define WFI_OPENCL_DEVICES 64
/* Where a part of a buffer may begin; devices say fewer bytes. */
#define WFI_OPENCL_PART_ALIGN ((size_t)4096)

/* A device of the machine, which several ranks may be on. */
typedef struct wfi_opencl_unit {
    cl_handle device, context, host_queue;
    wfi_built_list programs;
    pthread_rwlock_t beside; /* of tasks with kernels: for writing, that of one which is alone */
    wfi_built_list widths;   /* most groups that each kernel has had; under `beside` */
    char name[128], driver[128];
    /* Atomic access: it does not end what it was asked for, and the library might wait for that
     * before it takes anything back: what is on it goes with the process. */
    int hangs;
} wfi_opencl_unit;

static inline bool wfi_opencl_hangs(const wfi_opencl_unit *unit) {
    return __atomic_load_n(&unit->hangs, __ATOMIC_RELAXED);
}

/* Memory of a unit: addresses that are reserved, and the buffer that they stand for. */
typedef struct wfi_opencl_range {
    const char *base;
    size_t bytes;
    cl_handle buffer;
    wfi_opencl_unit *unit;
} wfi_opencl_range;

/* Of the whole context: ranks see each other's memory. */
typedef struct wfi_opencl_machine {
    wfi_opencl cl;
    wfi_opencl_unit units[WFI_OPENCL_DEVICES];
    int n_units;
    pthread_mutex_t lock;     /* of what follows, and of contexts and programs */
    wfi_opencl_range *ranges; /* ascending */
    size_t n_ranges;
} wfi_opencl_machine;

/* wfi_device.state */
typedef struct wfi_opencl_device {
    wfi_opencl_machine *all;
    wfi_opencl_unit *unit;
} wfi_opencl_device;

/* wfi_stream_queue.queue */
typedef struct wfi_opencl_queue {
    cl_handle queue, words;
    wfi_built_list kernels; /* of this queue alone */
    bool is_beside;         /* the unit's lock is held for reading, until the task's end */
} wfi_opencl_queue;

static inline const wfi_opencl_device *wfi_opencl_state(const wfi_device *device) {
    return device->state;
}
/* The host's, without a stream. */
static inline cl_handle wfi_opencl_queue_of(const wfi_device *device,
                                            const wfi_stream_queue *stream) {
    return stream ? ((const wfi_opencl_queue *)stream->queue)->queue
                  : wfi_opencl_state(device)->unit->host_queue;
}
/* All that was queued there is done. */
wf_status wfi_opencl_finish(const wfi_device *device, const wfi_stream_queue *stream);

/* Calls what puts kernels on the stream's queue, beside those of others; one that has more groups
 * than ever before is alone on its unit. */
wf_status wfi_opencl_enqueue(wfi_stream_queue *stream, bool is_wider,
                             wf_status (*enqueue)(wfi_stream_queue *stream, const void *self),
                             const void *self);
/* Of the first unit, for who asks before there are ranks. Errors: UNSUPPORTED: there is none. */
wf_status wfi_opencl_planner(wf_context *ctx, cl_handle *queue_out);

/* "opencl: WHAT on UNIT: ERROR" */
wf_status wfi_opencl_fail(wf_context *ctx, const wfi_opencl_unit *unit, const char *what,
                          cl_int error);

/* ---- of wfi_device_class ---- */

wf_status wfi_opencl_describe(wf_context *ctx, char *text, size_t bytes);
wf_status wfi_opencl_create(wfi_device *device);
void wfi_opencl_destroy(wfi_device *device);
bool wfi_opencl_reaches(const wfi_device *device, const wfi_device *other);
wf_status wfi_opencl_memory_create(wfi_device *device, wfi_space space, size_t bytes,
                                   void **base_out);
void wfi_opencl_memory_destroy(wfi_device *device, wfi_space space, void *base, size_t bytes);
wf_status wfi_opencl_copy(wfi_device *device, wfi_stream_queue *stream, void *to,
                          wfi_space to_space, const void *from, wfi_space from_space, size_t bytes);
wf_status wfi_opencl_fill(wfi_device *device, wfi_stream_queue *stream, void *to, wfi_space space,
                          int byte, size_t bytes);

/* ---- memory ---- */

/* The buffer behind an address of some device's memory, and the offset in it. Errors: BUG. */
wf_status wfi_opencl_find(wf_context *ctx, wfi_opencl_machine *all, const void *address,
                          wfi_opencl_range *range_out, size_t *offset_out);
/* A part of that buffer as one of its own, to be released: `bytes` from the address on, and some
 * before it, of which *offset_out says how many. */
wf_status wfi_opencl_part(wf_context *ctx, const wfi_opencl_device *own, const void *address,
                          size_t bytes, cl_handle *part_out, size_t *offset_out);
/* Zeroed, and taken from the device. Errors: NO_MEMORY. */
wf_status wfi_opencl_buffer(wf_context *ctx, const wfi_opencl_device *own, size_t bytes,
                            cl_handle *buffer_out);

#endif
