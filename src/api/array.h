/* Arrays' insides. Private. */
#pragma once

#include "execute/worker.h"

#include <stdatomic.h>
#include <weft/array.h>
#include <weft/trainer.h>

struct wf_array {
    wf_context *ctx;
    wf_dtype dtype;
    wf_shape shape;
    char device[WF_DEVICE_NAME_BYTES];
    size_t bytes;
    char *data;          /* a CPU device's memory is the host's */
    atomic_int n_owners; /* its creator, and the tensors that share its data (dlpack.c) */
};

/* With undefined elements. `device` has been written by wfi_device_name. */
wf_status wfi_array_new(wf_context *ctx, wf_dtype dtype, const wf_shape *shape, const char *device,
                        wf_array **array_out);
/* The name in its one form: "cpu" is "cpu:0". */
wf_status wfi_device_name(wf_context *ctx, const char *device, char name_out[WF_DEVICE_NAME_BYTES]);
/* Bytes of one element of dim 0. */
size_t wfi_array_row_bytes(const wf_array *array);
