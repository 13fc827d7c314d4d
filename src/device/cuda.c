/* CUDA devices, over the driver's interface. Ranks share their GPU's primary context, so that
 * libraries of CUDA can access weft's memory. Each stream's thread queues its tasks' work on a
 * CUstream of its own. CUDA events order these streams (cuda_events.h). */
#include "device/cuda_events.h"
#include "device/cuda_program.h"
#include "device/thread_stream.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define MOST_CODE_BYTES ((size_t)512 << 20)

static const wfi_separate_class cuda;

static const wfi_cuda *driver_of(const wfi_cuda_gpu *gpu) {
    return &((const wfi_cuda_machine *)(const void *)gpu->unit.machine)->driver;
}

static wf_status check_gpu(wf_context *ctx, const wfi_cuda_gpu *gpu, const char *what,
                           wfi_cuda_enum error) {
    char text[WFI_CUDA_ERROR_TEXT];
    if (!error) return WF_OK;
    return wfi_fail(ctx, error == WFI_CUDA_OUT_OF_MEMORY ? WF_NO_MEMORY : WF_DEVICE,
                    "cuda: %s on GPU %d, %s: %s", what, gpu->unit.number, gpu->unit.name,
                    wfi_cuda_error(driver_of(gpu), error, text));
}

wf_status wfi_cuda_check(const wfi_device *device, const char *what, wfi_cuda_enum error) {
    return check_gpu(device->owner.ctx, wfi_cuda_gpu_of(device), what, error);
}

/* ---- contexts ---- */

static wfi_cuda_enum push(const wfi_cuda_gpu *gpu) {
    return driver_of(gpu)->CtxPushCurrent(gpu->context);
}

static void pop(const wfi_cuda_gpu *gpu) {
    CUcontext ignored;
    driver_of(gpu)->CtxPopCurrent(&ignored);
}

wf_status wfi_cuda_push(const wfi_device *device) {
    return wfi_cuda_check(device, "its context", push(wfi_cuda_gpu_of(device)));
}

void wfi_cuda_pop(const wfi_device *device) {
    pop(wfi_cuda_gpu_of(device));
}

/* ---- finding GPUs ---- */

static wfi_cuda_enum ask(const wfi_cuda *driver, wfi_cuda_gpu *gpu) {
    wfi_device_unit *unit = &gpu->unit;
    wfi_cuda_enum error = driver->DeviceGet(&gpu->device, unit->number);
    if (!error) error = driver->DeviceGetName(unit->name, sizeof unit->name - 1, gpu->device);
    if (!error)
        error = driver->DeviceGetAttribute(&gpu->major, WFI_CUDA_CAPABILITY_MAJOR, gpu->device);
    if (!error)
        error = driver->DeviceGetAttribute(&gpu->minor, WFI_CUDA_CAPABILITY_MINOR, gpu->device);
    snprintf(unit->about, sizeof unit->about, " (sm_%d%d)", gpu->major, gpu->minor);
    return error;
}

static wf_status cuda_find(wf_context *ctx, wfi_machine *machine) {
    wfi_cuda_machine *all = (void *)machine;
    const wfi_cuda *driver = &all->driver;
    char text[WFI_CUDA_ERROR_TEXT];
    int n = 0;
    WF_TRY(wfi_cuda_load(ctx, &all->driver, &all->version));
    wfi_cuda_enum error = driver->DeviceGetCount(&n);
    if (!error && !n) error = WFI_CUDA_NO_DEVICE;
    machine->n_units = n < WFI_MOST_UNITS ? n : WFI_MOST_UNITS;
    for (int i = 0; i < machine->n_units && !error; i++) error = ask(driver, &all->gpus[i]);
    return error ? wfi_fail(ctx, WF_UNSUPPORTED, "cuda: the driver does not report its GPUs: %s",
                            wfi_cuda_error(driver, error, text))
                 : WF_OK;
}

static wf_status cuda_find_compiler(wf_context *ctx, const wfi_machine *machine) {
    wfi_nvrtc compiler;
    return wfi_nvrtc_load(ctx, ((const wfi_cuda_machine *)(const void *)machine)->version,
                          &compiler);
}

static wf_status create_machine(wf_context *ctx, void **machine_out) {
    return wfi_machine_create(ctx, &cuda, machine_out);
}

/* Errors of a lost GPU are ignored: its resources end with the process. */
static void cuda_close(wfi_device_unit *unit) {
    wfi_cuda_gpu *gpu = (void *)unit;
    const wfi_cuda *driver = driver_of(gpu);
    if (!gpu->context || wfi_device_unit_hangs(unit)) return;
    push(gpu);
    for (size_t i = 0; i < unit->programs.n; i++)
        driver->ModuleUnload(unit->programs.all[i].handle);
    if (unit->host_queue) driver->StreamDestroy(unit->host_queue);
    pop(gpu);
    driver->DevicePrimaryCtxRelease(gpu->device);
    gpu->context = NULL;
}

/* Enables access from `own` to the memory of `other`, if the machine supports it. */
static void reach_peer(wfi_cuda_gpu *own, const wfi_cuda_gpu *other) {
    const wfi_cuda *driver = driver_of(own);
    int can = 0;
    if (driver->DeviceCanAccessPeer(&can, own->device, other->device) || !can) return;
    if (push(own)) return;
    wfi_cuda_enum error = driver->CtxEnablePeerAccess(other->context, 0);
    pop(own);
    if (!error || error == WFI_CUDA_PEER_ALREADY) own->peers |= UINT64_C(1) << other->unit.number;
}

static wf_status cuda_open(wf_context *ctx, wfi_device_unit *unit) {
    wfi_cuda_gpu *own = (void *)unit;
    const wfi_cuda *driver = driver_of(own);
    CUstream stream = NULL;
    wfi_cuda_enum error = driver->DevicePrimaryCtxRetain(&own->context, own->device);
    if (!error) error = push(own);
    if (!error) {
        error = driver->StreamCreate(&stream, WFI_CUDA_NON_BLOCKING);
        pop(own);
    }
    unit->host_queue = stream;
    own->peers = UINT64_C(1) << unit->number;
    for (int i = 0; i < unit->machine->n_units && !error; i++) {
        wfi_cuda_gpu *other = (void *)unit->machine->units[i];
        if (other == own || !other->context) continue;
        reach_peer(own, other);
        reach_peer(other, own);
    }
    wf_status status = check_gpu(ctx, own, "a context", error);
    if (status != WF_OK) cuda_close(unit);
    return status;
}

/* Libraries load code at first use, so some memory is left for it. */
static size_t without_code(size_t n_free) {
    size_t eighth = n_free / 8;
    return n_free - (eighth < MOST_CODE_BYTES ? eighth : MOST_CODE_BYTES);
}

static wf_status cuda_find_free(wf_context *ctx, int place, int *unit_out, size_t *free_bytes_out) {
    wfi_device_unit *unit;
    size_t total;
    WF_TRY(wfi_device_unit_find(ctx, &cuda, place, &unit));
    const wfi_cuda_gpu *gpu = (const void *)unit;
    wfi_cuda_enum error = push(gpu);
    if (!error) {
        error = driver_of(gpu)->MemGetInfo(free_bytes_out, &total);
        pop(gpu);
    }
    if (!error) *free_bytes_out = without_code(*free_bytes_out);
    *unit_out = unit->number;
    return check_gpu(ctx, gpu, "its memory", error);
}

static bool cuda_reaches(const wfi_device *device, const wfi_device *other) {
    return wfi_cuda_gpu_of(device)->peers >> wfi_device_unit_of(other)->number & 1;
}

/* ---- streams ---- */

static wf_status cuda_look(const wfi_device *device, void *queue, void **marker,
                           bool *is_done_out) {
    wfi_cuda_enum error = wfi_cuda_driver(device)->StreamQuery(queue);
    (void)marker;
    *is_done_out = error != WFI_CUDA_NOT_READY;
    return *is_done_out ? wfi_cuda_check(device, "kernels and copies", error) : WF_OK;
}

static wf_status cuda_queue_create(wfi_stream_queue *stream) {
    wfi_device_queue *queue = stream->queue;
    CUstream made = NULL;
    wfi_cuda_enum error =
        wfi_cuda_driver(stream->device)->StreamCreate(&made, WFI_CUDA_NON_BLOCKING);
    queue->handle = made;
    return wfi_cuda_check(stream->device, "a stream", error);
}

static void cuda_queue_destroy(wfi_stream_queue *stream) {
    const wfi_cuda *driver = wfi_cuda_driver(stream->device);
    wfi_cuda_events_destroy(driver, stream->queue);
    if (wfi_cuda_stream(stream)) driver->StreamDestroy(wfi_cuda_stream(stream));
}

/* ---- memory ---- */

static CUdeviceptr address_of(const void *at) {
    return (CUdeviceptr)(uintptr_t)at;
}

static wf_status cuda_memory_create(wfi_device *device, wfi_space space, size_t bytes,
                                    void **base_out) {
    const wfi_cuda *driver = wfi_cuda_driver(device);
    size_t n_free = 0, n_total = 0;
    CUdeviceptr at = 0;
    char what[128];
    if (space == WFI_SPACE_HOST) {
        WF_TRY(wfi_cuda_check(device, "pinned host memory",
                              driver->MemHostAlloc(base_out, bytes, WFI_CUDA_PORTABLE)));
        memset(*base_out, 0, bytes);
        return WF_OK;
    }
    if (driver->MemGetInfo(&n_free, &n_total)) n_free = 0;
    snprintf(what, sizeof what, "%zu bytes of %s memory (of %zu, %zu are free)", bytes,
             wfi_space_name(space), n_total, n_free);
    WF_TRY(wfi_cuda_check(device, what, driver->MemAlloc(&at, bytes)));
    *base_out = (void *)(uintptr_t)at;
    wf_status status = wfi_memory_fill(device, NULL, *base_out, space, 0, bytes);
    if (status != WF_OK) driver->MemFree(at);
    return status;
}

static void cuda_memory_destroy(wfi_device *device, wfi_space space, void *base, size_t bytes) {
    const wfi_cuda *driver = wfi_cuda_driver(device);
    (void)bytes;
    if (space == WFI_SPACE_HOST)
        driver->MemFreeHost(base);
    else
        driver->MemFree(address_of(base));
}

/* The driver copies between GPUs, directly if they are peers. For memory that is not pinned the
 * driver itself waits, without a deadline. */
static wf_status cuda_copy(wfi_device *device, wfi_stream_queue *stream, void *to, bool to_device,
                           const void *from, bool from_device, size_t bytes) {
    const wfi_cuda *driver = wfi_cuda_driver(device);
    CUstream queue = wfi_separate_queue(device, stream);
    if (!to_device || !from_device) WF_TRY(wfi_separate_finish(device, stream));
    return wfi_cuda_check(
        device, "a copy",
        !to_device     ? driver->MemcpyDtoHAsync(to, address_of(from), bytes, queue)
        : !from_device ? driver->MemcpyHtoDAsync(address_of(to), from, bytes, queue)
                       : driver->MemcpyAsync(address_of(to), address_of(from), bytes, queue));
}

static wf_status cuda_fill(wfi_device *device, wfi_stream_queue *stream, void *to, int byte,
                           size_t bytes) {
    CUstream queue = wfi_separate_queue(device, stream);
    return wfi_cuda_check(
        device, "setting memory",
        wfi_cuda_driver(device)->MemsetD8Async(address_of(to), (unsigned char)byte, bytes, queue));
}

/* ---- kernels ---- */

static wf_status find_function(const wfi_device *device, void *program, const char *name,
                               void **kernel_out) {
    CUfunction function = NULL;
    wfi_cuda_enum error = wfi_cuda_driver(device)->ModuleGetFunction(&function, program, name);
    *kernel_out = function;
    return wfi_cuda_check(device, name, error);
}

static wf_status cuda_launch(wfi_stream_queue *stream, const wfi_kernel_launch *launch) {
    const wfi_device_queue *queue = stream->queue;
    wfi_launch_arguments arguments = launch->arguments;
    CUdeviceptr base = 0, words = address_of(queue->words);
    void *parameters[WFI_LAUNCH_MEMORIES + 2], *function;
    int n = 0;
    if (!launch->n_groups) return WF_OK;
    WF_TRY(wfi_separate_kernel(stream, launch, &function));
    for (int i = 0; i < WFI_LAUNCH_OPERANDS; i++) {
        const void *at = launch->operands[i];
        arguments.at[i] = at ? address_of(at) : WFI_LAUNCH_ABSENT;
    }
    while (n < (launch->has_memories ? WFI_LAUNCH_MEMORIES : 1)) parameters[n++] = &base;
    parameters[n++] = &words;
    parameters[n++] = &arguments;
    return wfi_cuda_check(stream->device, launch->source->entries[launch->entry],
                          wfi_cuda_driver(stream->device)
                              ->LaunchKernel(function, (unsigned)launch->n_groups, 1, 1,
                                             WFI_GROUP_SIZE, 1, 1, 0, queue->handle, parameters,
                                             NULL));
}

static const wfi_separate_class cuda = {
    .noun = "GPU",
    .shared = {create_machine, wfi_machine_destroy},
    .machine_bytes = sizeof(wfi_cuda_machine),
    .units_at = offsetof(wfi_cuda_machine, gpus),
    .unit_bytes = sizeof(wfi_cuda_gpu),
    .queue_bytes = sizeof(wfi_cuda_events),
    .find = cuda_find,
    .check = cuda_find_compiler,
    .open = cuda_open,
    .close = cuda_close,
    .enter = wfi_cuda_push,
    .leave = wfi_cuda_pop,
    .memory_create = cuda_memory_create,
    .memory_destroy = cuda_memory_destroy,
    .copy = cuda_copy,
    .fill = cuda_fill,
    .queue_create = cuda_queue_create,
    .queue_destroy = cuda_queue_destroy,
    .look = cuda_look,
    .target = wfi_cuda_target,
    .load = wfi_cuda_load_module,
    .build = wfi_cuda_build,
    .kernel = find_function,
};

const wfi_device_class wfi_device_cuda = {
    .name = "cuda",
    .separate = &cuda,
    WFI_SEPARATE_DEVICE,
    .reaches = cuda_reaches,
    .finish_task = wfi_separate_finish_task,
    .record = wfi_cuda_record,
    .look = wfi_cuda_look,
    .follow = wfi_cuda_follow,
    .mark = wfi_cuda_mark_time,
    .launch = cuda_launch,
    .report_words = wfi_cuda_report_words,
    .capture = wfi_cuda_capture,
    .replay = wfi_cuda_replay,
    .forget = wfi_cuda_forget,
    .find_free = cuda_find_free,
};
