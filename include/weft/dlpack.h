/* Exchange of arrays with other libraries by DLPack, version 1 (https://dmlc.github.io/dlpack).
 *
 *     wf_array_to_dlpack(array, &tensor); // for Python's "dltensor_versioned" capsule
 *     wf_array_from_dlpack(ctx, tensor, "cpu:0", &array);
 *
 * The structure is the one of <dlpack/dlpack.h>, which is not needed here.
 */
#ifndef WEFT_DLPACK_H
#define WEFT_DLPACK_H

#include <weft/array.h>

struct DLManagedTensorVersioned;

#ifdef __cplusplus
extern "C" {
#endif

/* Exports the array without a copy: the tensor shares its memory and is marked read-only. The
 * memory lives until the array is destroyed and the tensor's deleter has been called, in either
 * order. Any thread may call the deleter. The context must outlive both. Errors: NO_MEMORY. */
WF_API WF_NODISCARD wf_status wf_array_to_dlpack(wf_array *array,
                                                 struct DLManagedTensorVersioned **tensor_out);
/* Copies a tensor in host memory, with any strides, to an array on `device`. On success the
 * function has called the tensor's deleter, if it has one; on failure the caller still owns the
 * tensor. The tensor's description of its memory is trusted, not checked. Errors: UNSUPPORTED
 * (another major version, memory of another kind of device, an element type that is not a wf_dtype,
 * vector elements), INVALID_ARG (its shape), those of wf_array_create. */
WF_API WF_NODISCARD wf_status wf_array_from_dlpack(wf_context *ctx,
                                                   struct DLManagedTensorVersioned *tensor,
                                                   const char *device, wf_array **array_out);

#ifdef __cplusplus
}
#endif
#endif
