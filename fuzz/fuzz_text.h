/* Targets whose input is a text. */
#ifndef FUZZ_TEXT_H
#define FUZZ_TEXT_H

#include "base/base.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes);

/* Calls `use` with a copy, which has a zero behind its n bytes; nothing of it may be left. */
static inline int fuzz_text(const uint8_t *bytes, size_t n_bytes,
                            void (*use)(wf_context *ctx, char *text, size_t n_bytes)) {
    wf_context *ctx;
    char *text = malloc(n_bytes + 1);
    if (!text || wf_context_create(NULL, &ctx) != WF_OK) {
        free(text);
        return 0;
    }
    memcpy(text, bytes, n_bytes);
    text[n_bytes] = 0;
    use(ctx, text, n_bytes);
    if (wf_context_memory(ctx).n_live) abort();
    wf_context_destroy(ctx);
    free(text);
    return 0;
}

#endif
