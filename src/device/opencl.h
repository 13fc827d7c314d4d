/* OpenCL devices: the interface between opencl_devices.c (finding devices), opencl_memory.c (memory
 * and copies) and opencl.c (streams and launches). Private to them and kernel/opencl. */
#pragma once

#include "device/opencl_library.h"
#include "device/ranges.h"
#include "device/separate.h"

/* The alignment of a sub-buffer; devices need less. */
#define WFI_OPENCL_PART_ALIGN ((size_t)4096)

typedef struct wfi_opencl_unit {
    wfi_device_unit unit;
    cl_handle device, context;
    pthread_rwlock_t kernels_lock; /* read: tasks with kernels; write: a task that is alone */
    wfi_built_list widths;         /* most groups of each kernel so far; under `kernels_lock` */
    char driver[128];
} wfi_opencl_unit;

typedef struct wfi_opencl_machine {
    wfi_machine machine;
    wfi_opencl cl;
    wfi_opencl_unit units[WFI_MOST_UNITS];
    wfi_ranges ranges; /* reserved addresses: their unit and buffer */
} wfi_opencl_machine;

/* wfi_stream_queue.queue */
typedef struct wfi_opencl_queue {
    wfi_device_queue queue;
    cl_handle words;       /* the buffer of the words */
    bool has_kernels_lock; /* has the unit's read lock until the end of the task */
} wfi_opencl_queue;

static inline wfi_opencl_unit *wfi_opencl_unit_of(const wfi_device *device) {
    return device->state;
}
static inline wfi_opencl_machine *wfi_opencl_machine_of(const wfi_device *device) {
    return (void *)wfi_device_unit_of(device)->machine;
}
static inline const wfi_opencl *wfi_opencl_of(const wfi_device *device) {
    return &wfi_opencl_machine_of(device)->cl;
}

/* Calls `enqueue`, which queues kernels on the stream's queue, concurrently with other streams. A
 * kernel with more groups than ever before runs alone on its unit. */
wf_status wfi_opencl_enqueue(wfi_stream_queue *stream, bool is_wider,
                             wf_status (*enqueue)(wfi_stream_queue *stream, const void *self),
                             const void *self);
/* A queue of the first unit, for the planner, which runs before there are ranks. Errors:
 * UNSUPPORTED: no unit. */
wf_status wfi_opencl_planner(wf_context *ctx, cl_handle *queue_out);

/* Fails with "opencl: WHAT on UNIT: ERROR" if there is an error. */
wf_status wfi_opencl_check(const wfi_device *device, const char *what, cl_int error);

/* opencl.c */
extern const wfi_separate_class wfi_opencl_class;

/* ---- opencl_devices.c: functions of wfi_separate_class ---- */

wf_status wfi_opencl_find_units(wf_context *ctx, wfi_machine *machine);
void wfi_opencl_end(wfi_machine *machine);
wf_status wfi_opencl_open(wf_context *ctx, wfi_device_unit *unit);
void wfi_opencl_close(wfi_device_unit *unit);

/* ---- opencl_memory.c: functions of wfi_separate_class ---- */

wf_status wfi_opencl_memory_create(wfi_device *device, wfi_space space, size_t bytes,
                                   void **base_out);
void wfi_opencl_memory_destroy(wfi_device *device, wfi_space space, void *base, size_t bytes);
wf_status wfi_opencl_copy(wfi_device *device, wfi_stream_queue *stream, void *to, bool to_device,
                          const void *from, bool from_device, size_t bytes);
wf_status wfi_opencl_fill(wfi_device *device, wfi_stream_queue *stream, void *to, int byte,
                          size_t bytes);

/* The buffer of an address of any device's memory, and the offset in it. Errors: BUG. */
wf_status wfi_opencl_find(const wfi_device *device, const void *address, wfi_range *range_out,
                          size_t *offset_out);
/* A sub-buffer, to be released: it has `bytes` from the address on, and *offset_out bytes before
 * it. */
wf_status wfi_opencl_part(const wfi_device *device, const void *address, size_t bytes,
                          cl_handle *part_out, size_t *offset_out);
