/* OpenCL devices: what opencl_devices.c (which there are), opencl_memory.c (memory and copies) and
 * opencl.c (streams and launches) share. Private to them and kernel/opencl.
 */
#ifndef WFI_OPENCL_H
#define WFI_OPENCL_H

#include "device/opencl_library.h"
#include "device/ranges.h"
#include "device/separate.h"

/* Where a part of a buffer may begin; devices say fewer bytes. */
#define WFI_OPENCL_PART_ALIGN ((size_t)4096)

typedef struct wfi_opencl_unit {
    wfi_device_unit unit;
    cl_handle device, context;
    pthread_rwlock_t beside; /* of tasks with kernels: for writing, that of one which is alone */
    wfi_built_list widths;   /* most groups that each kernel has had; under `beside` */
    char driver[128];
} wfi_opencl_unit;

typedef struct wfi_opencl_machine {
    wfi_machine machine;
    wfi_opencl cl;
    wfi_opencl_unit units[WFI_MOST_UNITS];
    wfi_ranges ranges; /* addresses that are reserved: the unit, and the buffer they stand for */
} wfi_opencl_machine;

/* wfi_stream_queue.queue */
typedef struct wfi_opencl_queue {
    wfi_device_queue queue;
    cl_handle words; /* the buffer that has them */
    bool is_beside;  /* the unit's lock is held for reading, until the task's end */
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

/* Calls what puts kernels on the stream's queue, beside those of others; one that has more groups
 * than ever before is alone on its unit. */
wf_status wfi_opencl_enqueue(wfi_stream_queue *stream, bool is_wider,
                             wf_status (*enqueue)(wfi_stream_queue *stream, const void *self),
                             const void *self);
/* Of the first unit, for who asks before there are ranks. Errors: UNSUPPORTED: there is none. */
wf_status wfi_opencl_planner(wf_context *ctx, cl_handle *queue_out);

/* "opencl: WHAT on UNIT: ERROR", if there is one. */
wf_status wfi_opencl_check(const wfi_device *device, const char *what, cl_int error);

/* opencl.c: the class. */
extern const wfi_separate_class wfi_opencl_class;

/* ---- opencl_devices.c, of wfi_separate_class ---- */

wf_status wfi_opencl_find_units(wf_context *ctx, wfi_machine *machine);
void wfi_opencl_end(wfi_machine *machine);
wf_status wfi_opencl_open(wf_context *ctx, wfi_device_unit *unit);
void wfi_opencl_close(wfi_device_unit *unit);

/* ---- opencl_memory.c, likewise ---- */

wf_status wfi_opencl_memory_create(wfi_device *device, wfi_space space, size_t bytes,
                                   void **base_out);
void wfi_opencl_memory_destroy(wfi_device *device, wfi_space space, void *base, size_t bytes);
wf_status wfi_opencl_copy(wfi_device *device, wfi_stream_queue *stream, void *to, bool to_device,
                          const void *from, bool from_device, size_t bytes);
wf_status wfi_opencl_fill(wfi_device *device, wfi_stream_queue *stream, void *to, int byte,
                          size_t bytes);

/* The buffer behind an address of some device's memory, and the offset in it. Errors: BUG. */
wf_status wfi_opencl_find(const wfi_device *device, const void *address, wfi_range *range_out,
                          size_t *offset_out);
/* A part of that buffer as one of its own, to be released: `bytes` from the address on, and some
 * before it, of which *offset_out says how many. */
wf_status wfi_opencl_part(const wfi_device *device, const void *address, size_t bytes,
                          cl_handle *part_out, size_t *offset_out);

#endif
