/* Element types and shapes. */
#include <weft/types.h>

static const struct {
    size_t bytes;
    const char *name;
} dtypes[WF_N_DTYPES] = {
#define ROW(name, bytes, file_name) [WF_##name] = {bytes, file_name},
    WF_DTYPE_LIST(ROW)
#undef ROW
};

size_t wf_dtype_bytes(wf_dtype dtype) {
    return (unsigned)dtype < WF_N_DTYPES ? dtypes[dtype].bytes : 0;
}

const char *wf_dtype_name(wf_dtype dtype) {
    return (unsigned)dtype < WF_N_DTYPES ? dtypes[dtype].name : "?";
}

int64_t wf_shape_n_elem(const wf_shape *shape) {
    int64_t n = 1;
    for (int d = 0; d < shape->n_dims; d++) n *= shape->dim[d];
    return n;
}
