#include "device/bounce.h"

#include <sys/mman.h>

/* The size of one piece in a copy through host memory. */
#define BOUNCE_BYTES ((size_t)4 << 20)

/* Finds the bounce buffer; a stream keeps its own. */
static wf_status find_buffer(const wfi_device *device, wfi_stream_queue *stream,
                             char **buffer_out) {
    if (stream && stream->bounce) {
        *buffer_out = stream->bounce;
        return WF_OK;
    }
    void *buffer =
        mmap(NULL, BOUNCE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (buffer == MAP_FAILED)
        return wfi_no_memory(device->owner.ctx, BOUNCE_BYTES, "a bounce buffer");
    if (stream) stream->bounce = buffer;
    *buffer_out = buffer;
    return WF_OK;
}

/* Copies between the buffer and a device; done on return. */
static wf_status copy_piece(wfi_device *device, wfi_stream_queue *stream, void *to,
                            wfi_space to_space, const void *from, wfi_space from_space,
                            size_t bytes) {
    if (stream && stream->device != device) stream = NULL;
    WF_TRY(wfi_memory_copy(device, stream, to, to_space, from, from_space, bytes));
    bool is_queued = stream && device->kind->finish_task;
    return is_queued ? device->kind->finish_task(stream) : WF_OK;
}

wf_status wfi_bounce_copy(wfi_stream_queue *stream, wfi_device *to_device, void *to,
                          wfi_space to_space, wfi_device *from_device, const void *from,
                          wfi_space from_space, size_t bytes) {
    char *buffer = NULL;
    if (stream) wfi_stream_settle(stream); /* other devices do not follow events */
    WF_TRY(find_buffer(to_device, stream, &buffer));
    wf_status status = WF_OK;
    for (size_t at = 0, n; at < bytes && status == WF_OK; at += n) {
        n = bytes - at < BOUNCE_BYTES ? bytes - at : BOUNCE_BYTES;
        status = copy_piece(from_device, stream, buffer, WFI_SPACE_HOST, (const char *)from + at,
                            from_space, n);
        if (status == WF_OK)
            status =
                copy_piece(to_device, stream, (char *)to + at, to_space, buffer, WFI_SPACE_HOST, n);
    }
    if (!stream) munmap(buffer, BOUNCE_BYTES);
    return status;
}

void wfi_bounce_free(wfi_stream_queue *stream) {
    if (stream->bounce) munmap(stream->bounce, BOUNCE_BYTES);
}
