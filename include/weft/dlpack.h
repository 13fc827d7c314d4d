/* Arrays shared with other libraries by DLPack (https://dmlc.github.io/dlpack), version 1.
 *
 *     wf_array_to_dlpack(array, &tensor);     // what Python puts into a "dltensor_versioned"
 * capsule wf_array_from_dlpack(ctx, tensor, "cpu:0", &array);
 *
 * The structure is that of <dlpack/dlpack.h>, which is not needed here.
 */
#ifndef WEFT_DLPACK_H
#define WEFT_DLPACK_H

#include <weft/array.h>

struct DLManagedTensorVersioned;

#ifdef __cplusplus
extern "C" {
#endif

/* The same memory: nothing is copied. It lives until both the array is destroyed and the tensor's
 * deleter has been called, which any thread may do; the context outlives both. As arrays never
 * change, the tensor is marked read-only. Errors: NO_MEMORY. */
WF_API WF_NODISCARD wf_status wf_array_to_dlpack(wf_array *array,
                                                 struct DLManagedTensorVersioned **tensor_out);
/* A copy of a tensor in the host's memory, whatever its strides, on `device`. On success its
 * deleter has been called, if it has one; else it is still the caller's. What it says of its memory
 * is believed. Errors: UNSUPPORTED (another major version, memory of another kind of device, an
 * element type that wf_dtype has not, vectors), INVALID_ARG (its shape), those of wf_array_create.
 */
WF_API WF_NODISCARD wf_status wf_array_from_dlpack(wf_context *ctx,
                                                   struct DLManagedTensorVersioned *tensor,
                                                   const char *device, wf_array **array_out);

#ifdef __cplusplus
}
#endif
#endif
