/* OpenCL devices: streams and launches. A device has a context of its own; each stream's thread
 * queues what its tasks ask for on an in-order queue, and waits for it behind each task: so an
 * event of a stream is one of the device, and an error that comes late is its task's.
 */
#include "device/opencl.h"
#include "device/program_cache.h"
#include "device/thread_stream.h"

#include <stdlib.h>
#include <string.h>

/* ---- streams ---- */

static void opencl_stream_destroy(wfi_stream_queue *stream) {
    const wfi_opencl *cl = &wfi_opencl_state(stream->device)->all->cl;
    wfi_opencl_queue *queue = stream->queue;
    if (!wfi_opencl_hangs(wfi_opencl_state(stream->device)->unit)) {
        for (size_t i = 0; i < queue->kernels.n; i++)
            cl->ReleaseKernel(queue->kernels.all[i].handle);
        if (queue->words) cl->ReleaseMemObject(queue->words);
        if (queue->queue) cl->ReleaseCommandQueue(queue->queue);
    }
    free(queue->kernels.all);
    wfi_free(stream->owner->ctx, queue);
}

static wf_status opencl_stream_create(wfi_device *device, wfi_stream_queue *stream,
                                      wfi_shared_epoch *counter) {
    wf_context *ctx = device->owner.ctx;
    const wfi_opencl_device *own = wfi_opencl_state(device);
    cl_int error = CL_SUCCESS;
    wfi_opencl_queue *queue = wfi_alloc(ctx, 1, sizeof *queue, "a queue");
    if (!queue) return WF_NO_MEMORY;
    queue->queue =
        own->all->cl.CreateCommandQueue(own->unit->context, own->unit->device, 0, &error);
    wf_status status = queue->queue ? WF_OK : wfi_opencl_fail(ctx, own->unit, "a queue", error);
    if (status == WF_OK)
        status = wfi_opencl_buffer(ctx, own, WFI_LAUNCH_WORDS * sizeof(int32_t), &queue->words);
    stream->queue = queue;
    if (status == WF_OK) status = wfi_thread_stream_create(device, stream, counter);
    if (status != WF_OK) opencl_stream_destroy(stream);
    return status;
}

/* A look at an event of which the library says that it is complete orders no memory; finishing the
 * queue does, which takes no time by then. */
wf_status wfi_opencl_finish(const wfi_device *device, const wfi_stream_queue *stream) {
    const wfi_opencl_device *own = wfi_opencl_state(device);
    const wfi_opencl *cl = &own->all->cl;
    cl_handle queue = wfi_opencl_queue_of(device, stream), marker = NULL;
    wfi_device_wait wait = wfi_device_wait_begin(device);
    cl_int found = 1, error = cl->EnqueueMarkerWithWaitList(queue, 0, NULL, &marker);
    if (!error) error = cl->Flush(queue);
    do {
        if (!error)
            error = cl->GetEventInfo(marker, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof found,
                                     &found, NULL);
    } while (!error && found > CL_COMPLETE && wfi_device_wait_on(&wait));
    if (!error && found > CL_COMPLETE) {
        __atomic_store_n(&own->unit->hangs, 1, __ATOMIC_RELAXED);
        return wfi_device_hangs(device, stream, own->unit->name, &wait);
    }
    if (marker) cl->ReleaseEvent(marker);
    if (!error) error = found;
    if (!error) error = cl->Finish(queue);
    return error ? wfi_opencl_fail(device->owner.ctx, own->unit, "kernels and copies", error)
                 : WF_OK;
}

static wf_status opencl_finish_task(wfi_stream_queue *stream) {
    wfi_opencl_queue *queue = stream->queue;
    wf_status status = wfi_opencl_finish(stream->device, stream);
    if (queue->is_beside) pthread_rwlock_unlock(&wfi_opencl_state(stream->device)->unit->beside);
    queue->is_beside = false;
    return status;
}

/* ---- kernels ---- */

static wf_status fail_build(wf_context *ctx, const wfi_opencl_machine *all,
                            const wfi_opencl_unit *unit, const char *kernel, cl_handle program,
                            cl_int error) {
    char *log = calloc(1, 16384), text[64];
    if (log)
        (void)all->cl.GetProgramBuildInfo(program, unit->device, CL_PROGRAM_BUILD_LOG, 16383, log,
                                          NULL);
    wf_status status =
        wfi_fail(ctx, WF_DEVICE, "opencl: weft's kernel %s does not compile for %s: %s: %.700s",
                 kernel, unit->name, wfi_opencl_error(error, text), log ? log : "");
    free(log);
    return status;
}

/* Division and roots as IEEE has them, where the device can. */
static const char *build_options(const wfi_opencl_machine *all, const wfi_opencl_unit *unit) {
    cl_ulong config = 0;
    (void)all->cl.GetDeviceInfo(unit->device, CL_DEVICE_SINGLE_FP_CONFIG, sizeof config, &config,
                                NULL);
    return config & CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT
               ? "-cl-std=CL1.2 -cl-fp32-correctly-rounded-divide-sqrt"
               : "-cl-std=CL1.2";
}

/* From what an earlier process has left, or NULL. */
static cl_handle load_program(const wfi_opencl_machine *all, const wfi_opencl_unit *unit,
                              const char *options, const wfi_program_cache *cache) {
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

static void keep_program(const wfi_opencl_machine *all, cl_handle program,
                         const wfi_program_cache *cache) {
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

/* A program of one kernel: a driver may take long to compile all. */
static wf_status compile(wf_context *ctx, const wfi_opencl_machine *all,
                         const wfi_opencl_unit *unit, const char *kernel, const char *text,
                         cl_handle *program_out) {
    const char *options = build_options(all, unit);
    const char *const parts[] = {text, options, unit->name, unit->driver};
    wfi_program_cache cache = wfi_program_cache_find("opencl", parts, WFI_COUNT(parts));
    cl_int error = CL_SUCCESS;
    *program_out = load_program(all, unit, options, &cache);
    if (*program_out) return WF_OK;
    cl_handle program = all->cl.CreateProgramWithSource(unit->context, 1, &text, NULL, &error);
    if (!program) return wfi_opencl_fail(ctx, unit, "a program", error);
    error = all->cl.BuildProgram(program, 1, &unit->device, options, NULL, NULL);
    if (error) {
        wf_status status = fail_build(ctx, all, unit, kernel, program, error);
        all->cl.ReleaseProgram(program);
        return status;
    }
    *program_out = program;
    keep_program(all, program, &cache);
    return WF_OK;
}

/* The lock is held. */
static wf_status program_of(wf_context *ctx, const wfi_opencl_machine *all, wfi_opencl_unit *unit,
                            const wfi_kernel_launch *launch, cl_handle *program_out) {
    *program_out = wfi_built_find(&unit->programs, launch);
    if (*program_out) return WF_OK;
    char *text = wfi_launch_text(launch->source, launch->entry, launch->narrow);
    if (!text) return wfi_no_memory(ctx, strlen(launch->source->text), "a program's text");
    wf_status status =
        compile(ctx, all, unit, launch->source->entries[launch->entry], text, program_out);
    free(text);
    return status == WF_OK ? wfi_built_add(ctx, &unit->programs, launch, *program_out) : status;
}

static wf_status kernel_of(wfi_stream_queue *stream, const wfi_kernel_launch *launch,
                           cl_handle *kernel_out) {
    wf_context *ctx = stream->owner->ctx;
    const wfi_opencl_device *own = wfi_opencl_state(stream->device);
    wfi_opencl_machine *all = own->all;
    wfi_opencl_queue *queue = stream->queue;
    const char *name = launch->source->entries[launch->entry];
    cl_int error = CL_SUCCESS;
    cl_handle program;
    *kernel_out = wfi_built_find(&queue->kernels, launch);
    if (*kernel_out) return WF_OK;
    pthread_mutex_lock(&all->lock);
    wf_status status = program_of(ctx, all, own->unit, launch, &program);
    if (status == WF_OK) *kernel_out = all->cl.CreateKernel(program, name, &error);
    pthread_mutex_unlock(&all->lock);
    if (status == WF_OK && !*kernel_out) status = wfi_opencl_fail(ctx, own->unit, name, error);
    return status == WF_OK ? wfi_built_add(ctx, &queue->kernels, launch, *kernel_out) : status;
}

/* Operands that share a memory are all in the first one's. */
static wf_status bind(wfi_stream_queue *stream, const wfi_kernel_launch *launch,
                      cl_handle *memories, wfi_launch_arguments *arguments) {
    wf_context *ctx = stream->owner->ctx;
    const wfi_opencl_device *own = wfi_opencl_state(stream->device);
    *arguments = launch->arguments;
    for (int i = 0; i < WFI_LAUNCH_OPERANDS; i++) {
        wfi_opencl_range found;
        size_t offset;
        arguments->at[i] = WFI_LAUNCH_ABSENT;
        if (!launch->operands[i]) continue;
        WF_TRY(wfi_opencl_find(ctx, own->all, launch->operands[i], &found, &offset));
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

static wf_status launch_beside(wfi_stream_queue *stream, const void *self) {
    const wfi_kernel_launch *launch = self;
    const wfi_opencl_device *own = wfi_opencl_state(stream->device);
    const wfi_opencl *cl = &own->all->cl;
    cl_handle kernel, memories[WFI_LAUNCH_MEMORIES] = {NULL};
    wfi_launch_arguments arguments;
    WF_TRY(kernel_of(stream, launch, &kernel));
    WF_TRY(bind(stream, launch, memories, &arguments));
    cl_uint n_memories = launch->has_memories ? WFI_LAUNCH_MEMORIES : 1;
    cl_int error = CL_SUCCESS;
    for (cl_uint i = 0; i < n_memories && !error; i++)
        error = cl->SetKernelArg(kernel, i, sizeof memories[i],
                                 memories[i] ? &memories[i] : &memories[0]);
    const wfi_opencl_queue *queue = stream->queue;
    if (!error) error = cl->SetKernelArg(kernel, n_memories, sizeof queue->words, &queue->words);
    if (!error) error = cl->SetKernelArg(kernel, n_memories + 1, sizeof arguments, &arguments);
    size_t local = WFI_GROUP_SIZE, global = (size_t)launch->n_groups * local;
    if (!error)
        error = cl->EnqueueNDRangeKernel(wfi_opencl_queue_of(stream->device, stream), kernel, 1,
                                         NULL, &global, &local, 0, NULL, NULL);
    return error ? wfi_opencl_fail(stream->owner->ctx, own->unit,
                                   launch->source->entries[launch->entry], error)
                 : WF_OK;
}

static wf_status launch_wider(wfi_stream_queue *stream, const void *self) {
    const wfi_kernel_launch *launch = self;
    WF_TRY(launch_beside(stream, launch));
    return wfi_built_add(stream->owner->ctx, &wfi_opencl_state(stream->device)->unit->widths,
                         launch, (void *)(intptr_t)launch->n_groups);
}

static void go_beside(wfi_stream_queue *stream) {
    wfi_opencl_queue *queue = stream->queue;
    if (!queue->is_beside) pthread_rwlock_rdlock(&wfi_opencl_state(stream->device)->unit->beside);
    queue->is_beside = true;
}

/* PoCL 3.1 mistakes launches of a kernel for each other, and aborts, where one that has more groups
 * than any before begins beside others: so such a one is alone on its unit. */
wf_status wfi_opencl_enqueue(wfi_stream_queue *stream, bool is_wider,
                             wf_status (*enqueue)(wfi_stream_queue *stream, const void *self),
                             const void *self) {
    wfi_opencl_unit *unit = wfi_opencl_state(stream->device)->unit;
    go_beside(stream);
    if (!is_wider) return enqueue(stream, self);
    WF_TRY(opencl_finish_task(stream));
    pthread_rwlock_wrlock(&unit->beside);
    wf_status status = enqueue(stream, self);
    if (status == WF_OK) status = wfi_opencl_finish(stream->device, stream);
    pthread_rwlock_unlock(&unit->beside);
    return status;
}

static wf_status opencl_launch(wfi_stream_queue *stream, const wfi_kernel_launch *launch) {
    const wfi_opencl_unit *unit = wfi_opencl_state(stream->device)->unit;
    if (!launch->n_groups) return WF_OK;
    go_beside(stream); /* `widths` are looked at */
    bool is_wider = (intptr_t)wfi_built_find(&unit->widths, launch) < launch->n_groups;
    return wfi_opencl_enqueue(stream, is_wider, is_wider ? launch_wider : launch_beside, launch);
}

static wf_status opencl_read_words(wfi_stream_queue *stream, int32_t words_out[WFI_LAUNCH_WORDS]) {
    const wfi_opencl_device *own = wfi_opencl_state(stream->device);
    const wfi_opencl *cl = &own->all->cl;
    const wfi_opencl_queue *queue = stream->queue;
    const unsigned char zero = 0;
    size_t bytes = WFI_LAUNCH_WORDS * sizeof *words_out;
    cl_int error =
        cl->EnqueueReadBuffer(queue->queue, queue->words, 1, 0, bytes, words_out, 0, NULL, NULL);
    if (!error)
        error =
            cl->EnqueueFillBuffer(queue->queue, queue->words, &zero, 1, 0, bytes, 0, NULL, NULL);
    return error ? wfi_opencl_fail(stream->owner->ctx, own->unit, "kernels and copies", error)
                 : WF_OK;
}

const wfi_device_class wfi_device_opencl = {
    .name = "opencl",
    .has_memory = true,
    .is_separate = true,
    .create = wfi_opencl_create,
    .destroy = wfi_opencl_destroy,
    .reaches = wfi_opencl_reaches,
    .memory_create = wfi_opencl_memory_create,
    .memory_destroy = wfi_opencl_memory_destroy,
    .copy = wfi_opencl_copy,
    .fill = wfi_opencl_fill,
    .streams = &wfi_thread_streams,
    .stream_create = opencl_stream_create,
    .stream_destroy = opencl_stream_destroy,
    .finish_task = opencl_finish_task,
    .launch = opencl_launch,
    .read_words = opencl_read_words,
    .describe = wfi_opencl_describe,
};
