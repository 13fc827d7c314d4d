/* CIFAR-10 batches. */
#include "data/cifar.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes) {
    wf_context *ctx;
    int64_t n;
    if (wf_context_create(NULL, &ctx) != WF_OK) return 0;
    if (wfi_cifar_parse(ctx, "input", bytes, n_bytes, &n) == WF_OK) {
        if ((size_t)n * WFI_CIFAR_RECORD_BYTES != n_bytes) abort();
        for (int64_t i = 0; i < n; i++)
            if (bytes[i * WFI_CIFAR_RECORD_BYTES] >= WFI_CIFAR_CLASSES) abort();
    }
    if (wf_context_memory(ctx).n_live) abort();
    wf_context_destroy(ctx);
    return 0;
}
