/* The internals of a tokenizer: a description, and the state of its kind. Private. */
#pragma once

#include "data/strings.h"

#include <weft/tokenizer.h>

typedef struct wfi_bpe wfi_bpe;

struct wf_tokenizer {
    wf_context *ctx;
    wf_tokenizer_kind kind;
    int64_t n_tokens;
    char hash[WF_TOKENIZER_HASH_BYTES];
    char *text; /* of words, one a line, which the set points into */
    wfi_strings words;
    wfi_bpe *bpe;
};

/* The words of a text, in order of first appearance. Errors: those of wf_tokenizer_create_words. */
wf_status wfi_tokenizer_learn_words(wf_context *ctx, const char *path, const uint8_t *bytes,
                                    size_t n_bytes, wf_tokenizer **tokenizer_out);
