/* Memory of OpenCL devices: buffers have no addresses, so addresses are reserved for each, which
 * cannot be accessed. An address stands for the buffer and an offset in it. */
#include "device/opencl.h"

#include <sys/mman.h>

wf_status wfi_opencl_find(const wfi_device *device, const void *address, wfi_range *range_out,
                          size_t *offset_out) {
    if (!wfi_ranges_find(&wfi_opencl_machine_of(device)->ranges, address, range_out))
        return wfi_fail(device->owner.ctx, WF_BUG, "opencl: %p is in no device's memory",
                        (void *)(uintptr_t)address);
    *offset_out = (size_t)((const char *)address - range_out->base);
    return WF_OK;
}

wf_status wfi_opencl_part(const wfi_device *device, const void *address, size_t bytes,
                          cl_handle *part_out, size_t *offset_out) {
    wfi_range found;
    cl_int error = CL_SUCCESS;
    WF_TRY(wfi_opencl_find(device, address, &found, offset_out));
    size_t region[2] = {*offset_out & ~(WFI_OPENCL_PART_ALIGN - 1)};
    *offset_out -= region[0];
    region[1] = *offset_out + bytes;
    *part_out = wfi_opencl_of(device)->CreateSubBuffer(
        found.object, 0, CL_BUFFER_CREATE_TYPE_REGION, region, &error);
    return wfi_opencl_check(device, "a part of memory", error);
}

/* Creates a zeroed buffer. Drivers allocate memory at the first write, so the zeros also reserve
 * it. */
static wf_status create_buffer(const wfi_device *device, size_t bytes, cl_handle *buffer_out) {
    const wfi_opencl *cl = wfi_opencl_of(device);
    const wfi_opencl_unit *own = wfi_opencl_unit_of(device);
    const unsigned char zero = 0;
    char text[64];
    cl_int error = CL_SUCCESS;
    cl_handle buffer = cl->CreateBuffer(own->context, CL_MEM_READ_WRITE, bytes, NULL, &error);
    if (buffer)
        error =
            cl->EnqueueFillBuffer(own->unit.host_queue, buffer, &zero, 1, 0, bytes, 0, NULL, NULL);
    if (buffer && !error) error = cl->Finish(own->unit.host_queue);
    if (buffer && error) cl->ReleaseMemObject(buffer);
    *buffer_out = buffer;
    return error ? wfi_fail(device->owner.ctx, WF_NO_MEMORY, "opencl: %s refused %zu bytes: %s",
                            own->unit.name, bytes, wfi_opencl_error(error, text))
                 : WF_OK;
}

/* Creates the buffer for the reserved addresses. */
static wf_status back(wfi_device *device, const void *base, size_t bytes) {
    wfi_opencl_machine *all = wfi_opencl_machine_of(device);
    wfi_range range = {base, bytes, device->state, NULL};
    WF_TRY(create_buffer(device, bytes, &range.object));
    wf_status status = wfi_ranges_add(device->owner.ctx, &all->ranges, range);
    if (status != WF_OK) all->cl.ReleaseMemObject(range.object);
    return status;
}

wf_status wfi_opencl_memory_create(wfi_device *device, wfi_space space, size_t bytes,
                                   void **base_out) {
    bool is_host = space == WFI_SPACE_HOST;
    void *base = mmap(NULL, bytes, is_host ? PROT_READ | PROT_WRITE : PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) return wfi_no_memory(device->owner.ctx, bytes, "a rank's arena");
    *base_out = base;
    wf_status status = is_host ? WF_OK : back(device, base, bytes);
    if (status != WF_OK) munmap(base, bytes);
    return status;
}

void wfi_opencl_memory_destroy(wfi_device *device, wfi_space space, void *base, size_t bytes) {
    wfi_opencl_machine *all = wfi_opencl_machine_of(device);
    if (space == WFI_SPACE_DEVICE)
        all->cl.ReleaseMemObject(wfi_ranges_take(&all->ranges, base).object);
    munmap(base, bytes);
}

wf_status wfi_opencl_copy(wfi_device *device, wfi_stream_queue *stream, void *to, bool to_device,
                          const void *from, bool from_device, size_t bytes) {
    const wfi_opencl *cl = wfi_opencl_of(device);
    cl_handle queue = wfi_separate_queue(device, stream);
    wfi_range source = {NULL}, target = {NULL};
    size_t from_at = 0, to_at = 0;
    if (from_device) WF_TRY(wfi_opencl_find(device, from, &source, &from_at));
    if (to_device) WF_TRY(wfi_opencl_find(device, to, &target, &to_at));
    cl_int error =
        !to_device
            ? cl->EnqueueReadBuffer(queue, source.object, 0, from_at, bytes, to, 0, NULL, NULL)
        : !from_device
            ? cl->EnqueueWriteBuffer(queue, target.object, 0, to_at, bytes, from, 0, NULL, NULL)
            : cl->EnqueueCopyBuffer(queue, source.object, target.object, from_at, to_at, bytes, 0,
                                    NULL, NULL);
    return wfi_opencl_check(device, "a copy", error);
}

wf_status wfi_opencl_fill(wfi_device *device, wfi_stream_queue *stream, void *to, int byte,
                          size_t bytes) {
    const unsigned char pattern = (unsigned char)byte;
    wfi_range found;
    size_t offset = 0;
    WF_TRY(wfi_opencl_find(device, to, &found, &offset));
    return wfi_opencl_check(
        device, "setting memory",
        wfi_opencl_of(device)->EnqueueFillBuffer(wfi_separate_queue(device, stream), found.object,
                                                 &pattern, 1, offset, bytes, 0, NULL, NULL));
}
