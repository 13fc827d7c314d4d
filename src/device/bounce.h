/* Copies by way of the host's memory, for what no copy of a device reaches directly: files, and
 * memory of other devices. Private to src/device.
 */
#ifndef WFI_BOUNCE_H
#define WFI_BOUNCE_H

#include "device/device.h"

/* From a space of one device to one of another, or of the same. One of the two is the stream's; the
 * other's streams that know the memory are idle, or have been waited for. NULL: from the host. It
 * is done on return. */
wf_status wfi_bounce_copy(wfi_stream_queue *stream, wfi_device *to_device, void *to,
                          wfi_space to_space, wfi_device *from_device, const void *from,
                          wfi_space from_space, size_t bytes);
/* When the stream ends. */
void wfi_bounce_free(wfi_stream_queue *stream);

#endif
