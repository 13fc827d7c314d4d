/* Element types and shapes of tensors. */
#ifndef WEFT_TYPES_H
#define WEFT_TYPES_H

#include <stddef.h>
#include <stdint.h>
#include <weft/status.h>

/* name, bytes per element, name in safetensors files */
#define WF_DTYPE_LIST(X)                                                                           \
    X(F32, 4, "F32")                                                                               \
    X(BF16, 2, "BF16")                                                                             \
    X(F64, 8, "F64")                                                                               \
    X(I32, 4, "I32")                                                                               \
    X(I64, 8, "I64")                                                                               \
    X(U8, 1, "U8")

typedef enum wf_dtype {
#define WF_DTYPE_ENUM(name, bytes, file_name) WF_##name,
    WF_DTYPE_LIST(WF_DTYPE_ENUM)
#undef WF_DTYPE_ENUM
        WF_N_DTYPES
} wf_dtype;

#define WF_MAX_DIMS 6

/* A row-major shape: the last dim is contiguous. n_dims 0 is a scalar. */
typedef struct wf_shape {
    int n_dims;
    int64_t dim[WF_MAX_DIMS];
} wf_shape;

#ifdef __cplusplus
extern "C" {
#endif

/* The bytes of one element, and the name, such as "F32"; 0 and "?" for other values. Static. */
WF_API size_t wf_dtype_bytes(wf_dtype dtype);
WF_API const char *wf_dtype_name(wf_dtype dtype);

/* The number of elements; 1 for a scalar, 0 if any dim is 0. */
WF_API int64_t wf_shape_n_elem(const wf_shape *shape);

#ifdef __cplusplus
}
#endif

/* WF_SHAPE(3, 224, 224) builds a shape in place (C only). */
#define WF_SHAPE(...)                                                                              \
    ((wf_shape){(int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), {__VA_ARGS__}})
#define WF_SCALAR ((wf_shape){0, {0}})

#endif
