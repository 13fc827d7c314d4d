#include "data/idx.h"
#include "base/base.h"

#include <inttypes.h>

#define TYPE_U8 0x08

static uint32_t big_endian(const uint8_t *at) {
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

wf_status wfi_idx_parse(wf_context *ctx, const char *path, const uint8_t *bytes, size_t n_bytes,
                        int n_dims, wfi_idx *idx_out) {
    uint32_t wanted = TYPE_U8 << 8 | (uint32_t)n_dims;
    size_t header_bytes = 4 + 4 * (size_t)n_dims;
    if (n_bytes < header_bytes)
        return wfi_fail(ctx, WF_CORRUPT,
                        "%s is truncated: %zu bytes, fewer than the %zu of an IDX header", path,
                        n_bytes, header_bytes);
    uint32_t magic = big_endian(bytes);
    if (magic != wanted)
        return wfi_fail(ctx, WF_CORRUPT,
                        "%s begins with 0x%08" PRIx32 ", not with 0x%08" PRIx32
                        ", the magic number of unsigned bytes in %d dim%s",
                        path, magic, wanted, n_dims, n_dims == 1 ? "" : "s");
    wfi_idx idx = {.values = bytes + header_bytes};
    size_t n_values = 1;
    for (int d = 0; d < n_dims; d++) {
        uint32_t dim = big_endian(bytes + 4 + 4 * d);
        idx.dim[d] = dim;
        if (dim == 0)
            return wfi_fail(ctx, WF_CORRUPT, "%s is empty: dim %d of its header is 0", path, d);
        if (__builtin_mul_overflow(n_values, (size_t)dim, &n_values))
            return wfi_fail(ctx, WF_CORRUPT, "%s: the sizes in its header overflow 64 bits", path);
    }
    size_t held = n_bytes - header_bytes;
    if (n_values > held)
        return wfi_fail(ctx, WF_CORRUPT,
                        "%s is truncated: its header announces %zu values, %zu are there", path,
                        n_values, held);
    if (n_values < held)
        return wfi_fail(ctx, WF_CORRUPT, "%s has %zu bytes after the %zu values it announces", path,
                        held - n_values, n_values);
    *idx_out = idx;
    return WF_OK;
}
