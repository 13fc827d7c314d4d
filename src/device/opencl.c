/* OpenCL devices. A device has a context of its own; each stream's thread queues what its tasks ask
 * for on an in-order queue, and waits for it behind each task: so an event of a stream is one of
 * the device, and an error that comes late is its task's.
 *
 * Memory is buffers, which have no addresses: addresses are reserved for each, which nobody can
 * touch, and stand for the buffer and the offset in it.
 */
#include "device/disk.h"
#include "device/opencl_library.h"
#include "device/program_cache.h"
#include "device/thread_stream.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define MOST_DEVICES 64
/* What goes by way of the host, as from device to device, goes in pieces of so many bytes. */
#define BOUNCE_BYTES ((size_t)4 << 20)

/* A device of the machine, which several ranks may be on. */
typedef struct opencl_unit {
    cl_handle device, context, host_queue, program;
    const wfi_launch_source *source; /* that the program was compiled from */
    char name[128], driver[128];
} opencl_unit;

typedef struct range {
    const char *base;
    size_t bytes;
    cl_handle buffer;
    opencl_unit *unit;
} range;

/* Of the whole context: ranks see each other's memory. */
typedef struct opencl {
    wfi_opencl cl;
    opencl_unit units[MOST_DEVICES];
    int n_units;
    pthread_mutex_t lock; /* of what follows, and of contexts and programs */
    range *ranges;        /* ascending */
    size_t n_ranges;
} opencl;

/* wfi_device.state */
typedef struct opencl_device {
    opencl *all;
    opencl_unit *unit;
} opencl_device;

/* wfi_stream_queue.queue */
typedef struct opencl_queue {
    cl_handle queue, words;
    cl_handle *kernels; /* [source's n_entries] of this queue alone; NULL: not launched yet */
    int n_kernels;
    char *bounce; /* [BOUNCE_BYTES], made when it is needed */
} opencl_queue;

static wf_status fail(wf_context *ctx, const opencl_unit *unit, const char *what, cl_int error) {
    char text[64];
    return wfi_fail(ctx, WF_DEVICE, "opencl: %s on %s: %s", what, unit->name,
                    wfi_opencl_error(error, text));
}

/* ---- which devices there are ---- */

static void add_units(opencl *all, cl_handle platform) {
    cl_handle devices[MOST_DEVICES];
    cl_uint n = 0;
    if (all->cl.GetDeviceIDs(platform, UINT32_MAX, MOST_DEVICES, devices, &n)) return;
    for (cl_uint i = 0; i < n && i < MOST_DEVICES && all->n_units < MOST_DEVICES; i++) {
        opencl_unit *unit = &all->units[all->n_units++];
        unit->device = devices[i];
        (void)all->cl.GetDeviceInfo(devices[i], CL_DEVICE_NAME, sizeof unit->name - 1, unit->name,
                                    NULL);
        (void)all->cl.GetDeviceInfo(devices[i], CL_DRIVER_VERSION, sizeof unit->driver - 1,
                                    unit->driver, NULL);
    }
}

static wf_status create_all(wf_context *ctx, void **shared_out) {
    cl_handle platforms[16];
    cl_uint n = 0;
    opencl *all = calloc(1, sizeof *all);
    if (!all) return wfi_no_memory(ctx, sizeof *all, "OpenCL's devices");
    wf_status status = wfi_opencl_load(ctx, &all->cl);
    if (status == WF_OK && all->cl.GetPlatformIDs(WFI_COUNT(platforms), platforms, &n)) n = 0;
    for (cl_uint i = 0; i < n && i < WFI_COUNT(platforms); i++) add_units(all, platforms[i]);
    if (status == WF_OK && !all->n_units)
        status =
            wfi_fail(ctx, WF_UNSUPPORTED,
                     "opencl: libOpenCL.so.1 is there, but knows no device; install the driver "
                     "of this machine's GPU, or package pocl-opencl-icd for its CPU");
    if (status != WF_OK) {
        free(all);
        return status;
    }
    pthread_mutex_init(&all->lock, NULL);
    *shared_out = all;
    return WF_OK;
}

static void destroy_all(void *shared) {
    opencl *all = shared;
    for (int i = 0; i < all->n_units; i++) {
        opencl_unit *unit = &all->units[i];
        if (unit->program) all->cl.ReleaseProgram(unit->program);
        if (unit->host_queue) all->cl.ReleaseCommandQueue(unit->host_queue);
        if (unit->context) all->cl.ReleaseContext(unit->context);
    }
    pthread_mutex_destroy(&all->lock);
    free(all->ranges);
    free(all);
}

static const wfi_shared_kind shared_kind = {create_all, destroy_all};

static wf_status opencl_describe(wf_context *ctx, char *text, size_t bytes) {
    void *shared;
    WF_TRY(wfi_context_share(ctx, &shared_kind, &shared));
    const opencl *all = shared;
    int n = snprintf(text, bytes, "%d device%s:", all->n_units, all->n_units == 1 ? "" : "s");
    for (int i = 0; i < all->n_units && n >= 0 && (size_t)n < bytes; i++)
        n += snprintf(text + n, bytes - (size_t)n, "%s %d %s", i ? "," : "", i, all->units[i].name);
    return WF_OK;
}

/* ---- a rank's device ---- */

static wf_status open_unit(wf_context *ctx, opencl *all, opencl_unit *unit) {
    cl_int error = CL_SUCCESS;
    cl_ulong doubles = 0;
    if (unit->host_queue) return WF_OK;
    (void)all->cl.GetDeviceInfo(unit->device, CL_DEVICE_DOUBLE_FP_CONFIG, sizeof doubles, &doubles,
                                NULL);
    if (!doubles)
        return wfi_fail(ctx, WF_UNSUPPORTED,
                        "opencl: %s has no numbers of 64 bits, in which sums are made", unit->name);
    unit->context = all->cl.CreateContext(NULL, 1, &unit->device, NULL, NULL, &error);
    if (!unit->context) return fail(ctx, unit, "a context", error);
    unit->host_queue = all->cl.CreateCommandQueue(unit->context, unit->device, 0, &error);
    return unit->host_queue ? WF_OK : fail(ctx, unit, "a queue", error);
}

static wf_status opencl_create(wfi_device *device) {
    wf_context *ctx = device->owner.ctx;
    void *shared;
    WF_TRY(wfi_context_share(ctx, &shared_kind, &shared));
    opencl *all = shared;
    opencl_device *own = wfi_alloc(ctx, 1, sizeof *own, "a device");
    if (!own) return WF_NO_MEMORY;
    *own = (opencl_device){all, &all->units[device->place % all->n_units]};
    pthread_mutex_lock(&all->lock);
    wf_status status = open_unit(ctx, all, own->unit);
    pthread_mutex_unlock(&all->lock);
    if (status != WF_OK) {
        wfi_free(ctx, own);
        return status;
    }
    device->state = own;
    wfi_log(ctx, WF_LOG_INFO, "device", "rank %d: OpenCL device %td of %d, %s", device->owner.rank,
            own->unit - all->units, all->n_units, own->unit->name);
    return WF_OK;
}

static void opencl_destroy(wfi_device *device) {
    wfi_free(device->owner.ctx, device->state);
}

/* ---- memory ---- */

static const opencl_device *state_of(const wfi_device *device) {
    return device->state;
}

/* Where in the list an address is, or would be. */
static size_t place_of(const opencl *all, const char *address) {
    size_t low = 0, high = all->n_ranges;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (all->ranges[middle].base + all->ranges[middle].bytes <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The buffer behind an address of some device's memory, and the offset in it. Errors: BUG. */
static wf_status find(wf_context *ctx, opencl *all, const void *address, range *range_out,
                      size_t *offset_out) {
    const char *at = address;
    pthread_mutex_lock(&all->lock);
    size_t i = place_of(all, at);
    bool is_found = i < all->n_ranges && all->ranges[i].base <= at;
    if (is_found) *range_out = all->ranges[i];
    pthread_mutex_unlock(&all->lock);
    if (!is_found)
        return wfi_fail(ctx, WF_BUG, "opencl: %p is in no device's memory", (void *)(uintptr_t)at);
    *offset_out = (size_t)(at - range_out->base);
    return WF_OK;
}

static wf_status add_range(wf_context *ctx, opencl *all, range new) {
    pthread_mutex_lock(&all->lock);
    range *more = realloc(all->ranges, (all->n_ranges + 1) * sizeof *more);
    if (more) {
        all->ranges = more;
        size_t i = place_of(all, new.base);
        memmove(more + i + 1, more + i, (all->n_ranges++ - i) * sizeof *more);
        more[i] = new;
    }
    pthread_mutex_unlock(&all->lock);
    return more ? WF_OK : wfi_no_memory(ctx, sizeof *more, "a device's memory");
}

static wf_status create_buffer(wf_context *ctx, const opencl_device *own, size_t bytes,
                               cl_handle *buffer_out) {
    const wfi_opencl *cl = &own->all->cl;
    const unsigned char zero = 0;
    char text[64];
    cl_int error = CL_SUCCESS;
    cl_handle buffer = cl->CreateBuffer(own->unit->context, CL_MEM_READ_WRITE, bytes, NULL, &error);
    /* Drivers take the memory when it is first written. */
    if (buffer)
        error =
            cl->EnqueueFillBuffer(own->unit->host_queue, buffer, &zero, 1, 0, bytes, 0, NULL, NULL);
    if (buffer && !error) error = cl->Finish(own->unit->host_queue);
    if (buffer && error) cl->ReleaseMemObject(buffer);
    if (error)
        return wfi_fail(ctx, WF_NO_MEMORY, "opencl: %s refused %zu bytes: %s", own->unit->name,
                        bytes, wfi_opencl_error(error, text));
    *buffer_out = buffer;
    return WF_OK;
}

static void *reserve(size_t bytes, int protection) {
    void *base = mmap(NULL, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return base == MAP_FAILED ? NULL : base;
}

static wf_status opencl_memory_create(wfi_device *device, wfi_space space, size_t bytes,
                                      void **base_out) {
    wf_context *ctx = device->owner.ctx;
    const opencl_device *own = state_of(device);
    if (space == WFI_SPACE_DISK) return wfi_disk_create(device, bytes, base_out);
    if (!bytes) bytes = WFI_ALIGN_BYTES;
    range new = {.bytes = bytes, .unit = own->unit};
    bool is_host = space == WFI_SPACE_HOST;
    *base_out = reserve(bytes, is_host ? PROT_READ | PROT_WRITE : PROT_NONE);
    if (!*base_out) return wfi_no_memory(ctx, bytes, "a rank's arena");
    if (is_host) return WF_OK;
    new.base = *base_out;
    wf_status status = create_buffer(ctx, own, bytes, &new.buffer);
    if (status == WF_OK) status = add_range(ctx, own->all, new);
    if (status == WF_OK) return WF_OK;
    if (new.buffer) own->all->cl.ReleaseMemObject(new.buffer);
    munmap(*base_out, bytes);
    return status;
}

static void opencl_memory_destroy(wfi_device *device, wfi_space space, void *base, size_t bytes) {
    opencl *all = state_of(device)->all;
    if (!bytes) bytes = WFI_ALIGN_BYTES;
    if (space == WFI_SPACE_DISK) {
        wfi_disk_destroy(device, base);
        return;
    }
    if (space == WFI_SPACE_DEVICE) {
        pthread_mutex_lock(&all->lock);
        size_t i = place_of(all, base);
        all->cl.ReleaseMemObject(all->ranges[i].buffer);
        memmove(all->ranges + i, all->ranges + i + 1, (--all->n_ranges - i) * sizeof *all->ranges);
        pthread_mutex_unlock(&all->lock);
    }
    munmap(base, bytes);
}

/* ---- streams ---- */

static void opencl_stream_destroy(wfi_stream_queue *stream) {
    const wfi_opencl *cl = &state_of(stream->device)->all->cl;
    opencl_queue *queue = stream->queue;
    for (int i = 0; i < queue->n_kernels; i++)
        if (queue->kernels[i]) cl->ReleaseKernel(queue->kernels[i]);
    if (queue->words) cl->ReleaseMemObject(queue->words);
    if (queue->queue) cl->ReleaseCommandQueue(queue->queue);
    if (queue->bounce) munmap(queue->bounce, BOUNCE_BYTES);
    wfi_free(stream->owner->ctx, queue->kernels);
    wfi_free(stream->owner->ctx, queue);
}

static wf_status opencl_stream_create(wfi_device *device, wfi_stream_queue *stream,
                                      wfi_shared_epoch *counter) {
    wf_context *ctx = device->owner.ctx;
    const opencl_device *own = state_of(device);
    cl_int error = CL_SUCCESS;
    opencl_queue *queue = wfi_alloc(ctx, 1, sizeof *queue, "a queue");
    if (!queue) return WF_NO_MEMORY;
    queue->queue =
        own->all->cl.CreateCommandQueue(own->unit->context, own->unit->device, 0, &error);
    wf_status status = queue->queue ? WF_OK : fail(ctx, own->unit, "a queue", error);
    if (status == WF_OK)
        status = create_buffer(ctx, own, WFI_LAUNCH_WORDS * sizeof(int32_t), &queue->words);
    stream->queue = queue;
    if (status == WF_OK) status = wfi_thread_stream_create(device, stream, counter);
    if (status != WF_OK) opencl_stream_destroy(stream);
    return status;
}

static cl_handle queue_of(const wfi_device *device, const wfi_stream_queue *stream) {
    return stream ? ((const opencl_queue *)stream->queue)->queue
                  : state_of(device)->unit->host_queue;
}

static wf_status finish_queue(const wfi_device *device, const wfi_stream_queue *stream) {
    const opencl_device *own = state_of(device);
    cl_int error = own->all->cl.Finish(queue_of(device, stream));
    return error ? fail(device->owner.ctx, own->unit, "kernels and copies", error) : WF_OK;
}

static wf_status opencl_finish_task(wfi_stream_queue *stream) {
    return finish_queue(stream->device, stream);
}

/* ---- copies ---- */

/* Between the host and a device; done when the queue is finished. */
static wf_status copy_host(wfi_device *device, const wfi_stream_queue *stream, void *host,
                           const void *address, size_t bytes, bool reads) {
    const opencl_device *own = state_of(device);
    const wfi_opencl *cl = &own->all->cl;
    range found;
    size_t offset;
    WF_TRY(find(device->owner.ctx, own->all, address, &found, &offset));
    /* Another device's memory takes part in no queue of this one. */
    bool is_own = found.unit == own->unit;
    cl_handle queue = is_own ? queue_of(device, stream) : found.unit->host_queue;
    cl_int error = reads ? cl->EnqueueReadBuffer(queue, found.buffer, !is_own, offset, bytes, host,
                                                 0, NULL, NULL)
                         : cl->EnqueueWriteBuffer(queue, found.buffer, !is_own, offset, bytes, host,
                                                  0, NULL, NULL);
    return error ? fail(device->owner.ctx, found.unit, "a copy", error) : WF_OK;
}

/* Memory of the host for pieces of a copy. The host's own copies are one at a time. */
static wf_status bounce_of(wfi_device *device, wfi_stream_queue *stream, char **bounce_out) {
    opencl_queue *queue = stream ? stream->queue : NULL;
    if (queue && queue->bounce) {
        *bounce_out = queue->bounce;
        return WF_OK;
    }
    *bounce_out = reserve(BOUNCE_BYTES, PROT_READ | PROT_WRITE);
    if (!*bounce_out) return wfi_no_memory(device->owner.ctx, BOUNCE_BYTES, "a bounce buffer");
    if (queue) queue->bounce = *bounce_out;
    return WF_OK;
}

/* A piece of a copy by way of the host. */
static wf_status bounce_piece(wfi_device *device, wfi_stream_queue *stream, char *to,
                              wfi_space to_space, const char *from, wfi_space from_space,
                              size_t bytes, char *bounce) {
    if (from_space == WFI_SPACE_DEVICE)
        WF_TRY(copy_host(device, stream, bounce, from, bytes, true));
    else
        WF_TRY(wfi_disk_copy(device, bounce, WFI_SPACE_HOST, from, from_space, bytes));
    WF_TRY(finish_queue(device, stream));
    if (to_space == WFI_SPACE_DEVICE)
        WF_TRY(copy_host(device, stream, bounce, to, bytes, false));
    else
        WF_TRY(wfi_disk_copy(device, to, to_space, bounce, WFI_SPACE_HOST, bytes));
    return finish_queue(device, stream);
}

static wf_status copy_bounced(wfi_device *device, wfi_stream_queue *stream, char *to,
                              wfi_space to_space, const char *from, wfi_space from_space,
                              size_t bytes) {
    char *bounce;
    WF_TRY(bounce_of(device, stream, &bounce));
    wf_status status = WF_OK;
    for (size_t at = 0, n; at < bytes && status == WF_OK; at += n) {
        n = bytes - at < BOUNCE_BYTES ? bytes - at : BOUNCE_BYTES;
        status = bounce_piece(device, stream, to + at, to_space, from + at, from_space, n, bounce);
    }
    if (!stream) munmap(bounce, BOUNCE_BYTES);
    return status;
}

static wf_status copy_within(wfi_device *device, wfi_stream_queue *stream, char *to,
                             const char *from, size_t bytes) {
    const opencl_device *own = state_of(device);
    range source, target;
    size_t from_at, to_at;
    WF_TRY(find(device->owner.ctx, own->all, from, &source, &from_at));
    WF_TRY(find(device->owner.ctx, own->all, to, &target, &to_at));
    if (source.unit != own->unit || target.unit != own->unit)
        return copy_bounced(device, stream, to, WFI_SPACE_DEVICE, from, WFI_SPACE_DEVICE, bytes);
    cl_int error =
        own->all->cl.EnqueueCopyBuffer(queue_of(device, stream), source.buffer, target.buffer,
                                       from_at, to_at, bytes, 0, NULL, NULL);
    return error ? fail(device->owner.ctx, own->unit, "a copy", error) : WF_OK;
}

static wf_status opencl_copy(wfi_device *device, wfi_stream_queue *stream, void *to,
                             wfi_space to_space, const void *from, wfi_space from_space,
                             size_t bytes) {
    bool to_device = to_space == WFI_SPACE_DEVICE, from_device = from_space == WFI_SPACE_DEVICE;
    if (!bytes) return WF_OK;
    if (to_device && from_device)
        WF_TRY(copy_within(device, stream, to, from, bytes));
    else if (!to_device && !from_device)
        return to_space == WFI_SPACE_HOST && from_space == WFI_SPACE_HOST
                   ? (memcpy(to, from, bytes), WF_OK)
                   : wfi_disk_copy(device, to, to_space, from, from_space, bytes);
    else if (to_space == WFI_SPACE_DISK || from_space == WFI_SPACE_DISK)
        WF_TRY(copy_bounced(device, stream, to, to_space, from, from_space, bytes));
    else if (to_device)
        WF_TRY(copy_host(device, stream, (void *)(uintptr_t)from, to, bytes, false));
    else
        WF_TRY(copy_host(device, stream, to, from, bytes, true));
    return stream ? WF_OK : finish_queue(device, stream);
}

static wf_status opencl_fill(wfi_device *device, wfi_stream_queue *stream, void *to,
                             wfi_space space, int byte, size_t bytes) {
    const opencl_device *own = state_of(device);
    const unsigned char pattern = (unsigned char)byte;
    range found;
    size_t offset;
    if (space == WFI_SPACE_DISK) return wfi_disk_fill(device, to, byte, bytes);
    if (space == WFI_SPACE_HOST) return memset(to, byte, bytes), WF_OK;
    if (!bytes) return WF_OK;
    WF_TRY(find(device->owner.ctx, own->all, to, &found, &offset));
    cl_int error = own->all->cl.EnqueueFillBuffer(queue_of(device, stream), found.buffer, &pattern,
                                                  1, offset, bytes, 0, NULL, NULL);
    if (error) return fail(device->owner.ctx, own->unit, "setting memory", error);
    return stream ? WF_OK : finish_queue(device, stream);
}

/* ---- kernels ---- */

static wf_status fail_build(wf_context *ctx, const opencl *all, const opencl_unit *unit,
                            cl_handle program, cl_int error) {
    char *log = calloc(1, 16384), text[64];
    if (log)
        (void)all->cl.GetProgramBuildInfo(program, unit->device, CL_PROGRAM_BUILD_LOG, 16383, log,
                                          NULL);
    wf_status status =
        wfi_fail(ctx, WF_DEVICE, "opencl: weft's kernels do not compile for %s: %s: %.700s",
                 unit->name, wfi_opencl_error(error, text), log ? log : "");
    free(log);
    return status;
}

/* Division and roots as IEEE has them, where the device can. */
static const char *build_options(const opencl *all, const opencl_unit *unit) {
    cl_ulong config = 0;
    (void)all->cl.GetDeviceInfo(unit->device, CL_DEVICE_SINGLE_FP_CONFIG, sizeof config, &config,
                                NULL);
    return config & CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT
               ? "-cl-std=CL1.2 -cl-fp32-correctly-rounded-divide-sqrt"
               : "-cl-std=CL1.2";
}

/* From what an earlier process has left, or NULL. */
static cl_handle load_program(const opencl *all, const opencl_unit *unit, const char *options,
                              const wfi_program_cache *cache) {
    size_t bytes;
    unsigned char *binary = wfi_program_cache_read(cache, &bytes);
    cl_int loaded, error = CL_SUCCESS;
    if (!binary) return NULL;
    cl_handle program = all->cl.CreateProgramWithBinary(
        unit->context, 1, &unit->device, &bytes, (const unsigned char **)&binary, &loaded, &error);
    free(binary);
    if (program && all->cl.BuildProgram(program, 1, &unit->device, options, NULL, NULL)) {
        all->cl.ReleaseProgram(program);
        program = NULL;
    }
    return program;
}

static void keep_program(const opencl *all, cl_handle program, const wfi_program_cache *cache) {
    size_t bytes = 0;
    if (all->cl.GetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof bytes, &bytes, NULL) ||
        !bytes)
        return;
    unsigned char *binary = malloc(bytes);
    if (binary &&
        !all->cl.GetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof binary, &binary, NULL))
        wfi_program_cache_write(cache, binary, bytes);
    free(binary);
}

static wf_status compile(wf_context *ctx, const opencl *all, opencl_unit *unit,
                         const wfi_launch_source *source) {
    const char *options = build_options(all, unit), *text = source->text;
    const char *const parts[] = {text, options, unit->name, unit->driver};
    wfi_program_cache cache = wfi_program_cache_find("opencl", parts, WFI_COUNT(parts));
    cl_int error = CL_SUCCESS;
    unit->source = source;
    unit->program = load_program(all, unit, options, &cache);
    if (unit->program) return WF_OK;
    cl_handle program = all->cl.CreateProgramWithSource(unit->context, 1, &text, NULL, &error);
    if (!program) return fail(ctx, unit, "a program", error);
    error = all->cl.BuildProgram(program, 1, &unit->device, options, NULL, NULL);
    if (error) {
        wf_status status = fail_build(ctx, all, unit, program, error);
        all->cl.ReleaseProgram(program);
        return status;
    }
    unit->program = program;
    keep_program(all, program, &cache);
    return WF_OK;
}

static wf_status kernel_of(wfi_stream_queue *stream, const wfi_kernel_launch *launch,
                           cl_handle *kernel_out) {
    wf_context *ctx = stream->owner->ctx;
    const opencl_device *own = state_of(stream->device);
    opencl *all = own->all;
    opencl_queue *queue = stream->queue;
    const wfi_launch_source *source = launch->source;
    cl_int error = CL_SUCCESS;
    wf_status status = WF_OK;
    if (!queue->kernels) {
        queue->kernels =
            wfi_alloc(ctx, (size_t)source->n_entries, sizeof *queue->kernels, "kernels");
        if (!queue->kernels) return WF_NO_MEMORY;
        queue->n_kernels = source->n_entries;
    }
    cl_handle *kernel = &queue->kernels[launch->entry];
    if (*kernel) {
        *kernel_out = *kernel;
        return WF_OK;
    }
    pthread_mutex_lock(&all->lock);
    if (!own->unit->program) status = compile(ctx, all, own->unit, source);
    if (status == WF_OK)
        *kernel = all->cl.CreateKernel(own->unit->program, source->entries[launch->entry], &error);
    pthread_mutex_unlock(&all->lock);
    if (status == WF_OK && !*kernel)
        status = fail(ctx, own->unit, source->entries[launch->entry], error);
    *kernel_out = *kernel;
    return status;
}

/* Operands that share a memory are all in the first one's. */
static wf_status bind(wfi_stream_queue *stream, const wfi_kernel_launch *launch,
                      cl_handle *memories, wfi_launch_arguments *arguments) {
    wf_context *ctx = stream->owner->ctx;
    const opencl_device *own = state_of(stream->device);
    *arguments = launch->arguments;
    for (int i = 0; i < WFI_LAUNCH_OPERANDS; i++) {
        range found;
        size_t offset;
        arguments->at[i] = WFI_LAUNCH_ABSENT;
        if (!launch->operands[i]) continue;
        WF_TRY(find(ctx, own->all, launch->operands[i], &found, &offset));
        cl_handle *memory = &memories[launch->has_memories ? i : 0];
        if (found.unit != own->unit || (*memory && *memory != found.buffer))
            return wfi_fail(
                ctx, WF_UNSUPPORTED,
                "opencl: kernel %s of rank %d reads memory of another device (%s); ranks "
                "that are summed have to be on one device",
                launch->source->entries[launch->entry], stream->owner->rank, found.unit->name);
        *memory = found.buffer;
        arguments->at[i] = offset;
    }
    return WF_OK;
}

static wf_status opencl_launch(wfi_stream_queue *stream, const wfi_kernel_launch *launch) {
    const opencl_device *own = state_of(stream->device);
    const wfi_opencl *cl = &own->all->cl;
    cl_handle kernel, memories[WFI_LAUNCH_MEMORIES] = {NULL};
    wfi_launch_arguments arguments;
    if (!launch->n_groups) return WF_OK;
    WF_TRY(kernel_of(stream, launch, &kernel));
    WF_TRY(bind(stream, launch, memories, &arguments));
    cl_uint n_memories = launch->has_memories ? WFI_LAUNCH_MEMORIES : 1;
    cl_int error = CL_SUCCESS;
    for (cl_uint i = 0; i < n_memories && !error; i++)
        error = cl->SetKernelArg(kernel, i, sizeof memories[i],
                                 memories[i] ? &memories[i] : &memories[0]);
    const opencl_queue *queue = stream->queue;
    if (!error) error = cl->SetKernelArg(kernel, n_memories, sizeof queue->words, &queue->words);
    if (!error) error = cl->SetKernelArg(kernel, n_memories + 1, sizeof arguments, &arguments);
    size_t local = WFI_GROUP_SIZE, global = (size_t)launch->n_groups * local;
    if (!error)
        error = cl->EnqueueNDRangeKernel(queue_of(stream->device, stream), kernel, 1, NULL, &global,
                                         &local, 0, NULL, NULL);
    return error
               ? fail(stream->owner->ctx, own->unit, launch->source->entries[launch->entry], error)
               : WF_OK;
}

static wf_status opencl_read_words(wfi_stream_queue *stream, int32_t words_out[WFI_LAUNCH_WORDS]) {
    const opencl_device *own = state_of(stream->device);
    const wfi_opencl *cl = &own->all->cl;
    const opencl_queue *queue = stream->queue;
    const unsigned char zero = 0;
    size_t bytes = WFI_LAUNCH_WORDS * sizeof *words_out;
    cl_int error =
        cl->EnqueueReadBuffer(queue->queue, queue->words, 1, 0, bytes, words_out, 0, NULL, NULL);
    if (!error)
        error =
            cl->EnqueueFillBuffer(queue->queue, queue->words, &zero, 1, 0, bytes, 0, NULL, NULL);
    return error ? fail(stream->owner->ctx, own->unit, "kernels and copies", error) : WF_OK;
}

const wfi_device_class wfi_device_opencl = {
    .name = "opencl",
    .has_memory = true,
    .is_separate = true,
    .create = opencl_create,
    .destroy = opencl_destroy,
    .memory_create = opencl_memory_create,
    .memory_destroy = opencl_memory_destroy,
    .copy = opencl_copy,
    .fill = opencl_fill,
    .streams = &wfi_thread_streams,
    .stream_create = opencl_stream_create,
    .stream_destroy = opencl_stream_destroy,
    .finish_task = opencl_finish_task,
    .launch = opencl_launch,
    .read_words = opencl_read_words,
    .describe = opencl_describe,
};
