/* An array: elements of one dtype in a shape, on a device. With modules (module.h), the parts
 * of which data parallelism in one process is made.
 *
 *     wf_array_create(ctx, WF_F32, &WF_SHAPE(20, 10), "cpu:0", host, &batch);
 *     wf_array_scatter(batch, (const char *[]){"cpu:0", "cpu:1"}, 2, parts, &n_parts);
 *
 * A device is named "cpu" (the first) or "cpu:K". Arrays never change once they exist, so threads
 * may read one together; every function that makes arrays copies.
 */
#ifndef WEFT_ARRAY_H
#define WEFT_ARRAY_H

#include <weft/context.h>
#include <weft/types.h>

typedef struct wf_array wf_array;

#ifdef __cplusplus
extern "C" {
#endif

/* Row-major `data` of the host is copied; NULL: zeros. Errors: INVALID_ARG (a dim below 0, more
 * than WF_MAX_DIMS), UNSUPPORTED (no such device), NO_MEMORY. */
WF_API WF_NODISCARD wf_status wf_array_create(wf_context *ctx, wf_dtype dtype,
                                              const wf_shape *shape, const char *device,
                                              const void *data, wf_array **array_out);
WF_API void wf_array_destroy(wf_array *array); /* NULL is allowed */

WF_API wf_dtype wf_array_dtype(const wf_array *array);
WF_API wf_shape wf_array_shape(const wf_array *array);
WF_API size_t wf_array_bytes(const wf_array *array);
WF_API const char *wf_array_device(const wf_array *array); /* "cpu:1"; borrowed */

/* Copies all of it to the host. Errors: SHAPE (dst_bytes is not its size). */
WF_API WF_NODISCARD wf_status wf_array_read(const wf_array *array, void *dst, size_t dst_bytes);
/* The same elements on another device, or once more on this one. */
WF_API WF_NODISCARD wf_status wf_array_copy(const wf_array *array, const char *device,
                                            wf_array **copy_out);

/* Divides dim 0 among devices, in their order: ceil(n / n_devices) each, the last what is left.
 * So 20 over three are 7, 7, 6, and 5 over four are 2, 2, 1: *n_out arrays, which may be fewer
 * than devices. A device may be named twice. Errors: SHAPE (no dim 0, or it is 0). */
WF_API WF_NODISCARD wf_status wf_array_scatter(const wf_array *array, const char *const *devices,
                                               int n_devices, wf_array **arrays_out, int *n_out);
/* Joins arrays of one dtype that are equal but for dim 0 along it, in their order, on `device`.
 * Errors: SHAPE: the sentence shows both shapes; INVALID_ARG: no arrays. */
WF_API WF_NODISCARD wf_status wf_array_gather(wf_array *const *arrays, int n_arrays,
                                              const char *device, wf_array **array_out);

#ifdef __cplusplus
}
#endif
#endif
