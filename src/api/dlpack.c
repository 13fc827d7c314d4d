/* Arrays as DLPack's tensors, and copies of those. */
#include "api/array.h"

#include <string.h>
#include <weft/dlpack.h>

/* ---- as the standard lays it out, version 1 ---- */

typedef struct tensor {
    void *data;
    struct {
        int32_t type, id;
    } device;
    int32_t n_dims;
    struct {
        uint8_t code, bits;
        uint16_t lanes;
    } dtype;
    int64_t *shape, *strides; /* of elements; strides NULL: row-major */
    uint64_t byte_offset;
} tensor;

struct DLManagedTensorVersioned {
    struct {
        uint32_t major, minor;
    } version;
    void *manager;
    void (*deleter)(struct DLManagedTensorVersioned *self);
    uint64_t flags;
    tensor tensor;
};

enum { MAJOR = 1, MINOR = 0, READ_ONLY = 1, ON_HOST = 1, ON_CUDA_HOST = 3 };
enum { CODE_INT = 0, CODE_UINT = 1, CODE_FLOAT = 2, CODE_BFLOAT = 4 };

static const struct {
    uint8_t code, bits;
} dtypes[WF_N_DTYPES] = {
    [WF_F32] = {CODE_FLOAT, 32}, [WF_F64] = {CODE_FLOAT, 64}, [WF_BF16] = {CODE_BFLOAT, 16},
    [WF_I32] = {CODE_INT, 32},   [WF_I64] = {CODE_INT, 64},   [WF_U8] = {CODE_UINT, 8},
};

/* ---- out ---- */

/* Memory that the exported tensor points to, except the array. */
typedef struct exported {
    struct DLManagedTensorVersioned managed;
    int64_t shape[WF_MAX_DIMS], strides[WF_MAX_DIMS];
} exported;

static void end_export(struct DLManagedTensorVersioned *self) {
    wf_array *a = self->manager;
    wf_context *ctx = a->ctx;
    wf_array_destroy(a);
    wfi_free(ctx, self);
}

wf_status wf_array_to_dlpack(wf_array *a, struct DLManagedTensorVersioned **tensor_out) {
    exported *e = wfi_alloc(a->ctx, 1, sizeof *e, "an array for others");
    if (!e) return WF_NO_MEMORY;
    e->managed = (struct DLManagedTensorVersioned){
        .version = {MAJOR, MINOR},
        .manager = a,
        .deleter = end_export,
        .flags = READ_ONLY,
        .tensor = {.data = a->data,
                   .device = {ON_HOST, 0}, /* CPU devices' memory is the host's, which is one */
                   .n_dims = a->shape.n_dims,
                   .dtype = {dtypes[a->dtype].code, dtypes[a->dtype].bits, 1},
                   .shape = e->shape,
                   .strides = e->strides}};
    int64_t stride = 1;
    for (int d = a->shape.n_dims - 1; d >= 0; d--) {
        e->shape[d] = a->shape.dim[d];
        e->strides[d] = stride;
        stride *= a->shape.dim[d] > 1 ? a->shape.dim[d] : 1;
    }
    atomic_fetch_add(&a->n_owners, 1);
    *tensor_out = &e->managed;
    return WF_OK;
}

/* ---- in ---- */

static wf_status check(wf_context *ctx, const struct DLManagedTensorVersioned *managed,
                       wf_dtype *dtype_out, wf_shape *shape_out) {
    const tensor *t = &managed->tensor;
    if (managed->version.major != MAJOR)
        return wfi_fail(ctx, WF_UNSUPPORTED, "a DLPack tensor of version %u.%u; weft reads %d.x",
                        managed->version.major, managed->version.minor, MAJOR);
    if (t->device.type != ON_HOST && t->device.type != ON_CUDA_HOST)
        return wfi_fail(ctx, WF_UNSUPPORTED,
                        "a DLPack tensor on a device of type %d; weft reads the host's memory (%d)",
                        (int)t->device.type, ON_HOST);
    int dtype = 0;
    while (dtype < WF_N_DTYPES &&
           (t->dtype.code != dtypes[dtype].code || t->dtype.bits != dtypes[dtype].bits))
        dtype++;
    if (dtype == WF_N_DTYPES || t->dtype.lanes != 1)
        return wfi_fail(ctx, WF_UNSUPPORTED,
                        "a DLPack tensor whose elements have code %d, %d bits, %d lanes; weft has "
                        "no such type",
                        t->dtype.code, t->dtype.bits, t->dtype.lanes);
    if (t->n_dims < 0 || t->n_dims > WF_MAX_DIMS || (t->n_dims && !t->shape))
        return wfi_fail(ctx, WF_INVALID_ARG, "a DLPack tensor of %d dims; weft takes 0 to %d",
                        (int)t->n_dims, WF_MAX_DIMS);
    *dtype_out = (wf_dtype)dtype;
    *shape_out = (wf_shape){.n_dims = t->n_dims};
    for (int d = 0; d < t->n_dims; d++) shape_out->dim[d] = t->shape[d];
    return WF_OK;
}

/* Copies the elements of dims from `dim` on, row-major; returns where the next ones go. */
static char *copy_elements(char *to, const char *from, const wf_shape *shape,
                           const int64_t *strides, int dim, int64_t bytes) {
    if (dim == shape->n_dims) return (char *)memcpy(to, from, (size_t)bytes) + bytes;
    for (int64_t i = 0; i < shape->dim[dim]; i++)
        to = copy_elements(to, from + i * strides[dim] * bytes, shape, strides, dim + 1, bytes);
    return to;
}

wf_status wf_array_from_dlpack(wf_context *ctx, struct DLManagedTensorVersioned *managed,
                               const char *device, wf_array **array_out) {
    const tensor *t = &managed->tensor;
    char name[WF_DEVICE_NAME_BYTES];
    wf_dtype dtype = WF_F32;
    wf_shape shape;
    wf_array *a;
    WF_TRY(check(ctx, managed, &dtype, &shape));
    WF_TRY(wfi_device_name(ctx, device, name));
    WF_TRY(wfi_array_new(ctx, dtype, &shape, name, &a));
    if (a->bytes && t->strides)
        copy_elements(a->data, (const char *)t->data + t->byte_offset, &shape, t->strides, 0,
                      (int64_t)wf_dtype_bytes(dtype));
    else if (a->bytes)
        memcpy(a->data, (const char *)t->data + t->byte_offset, a->bytes);
    if (managed->deleter) managed->deleter(managed);
    *array_out = a;
    return WF_OK;
}
