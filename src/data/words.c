#include "data/words.h"
#include "base/base.h"

#include <string.h>

static const uint8_t end_of_line[] = "<eos>";
static const uint8_t byte_order_mark[] = {0xef, 0xbb, 0xbf}; /* which editors put before a text */

bool wfi_is_space(uint8_t c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* The next word at or after *at: a place in the text, or `end_of_line`. False at the text's end. */
static bool next_word(const uint8_t *bytes, size_t n_bytes, size_t *at, wfi_string *word_out) {
    size_t i = *at;
    bool is_marked = !i && n_bytes >= sizeof byte_order_mark &&
                     !memcmp(bytes, byte_order_mark, sizeof byte_order_mark);
    if (is_marked) i = sizeof byte_order_mark;
    while (i < n_bytes && wfi_is_space(bytes[i]) && bytes[i] != '\n') i++;
    if (i == n_bytes) return false;
    if (bytes[i] == '\n') {
        *word_out = (wfi_string){end_of_line, sizeof end_of_line - 1};
        *at = i + 1;
        return true;
    }
    size_t start = i;
    while (i < n_bytes && !wfi_is_space(bytes[i])) i++;
    *word_out = (wfi_string){bytes + start, i - start};
    *at = i;
    return true;
}

wf_status wfi_words_learn(wf_context *ctx, const char *path, const uint8_t *bytes, size_t n_bytes,
                          wfi_strings *words) {
    wfi_string word;
    int32_t number;
    for (size_t at = 0; next_word(bytes, n_bytes, &at, &word);) {
        WF_TRY(wfi_strings_add(ctx, words, word, &number));
        if (words->n > WFI_MAX_WORDS)
            return wfi_fail(ctx, WF_UNSUPPORTED,
                            "%s has more than %d different words; read it as bytes instead", path,
                            WFI_MAX_WORDS);
    }
    return WF_OK;
}

wf_status wfi_words_encode(wf_context *ctx, const wfi_strings *words, const char *path,
                           const uint8_t *bytes, size_t n_bytes, int32_t **tokens_out,
                           int64_t *n_tokens_out) {
    int64_t n = 0;
    wfi_string word;
    for (size_t at = 0; next_word(bytes, n_bytes, &at, &word);) n++;
    int32_t *tokens = wfi_alloc(ctx, n ? (size_t)n : 1, sizeof *tokens, path);
    if (!tokens) return WF_NO_MEMORY;
    n = 0;
    for (size_t at = 0; next_word(bytes, n_bytes, &at, &word); n++) {
        tokens[n] = wfi_strings_find(words, word);
        if (tokens[n] >= 0) continue;
        wfi_free(ctx, tokens);
        return wfi_fail(ctx, WF_CORRUPT,
                        "%s: the word '%.*s' at byte %zu is not in the vocabulary of %zu words",
                        path, (int)(word.n < 40 ? word.n : 40), (const char *)word.start,
                        word.start == end_of_line ? at - 1 : at - word.n, words->n);
    }
    *tokens_out = tokens;
    *n_tokens_out = n;
    return WF_OK;
}
