/* CUDA devices, by the driver's interface. Ranks share their GPU's primary context, so that
 * libraries of CUDA's find what weft has on it; each stream's thread queues what its tasks ask for
 * on a CUstream of its own. Events of the device's order these (cuda_events.h).
 */
#include "device/bounce.h"
#include "device/cuda_events.h"
#include "device/cuda_program.h"
#include "device/disk.h"
#include "device/thread_stream.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_GPUS       64
#define MOST_CODE_BYTES ((size_t)512 << 20)

/* What ranks of a GPU share. */
typedef struct unit {
    wfi_cuda_gpu gpu;
    CUstream host_stream; /* of what the host asks for */
    wfi_built_list modules;
    uint64_t peers; /* GPUs whose memory its kernels reach */
} unit;

/* Of the whole context. */
typedef struct cuda {
    wfi_cuda driver;
    int version;
    unit units[MOST_GPUS];
    int n_units;
    pthread_mutex_t lock; /* of what is made of units when it is needed */
} cuda;

/* wfi_device.state */
typedef struct cuda_device {
    cuda *all;
    unit *unit;
} cuda_device;

/* wfi_stream_queue.queue */
typedef struct cuda_queue {
    CUstream stream;
    CUdeviceptr words;
    wfi_built_list kernels; /* of the unit's modules */
    wfi_cuda_events events;
} cuda_queue;

wf_status wfi_cuda_check(wf_context *ctx, const wfi_cuda *driver, const wfi_cuda_gpu *gpu,
                         const char *what, wfi_cuda_enum error) {
    char text[WFI_CUDA_ERROR_TEXT];
    if (!error) return WF_OK;
    return wfi_fail(ctx, error == WFI_CUDA_OUT_OF_MEMORY ? WF_NO_MEMORY : WF_DEVICE,
                    "cuda: %s on GPU %d, %s: %s", what, gpu->ordinal, gpu->name,
                    wfi_cuda_error(driver, error, text));
}

/* ---- which GPUs there are ---- */

static wfi_cuda_enum find_unit(const wfi_cuda *driver, int ordinal, wfi_cuda_gpu *gpu) {
    wfi_cuda_enum error = driver->DeviceGet(&gpu->device, ordinal);
    gpu->ordinal = ordinal;
    if (!error) error = driver->DeviceGetName(gpu->name, sizeof gpu->name - 1, gpu->device);
    if (!error)
        error = driver->DeviceGetAttribute(&gpu->major, WFI_CUDA_CAPABILITY_MAJOR, gpu->device);
    if (!error)
        error = driver->DeviceGetAttribute(&gpu->minor, WFI_CUDA_CAPABILITY_MINOR, gpu->device);
    return error;
}

static wf_status find_units(wf_context *ctx, cuda *all) {
    const wfi_cuda *driver = &all->driver;
    char text[WFI_CUDA_ERROR_TEXT];
    WF_TRY(wfi_cuda_load(ctx, &all->driver, &all->version));
    wfi_cuda_enum error = driver->DeviceGetCount(&all->n_units);
    if (!error && !all->n_units) error = WFI_CUDA_NO_DEVICE;
    if (all->n_units > MOST_GPUS) all->n_units = MOST_GPUS;
    for (int i = 0; i < all->n_units && !error; i++)
        error = find_unit(driver, i, &all->units[i].gpu);
    return error ? wfi_fail(ctx, WF_UNSUPPORTED, "cuda: the driver tells nothing of its GPUs: %s",
                            wfi_cuda_error(driver, error, text))
                 : WF_OK;
}

static wf_status create_all(wf_context *ctx, void **shared_out) {
    cuda *all = calloc(1, sizeof *all);
    if (!all) return wfi_no_memory(ctx, sizeof *all, "CUDA's devices");
    wf_status status = find_units(ctx, all);
    if (status != WF_OK) {
        free(all);
        return status;
    }
    pthread_mutex_init(&all->lock, NULL);
    *shared_out = all;
    return WF_OK;
}

/* What a lost GPU answers changes nothing: the rest goes with the process. */
static void close_unit(const wfi_cuda *driver, unit *own) {
    CUcontext ignored;
    if (wfi_cuda_hangs(&own->gpu)) free(own->modules.all);
    if (!own->gpu.context || wfi_cuda_hangs(&own->gpu)) return;
    driver->CtxPushCurrent(own->gpu.context);
    for (size_t i = 0; i < own->modules.n; i++) driver->ModuleUnload(own->modules.all[i].handle);
    free(own->modules.all);
    if (own->host_stream) driver->StreamDestroy(own->host_stream);
    driver->CtxPopCurrent(&ignored);
    driver->DevicePrimaryCtxRelease(own->gpu.device);
    own->gpu.context = NULL;
}

static void destroy_all(void *shared) {
    cuda *all = shared;
    for (int i = 0; i < all->n_units; i++) close_unit(&all->driver, &all->units[i]);
    pthread_mutex_destroy(&all->lock);
    free(all);
}

static const wfi_shared_kind shared_kind = {create_all, destroy_all};

static wf_status cuda_describe(wf_context *ctx, char *text, size_t bytes) {
    void *shared;
    WF_TRY(wfi_context_share(ctx, &shared_kind, &shared));
    const cuda *all = shared;
    int n = snprintf(text, bytes, "%d device%s:", all->n_units, all->n_units == 1 ? "" : "s");
    for (int i = 0; i < all->n_units && n >= 0 && (size_t)n < bytes; i++)
        n += snprintf(text + n, bytes - (size_t)n, "%s %d %s (sm_%d%d)", i ? "," : "", i,
                      all->units[i].gpu.name, all->units[i].gpu.major, all->units[i].gpu.minor);
    wfi_nvrtc compiler;
    if (wfi_nvrtc_load(ctx, all->version, &compiler) != WF_OK && n >= 0 && (size_t)n < bytes)
        snprintf(text + n, bytes - (size_t)n, "; %s", wf_context_error(ctx));
    return WF_OK;
}

/* ---- a rank's device ---- */

static const cuda_device *state_of(const wfi_device *device) {
    return device->state;
}

const wfi_cuda *wfi_cuda_driver(const wfi_device *device) {
    return &state_of(device)->all->driver;
}

const wfi_cuda_gpu *wfi_cuda_gpu_of(const wfi_device *device) {
    return &state_of(device)->unit->gpu;
}

CUstream wfi_cuda_stream(const wfi_stream_queue *stream) {
    return ((const cuda_queue *)stream->queue)->stream;
}

wfi_cuda_events *wfi_cuda_events_of(const wfi_stream_queue *stream) {
    return &((cuda_queue *)stream->queue)->events;
}

static wf_status check(const wfi_device *device, const char *what, wfi_cuda_enum error) {
    return wfi_cuda_check(device->owner.ctx, wfi_cuda_driver(device), wfi_cuda_gpu_of(device), what,
                          error);
}

wf_status wfi_cuda_push(const wfi_device *device) {
    return check(device, "its context",
                 wfi_cuda_driver(device)->CtxPushCurrent(wfi_cuda_gpu_of(device)->context));
}

void wfi_cuda_pop(const wfi_device *device) {
    CUcontext ignored;
    wfi_cuda_driver(device)->CtxPopCurrent(&ignored);
}

/* `own` reaches `other`'s memory from here on, if the machine can. */
static void reach_peer(const wfi_cuda *driver, unit *own, const unit *other) {
    CUcontext ignored;
    int can = 0;
    if (driver->DeviceCanAccessPeer(&can, own->gpu.device, other->gpu.device) || !can) return;
    if (driver->CtxPushCurrent(own->gpu.context)) return;
    wfi_cuda_enum error = driver->CtxEnablePeerAccess(other->gpu.context, 0);
    driver->CtxPopCurrent(&ignored);
    if (!error || error == WFI_CUDA_PEER_ALREADY) own->peers |= UINT64_C(1) << other->gpu.ordinal;
}

/* The lock is held. */
static wf_status open_unit(wf_context *ctx, cuda *all, unit *own) {
    const wfi_cuda *driver = &all->driver;
    CUcontext ignored;
    if (own->gpu.context) return WF_OK;
    wfi_cuda_enum error = driver->DevicePrimaryCtxRetain(&own->gpu.context, own->gpu.device);
    if (!error) error = driver->CtxPushCurrent(own->gpu.context);
    if (!error) {
        error = driver->StreamCreate(&own->host_stream, WFI_CUDA_NON_BLOCKING);
        driver->CtxPopCurrent(&ignored);
    }
    own->peers = UINT64_C(1) << own->gpu.ordinal;
    for (int i = 0; i < all->n_units && !error; i++) {
        if (&all->units[i] == own || !all->units[i].gpu.context) continue;
        reach_peer(driver, own, &all->units[i]);
        reach_peer(driver, &all->units[i], own);
    }
    wf_status status = wfi_cuda_check(ctx, driver, &own->gpu, "a context", error);
    if (status != WF_OK) close_unit(driver, own);
    return status;
}

static wf_status find_unit_of(wf_context *ctx, int place, cuda_device *own_out) {
    void *shared;
    WF_TRY(wfi_context_share(ctx, &shared_kind, &shared));
    cuda *all = shared;
    *own_out = (cuda_device){all, &all->units[place % all->n_units]};
    pthread_mutex_lock(&all->lock);
    wf_status status = open_unit(ctx, all, own_out->unit);
    pthread_mutex_unlock(&all->lock);
    return status;
}

static wf_status cuda_create(wfi_device *device) {
    wf_context *ctx = device->owner.ctx;
    cuda_device own, *state = wfi_alloc(ctx, 1, sizeof *state, "a device");
    if (!state) return WF_NO_MEMORY;
    wf_status status = find_unit_of(ctx, device->place, &own);
    if (status != WF_OK) {
        wfi_free(ctx, state);
        return status;
    }
    *state = own;
    device->state = state;
    wfi_log(ctx, WF_LOG_INFO, "device", "rank %d: GPU %d of %d, %s", device->owner.rank,
            own.unit->gpu.ordinal, own.all->n_units, own.unit->gpu.name);
    return WF_OK;
}

/* Libraries load code when they first need it: some room is left for that. */
static size_t without_code(size_t n_free) {
    size_t eighth = n_free / 8;
    return n_free - (eighth < MOST_CODE_BYTES ? eighth : MOST_CODE_BYTES);
}

static wf_status cuda_find_free(wf_context *ctx, int place, int *unit_out, size_t *free_bytes_out) {
    cuda_device own;
    size_t total;
    WF_TRY(find_unit_of(ctx, place, &own));
    const wfi_cuda *driver = &own.all->driver;
    wfi_cuda_enum error = driver->CtxPushCurrent(own.unit->gpu.context);
    CUcontext ignored;
    if (!error) {
        error = driver->MemGetInfo(free_bytes_out, &total);
        driver->CtxPopCurrent(&ignored);
    }
    if (!error) *free_bytes_out = without_code(*free_bytes_out);
    *unit_out = own.unit->gpu.ordinal;
    return wfi_cuda_check(ctx, driver, &own.unit->gpu, "its memory", error);
}

static void cuda_destroy(wfi_device *device) {
    wfi_free(device->owner.ctx, device->state);
}

static bool cuda_reaches(const wfi_device *device, const wfi_device *other) {
    return state_of(device)->unit->peers >> wfi_cuda_gpu_of(other)->ordinal & 1;
}

static wf_status cuda_enter_thread(wfi_device *device) {
    return check(device, "its context",
                 wfi_cuda_driver(device)->CtxSetCurrent(wfi_cuda_gpu_of(device)->context));
}

/* ---- streams ---- */

static CUstream stream_of(const wfi_device *device, const wfi_stream_queue *stream) {
    return stream ? wfi_cuda_stream(stream) : state_of(device)->unit->host_stream;
}

static wf_status give_up(const wfi_device *device, const wfi_stream_queue *stream,
                         const wfi_device_wait *wait) {
    wfi_cuda_gpu *gpu = &state_of(device)->unit->gpu;
    char what[sizeof gpu->name + 32];
    __atomic_store_n(&gpu->hangs, 1, __ATOMIC_RELAXED);
    snprintf(what, sizeof what, "GPU %d, %s,", gpu->ordinal, gpu->name);
    return wfi_device_hangs(device, stream, what, wait);
}

static wf_status cuda_give_up(wfi_stream_queue *stream, const wfi_device_wait *wait) {
    return give_up(stream->device, stream, wait);
}

wf_status wfi_cuda_given_up(const wfi_device *device) {
    const wfi_cuda_gpu *gpu = wfi_cuda_gpu_of(device);
    WF_TRY(wfi_owner_check(&device->owner));
    return wfi_fail(device->owner.ctx, WF_TIMEOUT,
                    "cuda: GPU %d, %s, hangs: it has not ended what it was asked for before",
                    gpu->ordinal, gpu->name);
}

/* Earlier tasks are counted as they are done: others may wait for them. */
static wf_status finish(const wfi_device *device, wfi_stream_queue *stream) {
    if (stream && stream->state) wfi_thread_stream_drain(stream);
    if (wfi_cuda_hangs(wfi_cuda_gpu_of(device))) return wfi_cuda_given_up(device);
    wfi_device_wait wait = wfi_device_wait_begin(device);
    for (;;) {
        wfi_cuda_enum error = wfi_cuda_driver(device)->StreamQuery(stream_of(device, stream));
        if (error != WFI_CUDA_NOT_READY) return check(device, "kernels and copies", error);
        if (!wfi_device_wait_on(&wait)) return give_up(device, stream, &wait);
    }
}

static wf_status cuda_finish_task(wfi_stream_queue *stream) {
    return finish(stream->device, stream);
}

static void cuda_stream_destroy(wfi_stream_queue *stream) {
    const wfi_cuda *driver = wfi_cuda_driver(stream->device);
    cuda_queue *queue = stream->queue;
    if (!wfi_cuda_hangs(wfi_cuda_gpu_of(stream->device))) {
        wf_status pushed = wfi_cuda_push(stream->device);
        wfi_cuda_events_destroy(driver, &queue->events);
        if (queue->words) driver->MemFree(queue->words);
        if (queue->stream) driver->StreamDestroy(queue->stream);
        if (pushed == WF_OK) wfi_cuda_pop(stream->device);
    }
    free(queue->kernels.all);
    wfi_free(stream->owner->ctx, queue);
}

static wf_status create_queue(const wfi_device *device, wfi_stream_queue *stream) {
    cuda_queue *queue = stream->queue;
    const wfi_cuda *driver = wfi_cuda_driver(device);
    size_t bytes = WFI_LAUNCH_WORDS * sizeof(int32_t);
    WF_TRY(check(device, "a stream", driver->StreamCreate(&queue->stream, WFI_CUDA_NON_BLOCKING)));
    WF_TRY(check(device, "memory of a stream", driver->MemAlloc(&queue->words, bytes)));
    WF_TRY(check(device, "memory of a stream",
                 driver->MemsetD8Async(queue->words, 0, bytes, queue->stream)));
    return finish(device, stream);
}

static wf_status cuda_stream_create(wfi_device *device, wfi_stream_queue *stream,
                                    wfi_shared_epoch *counter) {
    cuda_queue *queue = wfi_alloc(device->owner.ctx, 1, sizeof *queue, "a stream");
    if (!queue) return WF_NO_MEMORY;
    stream->queue = queue;
    wf_status status = wfi_cuda_push(device);
    if (status == WF_OK) {
        status = create_queue(device, stream);
        wfi_cuda_pop(device);
    }
    if (status == WF_OK) status = wfi_thread_stream_create(device, stream, counter);
    if (status != WF_OK) cuda_stream_destroy(stream);
    return status;
}

/* ---- memory ---- */

static CUdeviceptr address_of(const void *at) {
    return (CUdeviceptr)(uintptr_t)at;
}

static wf_status create_memory(wfi_device *device, wfi_space space, size_t bytes, void **base_out) {
    const wfi_cuda *driver = wfi_cuda_driver(device);
    size_t n_free = 0, n_total = 0;
    CUdeviceptr at = 0;
    char what[128];
    if (driver->MemGetInfo(&n_free, &n_total)) n_free = 0;
    snprintf(what, sizeof what, "%zu bytes of %s memory (of %zu, %zu are free)", bytes,
             wfi_space_name(space), n_total, n_free);
    if (space == WFI_SPACE_HOST) {
        WF_TRY(check(device, "pinned memory of the host's",
                     driver->MemHostAlloc(base_out, bytes, WFI_CUDA_PORTABLE)));
        memset(*base_out, 0, bytes);
        return WF_OK;
    }
    WF_TRY(check(device, what, driver->MemAlloc(&at, bytes)));
    *base_out = (void *)(uintptr_t)at;
    wf_status status = wfi_memory_fill(device, NULL, *base_out, space, 0, bytes);
    if (status != WF_OK) driver->MemFree(at);
    return status;
}

static wf_status cuda_memory_create(wfi_device *device, wfi_space space, size_t bytes,
                                    void **base_out) {
    if (space == WFI_SPACE_DISK) return wfi_disk_create(device, bytes, base_out);
    WF_TRY(wfi_cuda_push(device));
    wf_status status = create_memory(device, space, bytes ? bytes : WFI_ALIGN_BYTES, base_out);
    wfi_cuda_pop(device);
    return status;
}

static void cuda_memory_destroy(wfi_device *device, wfi_space space, void *base, size_t bytes) {
    const wfi_cuda *driver = wfi_cuda_driver(device);
    (void)bytes;
    if (space == WFI_SPACE_DISK) {
        wfi_disk_destroy(device, base);
        return;
    }
    if (wfi_cuda_hangs(wfi_cuda_gpu_of(device))) return;
    wf_status pushed = wfi_cuda_push(device);
    if (space == WFI_SPACE_HOST)
        driver->MemFreeHost(base);
    else
        driver->MemFree(address_of(base));
    if (pushed == WF_OK) wfi_cuda_pop(device);
}

/* ---- copies: the driver's own go between GPUs, directly where they reach each other ---- */

/* What the host copies comes behind all that the stream was asked for before. */
static wf_status copy_on_host(wfi_device *device, wfi_stream_queue *stream, void *to,
                              wfi_space to_space, const void *from, wfi_space from_space,
                              size_t bytes) {
    if (stream) WF_TRY(finish(device, stream));
    if (to_space == WFI_SPACE_DISK || from_space == WFI_SPACE_DISK)
        return wfi_disk_copy(device, to, to_space, from, from_space, bytes);
    memcpy(to, from, bytes);
    return WF_OK;
}

static wf_status copy_queued(wfi_device *device, wfi_stream_queue *stream, void *to,
                             wfi_space to_space, const void *from, wfi_space from_space,
                             size_t bytes) {
    const wfi_cuda *driver = wfi_cuda_driver(device);
    CUstream queue = stream_of(device, stream);
    bool to_device = to_space == WFI_SPACE_DEVICE, from_device = from_space == WFI_SPACE_DEVICE;
    if (!to_device && !from_device)
        return copy_on_host(device, stream, to, to_space, from, from_space, bytes);
    if (to_space == WFI_SPACE_DISK || from_space == WFI_SPACE_DISK)
        return wfi_bounce_copy(stream, device, to, to_space, device, from, from_space, bytes);
    /* For memory that is not pinned the driver waits itself, without a deadline. */
    if (!to_device || !from_device) WF_TRY(finish(device, stream));
    WF_TRY(check(device, "a copy",
                 !to_device ? driver->MemcpyDtoHAsync(to, address_of(from), bytes, queue)
                 : !from_device
                     ? driver->MemcpyHtoDAsync(address_of(to), from, bytes, queue)
                     : driver->MemcpyAsync(address_of(to), address_of(from), bytes, queue)));
    return stream ? WF_OK : finish(device, stream);
}

static wf_status cuda_copy(wfi_device *device, wfi_stream_queue *stream, void *to,
                           wfi_space to_space, const void *from, wfi_space from_space,
                           size_t bytes) {
    if (!bytes) return WF_OK;
    if (stream) return copy_queued(device, stream, to, to_space, from, from_space, bytes);
    WF_TRY(wfi_cuda_push(device));
    wf_status status = copy_queued(device, stream, to, to_space, from, from_space, bytes);
    wfi_cuda_pop(device);
    return status;
}

static wf_status cuda_fill(wfi_device *device, wfi_stream_queue *stream, void *to, wfi_space space,
                           int byte, size_t bytes) {
    if (!bytes) return WF_OK;
    if (space != WFI_SPACE_DEVICE) {
        if (stream) WF_TRY(finish(device, stream));
        if (space == WFI_SPACE_DISK) return wfi_disk_fill(device, to, byte, bytes);
        memset(to, byte, bytes);
        return WF_OK;
    }
    if (!stream) WF_TRY(wfi_cuda_push(device));
    wf_status status =
        check(device, "setting memory",
              wfi_cuda_driver(device)->MemsetD8Async(address_of(to), (unsigned char)byte, bytes,
                                                     stream_of(device, stream)));
    if (stream) return status;
    if (status == WF_OK) status = finish(device, stream);
    wfi_cuda_pop(device);
    return status;
}

/* ---- kernels ---- */

/* The lock is held. */
static wf_status module_of(const wfi_device *device, const wfi_kernel_launch *launch,
                           CUmodule *module_out) {
    const cuda *all = state_of(device)->all;
    unit *own = state_of(device)->unit;
    wf_context *ctx = device->owner.ctx;
    *module_out = wfi_built_find(&own->modules, launch);
    if (*module_out) return WF_OK;
    WF_TRY(wfi_cuda_compile(ctx, &all->driver, all->version, &own->gpu, launch, module_out));
    return wfi_built_add(ctx, &own->modules, launch, *module_out);
}

static wf_status function_of(wfi_stream_queue *stream, const wfi_kernel_launch *launch,
                             CUfunction *function_out) {
    cuda *all = state_of(stream->device)->all;
    cuda_queue *queue = stream->queue;
    const char *name = launch->source->entries[launch->entry];
    CUmodule module;
    *function_out = wfi_built_find(&queue->kernels, launch);
    if (*function_out) return WF_OK;
    pthread_mutex_lock(&all->lock);
    wf_status status = module_of(stream->device, launch, &module);
    pthread_mutex_unlock(&all->lock);
    WF_TRY(status);
    WF_TRY(check(stream->device, name, all->driver.ModuleGetFunction(function_out, module, name)));
    return wfi_built_add(stream->owner->ctx, &queue->kernels, launch, *function_out);
}

static wf_status cuda_launch(wfi_stream_queue *stream, const wfi_kernel_launch *launch) {
    const cuda_device *own = state_of(stream->device);
    cuda_queue *queue = stream->queue;
    wfi_launch_arguments arguments = launch->arguments;
    CUdeviceptr base = 0;
    CUfunction function;
    void *parameters[WFI_LAUNCH_MEMORIES + 2];
    int n = 0;
    if (!launch->n_groups) return WF_OK;
    WF_TRY(function_of(stream, launch, &function));
    for (int i = 0; i < WFI_LAUNCH_OPERANDS; i++) {
        const void *at = launch->operands[i];
        arguments.at[i] = at ? address_of(at) : WFI_LAUNCH_ABSENT;
    }
    while (n < (launch->has_memories ? WFI_LAUNCH_MEMORIES : 1)) parameters[n++] = &base;
    parameters[n++] = &queue->words;
    parameters[n++] = &arguments;
    return check(stream->device, launch->source->entries[launch->entry],
                 own->all->driver.LaunchKernel(function, (unsigned)launch->n_groups, 1, 1,
                                               WFI_GROUP_SIZE, 1, 1, 0, queue->stream, parameters,
                                               NULL));
}

static wf_status cuda_read_words(wfi_stream_queue *stream, int32_t words_out[WFI_LAUNCH_WORDS]) {
    const wfi_cuda *driver = wfi_cuda_driver(stream->device);
    const cuda_queue *queue = stream->queue;
    size_t bytes = WFI_LAUNCH_WORDS * sizeof *words_out;
    WF_TRY(cuda_finish_task(stream));
    WF_TRY(check(stream->device, "a copy",
                 driver->MemcpyDtoHAsync(words_out, queue->words, bytes, queue->stream)));
    WF_TRY(check(stream->device, "setting memory",
                 driver->MemsetD8Async(queue->words, 0, bytes, queue->stream)));
    return cuda_finish_task(stream);
}

const wfi_device_class wfi_device_cuda = {
    .name = "cuda",
    .has_memory = true,
    .is_separate = true,
    .create = cuda_create,
    .destroy = cuda_destroy,
    .reaches = cuda_reaches,
    .memory_create = cuda_memory_create,
    .memory_destroy = cuda_memory_destroy,
    .copy = cuda_copy,
    .fill = cuda_fill,
    .streams = &wfi_thread_streams,
    .stream_create = cuda_stream_create,
    .stream_destroy = cuda_stream_destroy,
    .enter_thread = cuda_enter_thread,
    .finish_task = cuda_finish_task,
    .record = wfi_cuda_record,
    .look = wfi_cuda_look,
    .follow = wfi_cuda_follow,
    .mark = wfi_cuda_mark_time,
    .give_up = cuda_give_up,
    .launch = cuda_launch,
    .read_words = cuda_read_words,
    .find_free = cuda_find_free,
    .describe = cuda_describe,
};
