/* Safetensors headers. An input is a whole file; what is accepted must keep its promises. */
#include "state/header.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes);

static void check(const wfi_safetensors_index *index, uint64_t n_data) {
    uint64_t end = 0;
    for (size_t i = 0; i < index->n_entries; i++) {
        const wf_safetensors_entry *e = &index->entries[i];
        wf_shape shape = {.n_dims = e->n_dims};
        if (e->offset != end) abort();
        end += e->n_bytes;
        if (e->dtype == WF_N_DTYPES || e->n_dims > WF_MAX_DIMS) continue;
        for (int d = 0; d < e->n_dims; d++) shape.dim[d] = e->dim[d];
        if ((uint64_t)wf_shape_n_elem(&shape) * wf_dtype_bytes(e->dtype) != e->n_bytes) abort();
    }
    if (end != n_data) abort();
    for (size_t i = 1; i < index->n_entries; i++)
        if (strcmp(index->by_name[i - 1]->name, index->by_name[i]->name) >= 0) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes) {
    wf_context *ctx;
    wfi_safetensors_index index;
    size_t n_header;
    if (wf_context_create(NULL, &ctx) != WF_OK) return 0;
    if (wfi_safetensors_prefix(ctx, "input", bytes, n_bytes, &n_header) == WF_OK) {
        uint64_t n_data = n_bytes - WFI_SAFETENSORS_PREFIX_BYTES - n_header;
        const char *header = (const char *)bytes + WFI_SAFETENSORS_PREFIX_BYTES;
        if (wfi_safetensors_parse(ctx, "input", header, n_header, n_data, &index) == WF_OK) {
            check(&index, n_data);
            wfi_safetensors_index_release(&index);
        }
    }
    if (wf_context_memory(ctx).n_live) abort();
    wf_context_destroy(ctx);
    return 0;
}
