/* IDX, the format of MNIST's files: two zero bytes, a type, the number of dims, each dim
 * as a big-endian 32-bit number, the values. Private. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <weft/context.h>

#define WFI_IDX_MAX_DIMS 3

typedef struct wfi_idx {
    int64_t dim[WFI_IDX_MAX_DIMS];
    const uint8_t *values; /* inside the parsed bytes, dim[0] x dim[1] x ... of them */
} wfi_idx;

/* The length of a header with so many dims. */
static inline size_t wfi_idx_head_bytes(int n_dims) {
    return 4 + 4 * (size_t)n_dims;
}

/* How many bytes the file has, by its header of *(const int *)n_dims dims: a wfi_file_announced. */
wf_status wfi_idx_announced(wf_context *ctx, const char *path, const uint8_t *head, size_t n_head,
                            const void *n_dims, size_t *n_bytes_out);

/* Accepts unsigned bytes in exactly n_dims dims that fill the n_bytes exactly. `path` is
 * for sentences. Errors: CORRUPT. */
wf_status wfi_idx_parse(wf_context *ctx, const char *path, const uint8_t *bytes, size_t n_bytes,
                        int n_dims, wfi_idx *idx_out);
