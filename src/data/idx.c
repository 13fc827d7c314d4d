#include "data/idx.h"
#include "base/base.h"

#include <inttypes.h>

#define TYPE_U8 0x08

static uint32_t big_endian(const uint8_t *at) {
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static wf_status read_header(wf_context *ctx, const char *path, const uint8_t *bytes,
                             size_t n_bytes, int n_dims, int64_t dim[], size_t *n_values_out) {
    uint32_t wanted = TYPE_U8 << 8 | (uint32_t)n_dims;
    size_t header_bytes = wfi_idx_head_bytes(n_dims), n_values = 1;
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
    for (int d = 0; d < n_dims; d++) {
        dim[d] = big_endian(bytes + 4 + 4 * d);
        if (dim[d] == 0)
            return wfi_fail(ctx, WF_CORRUPT, "%s is empty: dim %d of its header is 0", path, d);
        if (__builtin_mul_overflow(n_values, (size_t)dim[d], &n_values))
            return wfi_fail(ctx, WF_CORRUPT, "%s: the sizes in its header overflow 64 bits", path);
    }
    *n_values_out = n_values;
    return WF_OK;
}

wf_status wfi_idx_announced(wf_context *ctx, const char *path, const uint8_t *head, size_t n_head,
                            const void *n_dims, size_t *n_bytes_out) {
    int n = *(const int *)n_dims;
    int64_t dim[WFI_IDX_MAX_DIMS];
    WF_TRY(read_header(ctx, path, head, n_head, n, dim, n_bytes_out));
    if (__builtin_add_overflow(*n_bytes_out, wfi_idx_head_bytes(n), n_bytes_out))
        return wfi_fail(ctx, WF_CORRUPT, "%s: the sizes in its header overflow 64 bits", path);
    return WF_OK;
}

wf_status wfi_idx_parse(wf_context *ctx, const char *path, const uint8_t *bytes, size_t n_bytes,
                        int n_dims, wfi_idx *idx_out) {
    size_t header_bytes = wfi_idx_head_bytes(n_dims), n_values;
    wfi_idx idx = {.values = bytes + header_bytes};
    WF_TRY(read_header(ctx, path, bytes, n_bytes, n_dims, idx.dim, &n_values));
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
