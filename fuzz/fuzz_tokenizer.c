/* Files of tokenizers: tokenizer.json, or with a zero byte between them vocab.json and merges.txt.
 * What is accepted takes every text apart and gives it back. */
#include "base/base.h"
#include "base/utf8.h"
#include "data/bpe.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes);

/* Any bytes are a vocabulary's text, too. */
static void encode(const wfi_bpe *bpe, const uint8_t *text, size_t n_bytes) {
    int32_t *tokens;
    int64_t n;
    size_t n_back = 0;
    if (wfi_bpe_encode(bpe, "input", text, n_bytes, &tokens, &n) != WF_OK) {
        if (wfi_utf8_length(text, n_bytes) == n_bytes) abort();
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        if (tokens[i] < 0 || tokens[i] >= bpe->n_tokens) abort();
        const wfi_string *token = &bpe->token[tokens[i]];
        if (token->n > n_bytes - n_back || memcmp(token->start, text + n_back, token->n)) abort();
        n_back += token->n;
    }
    if (n_back != n_bytes) abort();
    wfi_free(bpe->ctx, tokens);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes) {
    wf_context *ctx;
    wfi_bpe *bpe;
    char *text = malloc(n_bytes + 1);
    if (!text || wf_context_create(NULL, &ctx) != WF_OK) {
        free(text);
        return 0;
    }
    memcpy(text, bytes, n_bytes);
    text[n_bytes] = 0;
    size_t n_first = strlen(text), n_files = n_first < n_bytes ? 2 : 1;
    wfi_bpe_file file[2] = {{"first", text, n_first}, {"second", NULL, 0}};
    if (n_files == 2) file[1] = (wfi_bpe_file){"second", text + n_first + 1, n_bytes - n_first - 1};
    if (wfi_bpe_parse(ctx, file, (int)n_files, &bpe) == WF_OK) {
        encode(bpe, bytes, n_bytes);
        wfi_bpe_destroy(bpe);
    } else if (!*wf_context_error(ctx)) {
        abort(); /* no refusal without a sentence */
    }
    if (wf_context_memory(ctx).n_live) abort();
    wf_context_destroy(ctx);
    free(text);
    return 0;
}
