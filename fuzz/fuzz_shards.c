/* Indexes of shards. What is accepted names files of its own folder, and no tensor twice. */
#include "state/header.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes);

static void check(const wfi_shard_index *index) {
    for (size_t i = 0; i < index->n_places; i++) {
        const wfi_shard_place *place = &index->places[i];
        if (!*place->file || strchr(place->file, '/') || !strcmp(place->file, "..")) abort();
        for (size_t k = 0; k < i && index->n_places < 100; k++)
            if (!strcmp(index->places[k].name, place->name)) abort();
        if (i && strcmp(place[-1].file, place->file) > 0) abort();
        if (i && !strcmp(place[-1].file, place->file) && strcmp(place[-1].name, place->name) >= 0)
            abort();
    }
    for (size_t i = 1; i < index->metadata.n; i++)
        if (strcmp(index->metadata.pairs[i - 1].key, index->metadata.pairs[i].key) >= 0) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes) {
    wf_context *ctx;
    wfi_shard_index index;
    if (wf_context_create(NULL, &ctx) != WF_OK) return 0;
    if (wfi_shard_index_parse(ctx, "input", (const char *)bytes, n_bytes, &index) == WF_OK) {
        check(&index);
        wfi_shard_index_release(&index);
    } else if (!*wf_context_error(ctx)) {
        abort(); /* no refusal without a sentence */
    }
    if (wf_context_memory(ctx).n_live) abort();
    wf_context_destroy(ctx);
    return 0;
}
