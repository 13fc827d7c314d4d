/* A worker: one rank's device, its streams and its arena. Private. */
#ifndef WFI_WORKER_H
#define WFI_WORKER_H

#include "device/device.h"
#include "program/program.h"
#include "run/observer.h"

typedef struct wfi_worker {
    wfi_device *device;
    wfi_stream_queue *streams[WFI_N_STREAMS];
    char *base; /* of the arena: state first, at the same offsets in every program */
    size_t arena_bytes, shift_bytes;
    wfi_observer observer;
} wfi_worker;

/* "cpu", "cpu:N" (N ranks) or a list "cpu:0,cpu:1" (one rank each): kind and number.
 * Errors: INVALID_ARG, UNSUPPORTED (two kinds). */
wf_status wfi_devices_parse(wf_context *ctx, const char *text, char kind_out[16], int *n_out);

/* Errors: UNSUPPORTED for a device without memory. `worker` is zeroed before. */
wf_status wfi_worker_create(wf_context *ctx, const wfi_device_config *config, size_t shift_bytes,
                            wfi_worker *worker);
/* Ends the threads; of all workers before the first is destroyed. */
void wfi_worker_stop(wfi_worker *worker);
void wfi_worker_destroy(wfi_worker *worker);

/* Makes room for `bytes`, keeping the first `state_bytes`. The streams are idle. */
wf_status wfi_worker_grow(wfi_worker *worker, size_t bytes, size_t state_bytes);

#endif
