/* Arrays on devices: made, copied, divided, joined. */
#include "api/array.h"

#include "graph/graph.h"

#include <stdio.h>
#include <string.h>

wf_status wfi_device_name(wf_context *ctx, const char *device,
                          char name_out[WF_DEVICE_NAME_BYTES]) {
    wfi_device_list list;
    WF_TRY(wfi_device_named(ctx, device, &list));
    snprintf(name_out, WF_DEVICE_NAME_BYTES, "%s:%d", wfi_device_kind_of(&list, 0)->name,
             list.place[0]);
    return WF_OK;
}

static wf_status check_shape(wf_context *ctx, wf_dtype dtype, const wf_shape *shape) {
    if ((unsigned)dtype >= WF_N_DTYPES)
        return wfi_fail(ctx, WF_INVALID_ARG, "an array of dtype %d, which does not exist",
                        (int)dtype);
    if (shape->n_dims < 0 || shape->n_dims > WF_MAX_DIMS)
        return wfi_fail(ctx, WF_INVALID_ARG, "an array of %d dims; it takes 0 to %d", shape->n_dims,
                        WF_MAX_DIMS);
    int64_t most = INT64_MAX / (int64_t)wf_dtype_bytes(dtype);
    for (int d = 0; d < shape->n_dims; d++) {
        if (shape->dim[d] < 0 || (shape->dim[d] && most / shape->dim[d] == 0))
            return wfi_fail(ctx, WF_INVALID_ARG, "an array whose dim %d is %lld", d,
                            (long long)shape->dim[d]);
        if (shape->dim[d]) most /= shape->dim[d];
    }
    return WF_OK;
}

wf_status wfi_array_new(wf_context *ctx, wf_dtype dtype, const wf_shape *shape, const char *device,
                        wf_array **array_out) {
    WF_TRY(check_shape(ctx, dtype, shape));
    wf_array *a = wfi_alloc(ctx, 1, sizeof *a, "an array");
    if (!a) return WF_NO_MEMORY;
    *a = (wf_array){.ctx = ctx, .dtype = dtype, .shape = *shape, .n_owners = 1};
    a->bytes = (size_t)wf_shape_n_elem(shape) * wf_dtype_bytes(dtype);
    snprintf(a->device, sizeof a->device, "%s", device);
    a->data = wfi_alloc(ctx, a->bytes ? a->bytes : 1, 1, "an array");
    if (!a->data) {
        wf_array_destroy(a);
        return WF_NO_MEMORY;
    }
    *array_out = a;
    return WF_OK;
}

wf_status wf_array_create(wf_context *ctx, wf_dtype dtype, const wf_shape *shape,
                          const char *device, const void *data, wf_array **array_out) {
    char name[WF_DEVICE_NAME_BYTES];
    WF_TRY(wfi_device_name(ctx, device, name));
    WF_TRY(wfi_array_new(ctx, dtype, shape, name, array_out));
    if (data)
        memcpy((*array_out)->data, data, (*array_out)->bytes);
    else
        memset((*array_out)->data, 0, (*array_out)->bytes);
    return WF_OK;
}

void wf_array_destroy(wf_array *a) {
    if (!a || atomic_fetch_sub(&a->n_owners, 1) > 1) return;
    wfi_free(a->ctx, a->data);
    wfi_free(a->ctx, a);
}

wf_dtype wf_array_dtype(const wf_array *a) {
    return a->dtype;
}

wf_shape wf_array_shape(const wf_array *a) {
    return a->shape;
}

size_t wf_array_bytes(const wf_array *a) {
    return a->bytes;
}

const char *wf_array_device(const wf_array *a) {
    return a->device;
}

wf_status wf_array_read(const wf_array *a, void *dst, size_t dst_bytes) {
    if (dst_bytes != a->bytes)
        return wfi_fail(a->ctx, WF_SHAPE, "the array has %zu bytes, not %zu", a->bytes, dst_bytes);
    memcpy(dst, a->data, a->bytes);
    return WF_OK;
}

wf_status wf_array_copy(const wf_array *a, const char *device, wf_array **copy_out) {
    return wf_array_create(a->ctx, a->dtype, &a->shape, device, a->data, copy_out);
}

/* ---- along dim 0 ---- */

size_t wfi_array_row_bytes(const wf_array *a) {
    return a->shape.n_dims && a->shape.dim[0] ? a->bytes / (size_t)a->shape.dim[0] : a->bytes;
}

static wf_status take_rows(const wf_array *a, int64_t first, int64_t n, const char *device,
                           wf_array **rows_out) {
    wf_shape shape = a->shape;
    shape.dim[0] = n;
    return wf_array_create(a->ctx, a->dtype, &shape, device,
                           a->data + (size_t)first * wfi_array_row_bytes(a), rows_out);
}

wf_status wf_array_scatter(const wf_array *a, const char *const *devices, int n_devices,
                           wf_array **arrays_out, int *n_out) {
    char text[WFI_SHAPE_TEXT];
    if (n_devices < 1)
        return wfi_fail(a->ctx, WF_INVALID_ARG, "scatter over %d devices", n_devices);
    if (a->shape.n_dims < 1 || a->shape.dim[0] < 1)
        return wfi_fail(a->ctx, WF_SHAPE, "an array %s has no samples to scatter",
                        wfi_shape_text(&a->shape, text));
    int64_t n = a->shape.dim[0], share = (n + n_devices - 1) / n_devices;
    int n_made = 0;
    for (int64_t first = 0; first < n; first += share) {
        wf_status status = take_rows(a, first, wfi_min_i64(share, n - first), devices[n_made],
                                     &arrays_out[n_made]);
        if (status != WF_OK) {
            while (n_made > 0) wf_array_destroy(arrays_out[--n_made]);
            return status;
        }
        n_made++;
    }
    *n_out = n_made;
    return WF_OK;
}

static bool can_follow(const wf_array *a, const wf_array *b) {
    bool same = a->dtype == b->dtype && a->shape.n_dims == b->shape.n_dims && a->shape.n_dims > 0;
    for (int d = 1; d < a->shape.n_dims && same; d++) same = a->shape.dim[d] == b->shape.dim[d];
    return same;
}

wf_status wf_array_gather(wf_array *const *arrays, int n_arrays, const char *device,
                          wf_array **array_out) {
    if (n_arrays < 1) return WF_INVALID_ARG; /* and no array knows a context for a sentence */
    const wf_array *first = arrays[0];
    wf_shape shape = first->shape;
    char name[WF_DEVICE_NAME_BYTES], one[WFI_SHAPE_TEXT], other[WFI_SHAPE_TEXT];
    WF_TRY(wfi_device_name(first->ctx, device, name));
    for (int k = 0; k < n_arrays; k++) {
        if (!can_follow(first, arrays[k]))
            return wfi_fail(first->ctx, WF_SHAPE,
                            "gather: array 0 is %s %s, array %d is %s %s; they may differ in dim 0 "
                            "only",
                            wf_dtype_name(first->dtype), wfi_shape_text(&first->shape, one), k,
                            wf_dtype_name(arrays[k]->dtype),
                            wfi_shape_text(&arrays[k]->shape, other));
        if (k) shape.dim[0] += arrays[k]->shape.dim[0];
    }
    WF_TRY(wfi_array_new(first->ctx, first->dtype, &shape, name, array_out));
    char *to = (*array_out)->data;
    for (int k = 0; k < n_arrays; to += arrays[k++]->bytes)
        memcpy(to, arrays[k]->data, arrays[k]->bytes);
    return WF_OK;
}
