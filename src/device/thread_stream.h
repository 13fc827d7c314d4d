/* Streams with a thread each. Private to src/device. */
#pragma once

#include "device/device.h"

extern const wfi_stream_class wfi_thread_streams;
/* A device class's stream_create. */
wf_status wfi_thread_stream_create(wfi_device *device, wfi_stream_queue *stream,
                                   wfi_shared_epoch *counter);
/* Called from a task of a kind with devices that order streams: waits until earlier tasks are done
 * and counted. */
void wfi_thread_stream_drain(wfi_stream_queue *stream);
