#include "state/hash.h"
#include "base/base.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

static int compare_names(const void *a, const void *b) {
    return strcmp((*(const wf_tensor_data *const *)a)->name,
                  (*(const wf_tensor_data *const *)b)->name);
}

wf_status wfi_weights_sha256(wf_context *ctx, const wf_tensor_data *tensors, int n_tensors,
                             char hex_out[65]) {
    size_t n = (size_t)n_tensors;
    const wf_tensor_data **sorted = wfi_alloc(ctx, n ? n : 1, sizeof *sorted, "a fingerprint");
    if (!sorted) return WF_NO_MEMORY;
    for (size_t i = 0; i < n; i++) sorted[i] = &tensors[i];
    qsort(sorted, n, sizeof *sorted, compare_names);
    crypto_hash_sha256_state state;
    crypto_hash_sha256_init(&state);
    for (size_t i = 0; i < n; i++) {
        const wf_tensor_data *t = sorted[i];
        size_t n_bytes = (size_t)wf_shape_n_elem(&t->shape) * wf_dtype_bytes(t->dtype);
        crypto_hash_sha256_update(&state, (const unsigned char *)t->name, strlen(t->name) + 1);
        if (n_bytes) crypto_hash_sha256_update(&state, t->data, n_bytes);
    }
    unsigned char digest[crypto_hash_sha256_BYTES];
    crypto_hash_sha256_final(&state, digest);
    sodium_bin2hex(hex_out, 65, digest, sizeof digest);
    wfi_free(ctx, sorted);
    return WF_OK;
}
