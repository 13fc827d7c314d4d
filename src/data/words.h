/* Words of a text as numbers. Private. */
#pragma once

#include "data/strings.h"

#include <stdbool.h>

/* Bounds the table that a file without spaces or with random ones can make us build. */
#define WFI_MAX_WORDS 1048576

/* Whether it stands between words. */
bool wfi_is_space(uint8_t byte);

/* Adds the text's words to the set, in order of first appearance; a line's end is the word <eos>.
 * `path` is for sentences. The set points into `bytes`. Errors: UNSUPPORTED (too many different
 * words), NO_MEMORY. */
wf_status wfi_words_learn(wf_context *ctx, const char *path, const uint8_t *bytes, size_t n_bytes,
                          wfi_strings *words);

/* Their numbers. Errors: CORRUPT (a word is not in the set), NO_MEMORY. Free with wfi_free. */
wf_status wfi_words_encode(wf_context *ctx, const wfi_strings *words, const char *path,
                           const uint8_t *bytes, size_t n_bytes, int32_t **tokens_out,
                           int64_t *n_tokens_out);
