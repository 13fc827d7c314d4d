/* IDX files, packed or not, as images and as labels. */
#include "base/base.h"
#include "data/gzip.h"
#include "data/idx.h"
#include "data/images.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes);

static void parse(wf_context *ctx, const uint8_t *bytes, size_t n_bytes, int n_dims) {
    wfi_idx idx;
    if (wfi_idx_parse(ctx, "input", bytes, n_bytes, n_dims, &idx) != WF_OK) return;
    size_t n = 1;
    for (int d = 0; d < n_dims; d++) n *= (size_t)idx.dim[d];
    if (idx.values + n != bytes + n_bytes) abort();
    /* Reads every value. */
    if (wfi_labels_check(ctx, "input", idx.values, 1, (int64_t)n, 256) != WF_OK) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes) {
    wf_context *ctx;
    uint8_t *plain;
    size_t n_plain;
    if (wf_context_create(NULL, &ctx) != WF_OK) return 0;
    parse(ctx, bytes, n_bytes, 1);
    parse(ctx, bytes, n_bytes, 3);
    for (int n_dims = 1; n_dims <= 3; n_dims += 2) {
        if (wfi_gzip_unpack(ctx, "input", bytes, n_bytes, wfi_idx_head_bytes(n_dims),
                            wfi_idx_announced, &n_dims, &plain, &n_plain) != WF_OK)
            continue;
        parse(ctx, plain, n_plain, n_dims);
        wfi_free(ctx, plain);
    }
    if (wf_context_memory(ctx).n_live) abort();
    wf_context_destroy(ctx);
    return 0;
}
