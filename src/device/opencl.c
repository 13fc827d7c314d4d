/* OpenCL devices: streams and launches. A device has a context of its own. Each stream's thread
 * queues its tasks' work on an in-order command queue and waits for it after each task. So an event
 * of a stream is one of the device, and a late error belongs to its task. */
#include "device/opencl.h"
#include "device/thread_stream.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- streams ---- */

static wf_status opencl_queue_create(wfi_stream_queue *stream) {
    const wfi_opencl_unit *own = wfi_opencl_unit_of(stream->device);
    wfi_opencl_queue *queue = stream->queue;
    wfi_range words;
    size_t at;
    cl_int error = CL_SUCCESS;
    WF_TRY(wfi_opencl_find(stream->device, queue->queue.words, &words, &at));
    queue->words = words.object;
    queue->queue.handle =
        wfi_opencl_of(stream->device)->CreateCommandQueue(own->context, own->device, 0, &error);
    return wfi_opencl_check(stream->device, "a queue", error);
}

static void opencl_queue_destroy(wfi_stream_queue *stream) {
    const wfi_opencl *cl = wfi_opencl_of(stream->device);
    const wfi_device_queue *queue = stream->queue;
    for (size_t i = 0; i < queue->kernels.n; i++) cl->ReleaseKernel(queue->kernels.all[i].handle);
    if (queue->handle) cl->ReleaseCommandQueue(queue->handle);
}

/* Polling a completed event does not order memory. Finishing the queue does, and takes no time by
 * then. */
static wf_status opencl_look(const wfi_device *device, void *queue, void **marker,
                             bool *is_done_out) {
    const wfi_opencl *cl = wfi_opencl_of(device);
    cl_int found = 1, error = CL_SUCCESS;
    if (!*marker) {
        error = cl->EnqueueMarkerWithWaitList(queue, 0, NULL, marker);
        if (!error) error = cl->Flush(queue);
    }
    if (!error)
        error = cl->GetEventInfo(*marker, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof found, &found,
                                 NULL);
    *is_done_out = error || found <= CL_COMPLETE;
    if (!*is_done_out) return WF_OK;
    if (*marker) cl->ReleaseEvent(*marker);
    if (!error) error = found;
    if (!error) error = cl->Finish(queue);
    return wfi_opencl_check(device, "kernels and copies", error);
}

static wf_status opencl_finish_task(wfi_stream_queue *stream) {
    wfi_opencl_queue *queue = stream->queue;
    wf_status status = wfi_separate_finish_task(stream);
    if (queue->has_kernels_lock)
        pthread_rwlock_unlock(&wfi_opencl_unit_of(stream->device)->kernels_lock);
    queue->has_kernels_lock = false;
    return status;
}

static bool opencl_reaches(const wfi_device *device, const wfi_device *other) {
    return wfi_device_unit_of(device) == wfi_device_unit_of(other);
}

/* ---- programs ---- */

static wf_status fail_build(const wfi_device *device, const char *kernel, cl_handle program,
                            cl_int error) {
    const wfi_opencl_unit *own = wfi_opencl_unit_of(device);
    char *log = calloc(1, 16384), text[64];
    if (log)
        (void)wfi_opencl_of(device)->GetProgramBuildInfo(program, own->device, CL_PROGRAM_BUILD_LOG,
                                                         16383, log, NULL);
    wf_status status =
        wfi_fail(device->owner.ctx, WF_DEVICE,
                 "opencl: weft's kernel %s does not compile for %s: %s: %.700s", kernel,
                 own->unit.name, wfi_opencl_error(error, text), log ? log : "");
    free(log);
    return status;
}

/* IEEE division and square roots, if the device supports them. */
static const char *build_options(const wfi_device *device) {
    cl_ulong config = 0;
    (void)wfi_opencl_of(device)->GetDeviceInfo(wfi_opencl_unit_of(device)->device,
                                               CL_DEVICE_SINGLE_FP_CONFIG, sizeof config, &config,
                                               NULL);
    return config & CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT
               ? "-cl-std=CL1.2 -cl-fp32-correctly-rounded-divide-sqrt"
               : "-cl-std=CL1.2";
}

static wf_status opencl_target(const wfi_device *device, char text[WFI_TARGET_BYTES]) {
    const wfi_opencl_unit *own = wfi_opencl_unit_of(device);
    snprintf(text, WFI_TARGET_BYTES, "%s, %s, %s", build_options(device), own->unit.name,
             own->driver);
    return WF_OK;
}

/* Builds a created program; `error` is the result of the creation. */
static wf_status build(const wfi_device *device, const char *kernel, cl_handle program,
                       cl_int error) {
    const wfi_opencl *cl = wfi_opencl_of(device);
    WF_TRY(wfi_opencl_check(device, "a program", error));
    error = cl->BuildProgram(program, 1, &wfi_opencl_unit_of(device)->device, build_options(device),
                             NULL, NULL);
    if (!error) return WF_OK;
    wf_status status = fail_build(device, kernel, program, error);
    cl->ReleaseProgram(program);
    return status;
}

static wf_status opencl_load(const wfi_device *device, const char *kernel, unsigned char *binary,
                             size_t bytes, void **program_out) {
    const wfi_opencl_unit *own = wfi_opencl_unit_of(device);
    cl_int loaded, error = CL_SUCCESS;
    *program_out = wfi_opencl_of(device)->CreateProgramWithBinary(
        own->context, 1, &own->device, &bytes, (const unsigned char **)&binary, &loaded, &error);
    return build(device, kernel, *program_out, error);
}

static wf_status opencl_build(const wfi_device *device, const char *kernel, const char *text,
                              void **program_out, unsigned char **binary_out, size_t *bytes_out) {
    const wfi_opencl *cl = wfi_opencl_of(device);
    cl_int error = CL_SUCCESS;
    size_t bytes = 0;
    *program_out =
        cl->CreateProgramWithSource(wfi_opencl_unit_of(device)->context, 1, &text, NULL, &error);
    WF_TRY(build(device, kernel, *program_out, error));
    error = cl->GetProgramInfo(*program_out, CL_PROGRAM_BINARY_SIZES, sizeof bytes, &bytes, NULL);
    *binary_out = error || !bytes ? NULL : malloc(bytes);
    if (*binary_out && cl->GetProgramInfo(*program_out, CL_PROGRAM_BINARIES, sizeof *binary_out,
                                          binary_out, NULL)) {
        free(*binary_out);
        *binary_out = NULL;
    }
    *bytes_out = bytes;
    return WF_OK;
}

static wf_status opencl_kernel(const wfi_device *device, void *program, const char *name,
                               void **kernel_out) {
    cl_int error = CL_SUCCESS;
    *kernel_out = wfi_opencl_of(device)->CreateKernel(program, name, &error);
    return wfi_opencl_check(device, name, error);
}

/* ---- launches ---- */

/* Without `has_memories` all operands are in the first memory. */
static wf_status bind(wfi_stream_queue *stream, const wfi_kernel_launch *launch,
                      cl_handle *memories, wfi_launch_arguments *arguments) {
    *arguments = launch->arguments;
    for (int i = 0; i < WFI_LAUNCH_OPERANDS; i++) {
        wfi_range found;
        size_t offset;
        arguments->at[i] = WFI_LAUNCH_ABSENT;
        if (!launch->operands[i]) continue;
        WF_TRY(wfi_opencl_find(stream->device, launch->operands[i], &found, &offset));
        cl_handle *memory = &memories[launch->has_memories ? i : 0];
        if (found.owner != stream->device->state || (*memory && *memory != found.object))
            return wfi_fail(stream->owner->ctx, WF_UNSUPPORTED,
                            "opencl: kernel %s of rank %d reads memory of another device (%s); "
                            "ranks that are summed have to be on one device",
                            launch->source->entries[launch->entry], stream->owner->rank,
                            ((const wfi_device_unit *)found.owner)->name);
        *memory = found.object;
        arguments->at[i] = offset;
    }
    return WF_OK;
}

static wf_status launch_kernel(wfi_stream_queue *stream, const void *self) {
    const wfi_kernel_launch *launch = self;
    const wfi_opencl *cl = wfi_opencl_of(stream->device);
    const wfi_opencl_queue *queue = stream->queue;
    cl_handle kernel, memories[WFI_LAUNCH_MEMORIES] = {NULL};
    wfi_launch_arguments arguments;
    WF_TRY(wfi_separate_kernel(stream, launch, &kernel));
    WF_TRY(bind(stream, launch, memories, &arguments));
    cl_uint n_memories = launch->has_memories ? WFI_LAUNCH_MEMORIES : 1;
    cl_int error = CL_SUCCESS;
    for (cl_uint i = 0; i < n_memories && !error; i++)
        error = cl->SetKernelArg(kernel, i, sizeof memories[i],
                                 memories[i] ? &memories[i] : &memories[0]);
    if (!error) error = cl->SetKernelArg(kernel, n_memories, sizeof queue->words, &queue->words);
    if (!error) error = cl->SetKernelArg(kernel, n_memories + 1, sizeof arguments, &arguments);
    size_t local = WFI_GROUP_SIZE, global = (size_t)launch->n_groups * local;
    if (!error)
        error = cl->EnqueueNDRangeKernel(queue->queue.handle, kernel, 1, NULL, &global, &local, 0,
                                         NULL, NULL);
    return wfi_opencl_check(stream->device, launch->source->entries[launch->entry], error);
}

static wf_status launch_wider(wfi_stream_queue *stream, const void *self) {
    const wfi_kernel_launch *launch = self;
    WF_TRY(launch_kernel(stream, launch));
    return wfi_built_add(stream->owner->ctx, &wfi_opencl_unit_of(stream->device)->widths, launch,
                         (void *)(intptr_t)launch->n_groups);
}

static void lock_kernels(wfi_stream_queue *stream) {
    wfi_opencl_queue *queue = stream->queue;
    if (!queue->has_kernels_lock)
        pthread_rwlock_rdlock(&wfi_opencl_unit_of(stream->device)->kernels_lock);
    queue->has_kernels_lock = true;
}

/* PoCL 3.1 confuses launches of a kernel, and aborts, if one with more groups than any before runs
 * concurrently with others. So such a launch runs alone on its unit. */
wf_status wfi_opencl_enqueue(wfi_stream_queue *stream, bool is_wider,
                             wf_status (*enqueue)(wfi_stream_queue *stream, const void *self),
                             const void *self) {
    wfi_opencl_unit *unit = wfi_opencl_unit_of(stream->device);
    lock_kernels(stream);
    if (!is_wider) return enqueue(stream, self);
    WF_TRY(opencl_finish_task(stream));
    pthread_rwlock_wrlock(&unit->kernels_lock);
    wf_status status = enqueue(stream, self);
    if (status == WF_OK) status = wfi_separate_finish_task(stream);
    pthread_rwlock_unlock(&unit->kernels_lock);
    return status;
}

static wf_status opencl_launch(wfi_stream_queue *stream, const wfi_kernel_launch *launch) {
    const wfi_opencl_unit *unit = wfi_opencl_unit_of(stream->device);
    if (!launch->n_groups) return WF_OK;
    lock_kernels(stream); /* for `widths` */
    bool is_wider = (intptr_t)wfi_built_find(&unit->widths, launch) < launch->n_groups;
    return wfi_opencl_enqueue(stream, is_wider, is_wider ? launch_wider : launch_kernel, launch);
}

static wf_status create_machine(wf_context *ctx, void **machine_out) {
    return wfi_machine_create(ctx, &wfi_opencl_class, machine_out);
}

const wfi_separate_class wfi_opencl_class = {
    .noun = "device",
    .shared = {create_machine, wfi_machine_destroy},
    .machine_bytes = sizeof(wfi_opencl_machine),
    .units_at = offsetof(wfi_opencl_machine, units),
    .unit_bytes = sizeof(wfi_opencl_unit),
    .queue_bytes = sizeof(wfi_opencl_queue),
    .find = wfi_opencl_find_units,
    .end = wfi_opencl_end,
    .open = wfi_opencl_open,
    .close = wfi_opencl_close,
    .memory_create = wfi_opencl_memory_create,
    .memory_destroy = wfi_opencl_memory_destroy,
    .copy = wfi_opencl_copy,
    .fill = wfi_opencl_fill,
    .queue_create = opencl_queue_create,
    .queue_destroy = opencl_queue_destroy,
    .look = opencl_look,
    .target = opencl_target,
    .load = opencl_load,
    .build = opencl_build,
    .kernel = opencl_kernel,
};

const wfi_device_class wfi_device_opencl = {
    .name = "opencl",
    .separate = &wfi_opencl_class,
    WFI_SEPARATE_DEVICE,
    .reaches = opencl_reaches,
    .finish_task = opencl_finish_task,
    .launch = opencl_launch,
    .report_words = wfi_separate_report_words,
};
