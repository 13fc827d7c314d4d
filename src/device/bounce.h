/* Copies through host memory, for memory that no device copy reaches directly: files, and memory of
 * other devices. Private to src/device. */
#pragma once

#include "device/device.h"

/* Copies from a space of one device to a space of another, or of the same. One of the two devices
 * is the stream's. The other's streams that use the memory are idle, or have been waited for. A
 * NULL device is the host. The copy is done on return. */
wf_status wfi_bounce_copy(wfi_stream_queue *stream, wfi_device *to_device, void *to,
                          wfi_space to_space, wfi_device *from_device, const void *from,
                          wfi_space from_space, size_t bytes);
/* Frees the stream's bounce buffer. */
void wfi_bounce_free(wfi_stream_queue *stream);
