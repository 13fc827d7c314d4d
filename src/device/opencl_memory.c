/* Memory of OpenCL devices is buffers, which have no addresses: addresses are reserved for each,
 * which nobody can touch, and stand for the buffer and the offset in it.
 */
#include "device/bounce.h"
#include "device/disk.h"
#include "device/opencl.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Where in the list an address is, or would be. */
static size_t place_of(const wfi_opencl_machine *all, const char *address) {
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

wf_status wfi_opencl_find(wf_context *ctx, wfi_opencl_machine *all, const void *address,
                          wfi_opencl_range *range_out, size_t *offset_out) {
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

wf_status wfi_opencl_part(wf_context *ctx, const wfi_opencl_device *own, const void *address,
                          size_t bytes, cl_handle *part_out, size_t *offset_out) {
    wfi_opencl_range found;
    cl_int error = CL_SUCCESS;
    WF_TRY(wfi_opencl_find(ctx, own->all, address, &found, offset_out));
    size_t region[2] = {*offset_out & ~(WFI_OPENCL_PART_ALIGN - 1)};
    *offset_out -= region[0];
    region[1] = *offset_out + bytes;
    *part_out =
        own->all->cl.CreateSubBuffer(found.buffer, 0, CL_BUFFER_CREATE_TYPE_REGION, region, &error);
    return *part_out ? WF_OK : wfi_opencl_fail(ctx, own->unit, "a part of memory", error);
}

static wf_status add_range(wf_context *ctx, wfi_opencl_machine *all, wfi_opencl_range new) {
    pthread_mutex_lock(&all->lock);
    wfi_opencl_range *more = realloc(all->ranges, (all->n_ranges + 1) * sizeof *more);
    if (more) {
        all->ranges = more;
        size_t i = place_of(all, new.base);
        memmove(more + i + 1, more + i, (all->n_ranges++ - i) * sizeof *more);
        more[i] = new;
    }
    pthread_mutex_unlock(&all->lock);
    return more ? WF_OK : wfi_no_memory(ctx, sizeof *more, "a device's memory");
}

wf_status wfi_opencl_buffer(wf_context *ctx, const wfi_opencl_device *own, size_t bytes,
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

wf_status wfi_opencl_memory_create(wfi_device *device, wfi_space space, size_t bytes,
                                   void **base_out) {
    wf_context *ctx = device->owner.ctx;
    const wfi_opencl_device *own = wfi_opencl_state(device);
    if (space == WFI_SPACE_DISK) return wfi_disk_create(device, bytes, base_out);
    if (!bytes) bytes = WFI_ALIGN_BYTES;
    wfi_opencl_range new = {.bytes = bytes, .unit = own->unit};
    bool is_host = space == WFI_SPACE_HOST;
    *base_out = reserve(bytes, is_host ? PROT_READ | PROT_WRITE : PROT_NONE);
    if (!*base_out) return wfi_no_memory(ctx, bytes, "a rank's arena");
    if (is_host) return WF_OK;
    new.base = *base_out;
    wf_status status = wfi_opencl_buffer(ctx, own, bytes, &new.buffer);
    if (status == WF_OK) status = add_range(ctx, own->all, new);
    if (status == WF_OK) return WF_OK;
    if (new.buffer) own->all->cl.ReleaseMemObject(new.buffer);
    munmap(*base_out, bytes);
    return status;
}

void wfi_opencl_memory_destroy(wfi_device *device, wfi_space space, void *base, size_t bytes) {
    wfi_opencl_machine *all = wfi_opencl_state(device)->all;
    if (!bytes) bytes = WFI_ALIGN_BYTES;
    if (space == WFI_SPACE_DISK) {
        wfi_disk_destroy(device, base);
        return;
    }
    if (space == WFI_SPACE_DEVICE) {
        pthread_mutex_lock(&all->lock);
        size_t i = place_of(all, base);
        if (!wfi_opencl_hangs(all->ranges[i].unit)) all->cl.ReleaseMemObject(all->ranges[i].buffer);
        memmove(all->ranges + i, all->ranges + i + 1, (--all->n_ranges - i) * sizeof *all->ranges);
        pthread_mutex_unlock(&all->lock);
    }
    munmap(base, bytes);
}

/* ---- copies ---- */

/* Between the host and a device; done when the queue is finished. */
static wf_status copy_host(wfi_device *device, const wfi_stream_queue *stream, void *host,
                           const void *address, size_t bytes, bool reads) {
    const wfi_opencl_device *own = wfi_opencl_state(device);
    const wfi_opencl *cl = &own->all->cl;
    wfi_opencl_range found;
    size_t offset;
    WF_TRY(wfi_opencl_find(device->owner.ctx, own->all, address, &found, &offset));
    cl_handle queue = wfi_opencl_queue_of(device, stream);
    cl_int error =
        reads ? cl->EnqueueReadBuffer(queue, found.buffer, 0, offset, bytes, host, 0, NULL, NULL)
              : cl->EnqueueWriteBuffer(queue, found.buffer, 0, offset, bytes, host, 0, NULL, NULL);
    return error ? wfi_opencl_fail(device->owner.ctx, own->unit, "a copy", error) : WF_OK;
}

static wf_status copy_within(wfi_device *device, wfi_stream_queue *stream, char *to,
                             const char *from, size_t bytes) {
    const wfi_opencl_device *own = wfi_opencl_state(device);
    wfi_opencl_range source, target;
    size_t from_at, to_at;
    WF_TRY(wfi_opencl_find(device->owner.ctx, own->all, from, &source, &from_at));
    WF_TRY(wfi_opencl_find(device->owner.ctx, own->all, to, &target, &to_at));
    cl_int error =
        own->all->cl.EnqueueCopyBuffer(wfi_opencl_queue_of(device, stream), source.buffer,
                                       target.buffer, from_at, to_at, bytes, 0, NULL, NULL);
    return error ? wfi_opencl_fail(device->owner.ctx, own->unit, "a copy", error) : WF_OK;
}

wf_status wfi_opencl_copy(wfi_device *device, wfi_stream_queue *stream, void *to,
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
        return wfi_bounce_copy(stream, device, to, to_space, device, from, from_space, bytes);
    else if (to_device)
        WF_TRY(copy_host(device, stream, (void *)(uintptr_t)from, to, bytes, false));
    else
        WF_TRY(copy_host(device, stream, to, from, bytes, true));
    return stream ? WF_OK : wfi_opencl_finish(device, stream);
}

wf_status wfi_opencl_fill(wfi_device *device, wfi_stream_queue *stream, void *to, wfi_space space,
                          int byte, size_t bytes) {
    const wfi_opencl_device *own = wfi_opencl_state(device);
    const unsigned char pattern = (unsigned char)byte;
    wfi_opencl_range found;
    size_t offset;
    if (space == WFI_SPACE_DISK) return wfi_disk_fill(device, to, byte, bytes);
    if (space == WFI_SPACE_HOST) return memset(to, byte, bytes), WF_OK;
    if (!bytes) return WF_OK;
    WF_TRY(wfi_opencl_find(device->owner.ctx, own->all, to, &found, &offset));
    cl_int error = own->all->cl.EnqueueFillBuffer(wfi_opencl_queue_of(device, stream), found.buffer,
                                                  &pattern, 1, offset, bytes, 0, NULL, NULL);
    if (error) return wfi_opencl_fail(device->owner.ctx, own->unit, "setting memory", error);
    return stream ? WF_OK : wfi_opencl_finish(device, stream);
}
