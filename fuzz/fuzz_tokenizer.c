/* Files of tokenizers: tokenizer.json, or with a zero byte between them vocab.json and merges.txt.
 * What is accepted takes every text apart and gives it back. */
#include "data/bpe.h"
#include "fuzz_text.h"

/* Any bytes are a vocabulary's text, too. */
static void encode(const wfi_bpe *bpe, const uint8_t *text, size_t n_bytes) {
    int32_t *tokens;
    int64_t n;
    size_t n_back = 0;
    if (wfi_bpe_encode(bpe, "input", text, n_bytes, &tokens, &n) != WF_OK) {
        if (wf_text_valid(text, n_bytes) == n_bytes) abort();
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

static void parse(wf_context *ctx, char *text, size_t n_bytes) {
    wfi_bpe *bpe;
    uint8_t *all = malloc(n_bytes + 1); /* what reads a file may change it */
    if (!all) return;
    memcpy(all, text, n_bytes);
    size_t n_first = strlen(text), n_files = n_first < n_bytes ? 2 : 1;
    wfi_bpe_file file[2] = {{"first", text, n_first}, {"second", NULL, 0}};
    if (n_files == 2) file[1] = (wfi_bpe_file){"second", text + n_first + 1, n_bytes - n_first - 1};
    if (wfi_bpe_parse(ctx, file, (int)n_files, &bpe) == WF_OK) {
        encode(bpe, all, n_bytes);
        wfi_bpe_destroy(bpe);
    } else if (!*wf_context_error(ctx)) {
        abort(); /* no refusal without a sentence */
    }
    free(all);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes) {
    return fuzz_text(bytes, n_bytes, parse);
}
