/* Kernels of separate devices. Each kernel is a program of its own, as a driver may take long to
 * compile all. A unit owns its programs, and a stream its kernels. */
#include "device/program_cache.h"
#include "device/separate.h"

#include <stdlib.h>
#include <string.h>

/* Loads a program from the cache of earlier processes, or builds it. */
static wf_status make_program(const wfi_device *device, const char *kernel, const char *text,
                              void **program_out) {
    const wfi_separate_class *kind = device->kind->separate;
    char target[WFI_TARGET_BYTES];
    WF_TRY(kind->target(device, target));
    const char *const parts[] = {text, target};
    wfi_program_cache cache = wfi_program_cache_find(device->kind->name, parts, WFI_COUNT(parts));
    size_t bytes = 0;
    unsigned char *binary = wfi_program_cache_read(&cache, &bytes);
    bool is_loaded = binary && kind->load(device, kernel, binary, bytes, program_out) == WF_OK;
    free(binary);
    if (is_loaded) return WF_OK;
    binary = NULL;
    wf_status status = kind->build(device, kernel, text, program_out, &binary, &bytes);
    if (status == WF_OK && binary) wfi_program_cache_write(&cache, binary, bytes);
    free(binary);
    return status;
}

/* Called with the lock. */
static wf_status find_program(const wfi_device *device, const wfi_kernel_launch *launch,
                              void **program_out) {
    wf_context *ctx = device->owner.ctx;
    wfi_built_list *programs = &wfi_device_unit_of(device)->programs;
    *program_out = wfi_built_find(programs, launch);
    if (*program_out) return WF_OK;
    char *text = wfi_launch_text(launch->source, launch->entry, launch->narrow);
    if (!text) return wfi_no_memory(ctx, strlen(launch->source->text), "a program's text");
    wf_status status =
        make_program(device, launch->source->entries[launch->entry], text, program_out);
    free(text);
    return status == WF_OK ? wfi_built_add(ctx, programs, launch, *program_out) : status;
}

wf_status wfi_separate_kernel(wfi_stream_queue *stream, const wfi_kernel_launch *launch,
                              void **kernel_out) {
    const wfi_device *device = stream->device;
    pthread_mutex_t *lock = &wfi_device_unit_of(device)->machine->lock;
    wfi_device_queue *queue = stream->queue;
    void *program;
    *kernel_out = wfi_built_find(&queue->kernels, launch);
    if (*kernel_out) return WF_OK;
    pthread_mutex_lock(lock);
    wf_status status = find_program(device, launch, &program);
    if (status == WF_OK)
        status = device->kind->separate->kernel(device, program,
                                                launch->source->entries[launch->entry], kernel_out);
    pthread_mutex_unlock(lock);
    WF_TRY(status);
    return wfi_built_add(stream->owner->ctx, &queue->kernels, launch, *kernel_out);
}
