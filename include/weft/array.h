/* Arrays of elements on a device.
 *
 * An array has one dtype and one shape. Arrays and modules (module.h) are the parts from which
 * data parallelism in one process is built.
 *
 *     wf_array_create(ctx, WF_F32, &WF_SHAPE(20, 10), "cpu:0", host, &batch);
 *     wf_array_scatter(batch, (const char *[]){"cpu:0", "cpu:1"}, 2, parts, &n_parts);
 *
 * A device name is "cpu", the first CPU device, or "cpu:K". Arrays are immutable, so several
 * threads may read one at the same time. Every function that makes an array copies the elements.
 */
#ifndef WEFT_ARRAY_H
#define WEFT_ARRAY_H

#include <weft/context.h>
#include <weft/types.h>

typedef struct wf_array wf_array;

#ifdef __cplusplus
extern "C" {
#endif

/* Creates an array on `device` from row-major `data` in host memory, which the array copies; NULL
 * fills it with zeros. Errors: INVALID_ARG (a bad dtype or device name, a negative dim, more than
 * WF_MAX_DIMS dims), UNSUPPORTED (not a CPU device), NO_MEMORY. */
WF_API WF_NODISCARD wf_status wf_array_create(wf_context *ctx, wf_dtype dtype,
                                              const wf_shape *shape, const char *device,
                                              const void *data, wf_array **array_out);
WF_API void wf_array_destroy(wf_array *array); /* NULL is allowed */

/* The array's properties. The device name, such as "cpu:1", is borrowed. */
WF_API wf_dtype wf_array_dtype(const wf_array *array);
WF_API wf_shape wf_array_shape(const wf_array *array);
WF_API size_t wf_array_bytes(const wf_array *array);
WF_API const char *wf_array_device(const wf_array *array);

/* Copies all elements to `dst` in host memory. Errors: SHAPE (dst_bytes is not wf_array_bytes). */
WF_API WF_NODISCARD wf_status wf_array_read(const wf_array *array, void *dst, size_t dst_bytes);
/* Copies the array to another device, or a second time to the same one. Errors: INVALID_ARG (a bad
 * device name), UNSUPPORTED (not a CPU device), NO_MEMORY. */
WF_API WF_NODISCARD wf_status wf_array_copy(const wf_array *array, const char *device,
                                            wf_array **copy_out);

/* Splits dim 0 over the devices in order, as PyTorch's scatter does. Each array has
 * ceil(n / n_devices) rows, and the last one has the rest: 20 rows over three devices are 7, 7, 6.
 * *n_out is the number of arrays, which may be smaller than n_devices: 5 rows over four devices
 * are 2, 2, 1. A device may occur twice. Errors: SHAPE (a scalar, or dim 0 is 0), INVALID_ARG (no
 * devices), those of wf_array_copy. */
WF_API WF_NODISCARD wf_status wf_array_scatter(const wf_array *array, const char *const *devices,
                                               int n_devices, wf_array **arrays_out, int *n_out);
/* Concatenates the arrays along dim 0, in order, on `device`. Errors: SHAPE (dtypes differ, or dims
 * other than dim 0; the sentence shows both shapes), INVALID_ARG (no arrays), those of
 * wf_array_copy. */
WF_API WF_NODISCARD wf_status wf_array_gather(wf_array *const *arrays, int n_arrays,
                                              const char *device, wf_array **array_out);

#ifdef __cplusplus
}
#endif
#endif
