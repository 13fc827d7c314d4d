#include "data/tokenizer.h"
#include "base/base.h"
#include "data/bpe.h"
#include "data/hash.h"
#include "data/words.h"

#include <string.h>

static const char *const kind_names[] = {
    [WF_TOKENIZER_BYTES] = "bytes", [WF_TOKENIZER_WORDS] = "words", [WF_TOKENIZER_BPE] = "bpe"};

static wf_status create(wf_context *ctx, wf_tokenizer_kind kind, wf_tokenizer **tokenizer_out) {
    wf_tokenizer *t = *tokenizer_out = wfi_alloc(ctx, 1, sizeof *t, "a tokenizer");
    if (!t) return WF_NO_MEMORY;
    t->ctx = ctx;
    t->kind = kind;
    return WF_OK;
}

void wf_tokenizer_destroy(wf_tokenizer *t) {
    if (!t) return;
    wfi_free(t->ctx, t->text);
    wfi_strings_release(t->ctx, &t->words);
    wfi_bpe_destroy(t->bpe);
    wfi_free(t->ctx, t);
}

static wf_status hash_tokens(wf_tokenizer *t) {
    wfi_data_hash *hash;
    WF_TRY(wfi_data_hash_begin(t->ctx, &hash));
    const char *name = wf_tokenizer_name(t);
    wfi_data_hash_add(hash, name, strlen(name) + 1);
    if (t->text) wfi_data_hash_add(hash, t->text, strlen(t->text));
    if (t->bpe) wfi_bpe_hash(t->bpe, hash);
    wfi_data_hash_end(t->ctx, hash, t->hash);
    return WF_OK;
}

/* Completes the tokenizer, or frees it after an error. */
static wf_status finish(wf_tokenizer *t, wf_status status, wf_tokenizer **tokenizer_out) {
    if (status == WF_OK) status = hash_tokens(t);
    if (status == WF_OK)
        *tokenizer_out = t;
    else
        wf_tokenizer_destroy(t);
    return status;
}

wf_status wf_tokenizer_create_bytes(wf_context *ctx, wf_tokenizer **tokenizer_out) {
    wf_tokenizer *t;
    WF_TRY(create(ctx, WF_TOKENIZER_BYTES, &t));
    t->n_tokens = 256;
    return finish(t, WF_OK, tokenizer_out);
}

wf_status wf_tokenizer_open(wf_context *ctx, const char *path, wf_tokenizer **tokenizer_out) {
    wf_tokenizer *t;
    WF_TRY(create(ctx, WF_TOKENIZER_BPE, &t));
    wf_status status = wfi_bpe_open(ctx, path, &t->bpe);
    if (status == WF_OK) t->n_tokens = t->bpe->n_tokens;
    return finish(t, status, tokenizer_out);
}

/* ---- words ---- */

/* `text` is taken over. */
static wf_status number_lines(wf_tokenizer *t) {
    const uint8_t *line = (const uint8_t *)t->text;
    size_t n_bytes = strlen(t->text), n_good = wf_text_valid(line, n_bytes);
    if (n_good < n_bytes)
        return wfi_fail(t->ctx, WF_CORRUPT, "a vocabulary of words is not UTF-8 at byte %zu",
                        n_good);
    for (const uint8_t *end = line + n_bytes; line < end;) {
        const uint8_t *stop = memchr(line, '\n', (size_t)(end - line));
        wfi_string word = {line, (size_t)((stop ? stop : end) - line)};
        int32_t number;
        bool is_word = word.n > 0;
        for (size_t i = 0; i < word.n; i++) is_word &= !wfi_is_space(word.start[i]);
        if (!is_word)
            return wfi_fail(t->ctx, WF_CORRUPT,
                            "a vocabulary of words: number %zu is empty or holds white space",
                            t->words.n);
        size_t n_before = t->words.n;
        WF_TRY(wfi_strings_add(t->ctx, &t->words, word, &number));
        if (t->words.n == n_before)
            return wfi_fail(t->ctx, WF_CORRUPT, "a vocabulary of words: '%.*s' is listed twice",
                            (int)(word.n < 40 ? word.n : 40), (const char *)word.start);
        if (t->words.n > WFI_MAX_WORDS)
            return wfi_fail(t->ctx, WF_UNSUPPORTED, "a vocabulary of more than %d words",
                            WFI_MAX_WORDS);
        line += word.n + 1;
    }
    t->n_tokens = (int64_t)t->words.n;
    return WF_OK;
}

wf_status wf_tokenizer_create_words(wf_context *ctx, const char *words,
                                    wf_tokenizer **tokenizer_out) {
    wf_tokenizer *t;
    WF_TRY(create(ctx, WF_TOKENIZER_WORDS, &t));
    t->text = wfi_strdup(ctx, words);
    return finish(t, t->text ? number_lines(t) : WF_NO_MEMORY, tokenizer_out);
}

/* The set's words, one a line. */
static wf_status join_words(wf_context *ctx, const wfi_strings *words, char **text_out) {
    size_t n_bytes = 0;
    for (size_t i = 0; i < words->n; i++) n_bytes += words->at[i].n + 1;
    char *to = *text_out = wfi_alloc(ctx, n_bytes + 1, 1, "a vocabulary");
    if (!to) return WF_NO_MEMORY;
    for (size_t i = 0; i < words->n; i++) {
        memcpy(to, words->at[i].start, words->at[i].n);
        to += words->at[i].n;
        *to++ = '\n';
    }
    return WF_OK;
}

wf_status wfi_tokenizer_learn_words(wf_context *ctx, const char *path, const uint8_t *bytes,
                                    size_t n_bytes, wf_tokenizer **tokenizer_out) {
    wfi_strings words = {0};
    wf_tokenizer *t;
    size_t n_good = wf_text_valid(bytes, n_bytes);
    if (n_good < n_bytes)
        return wfi_fail(ctx, WF_CORRUPT,
                        "%s is not UTF-8 at byte %zu, and words are kept with the model; convert "
                        "it, or read it as bytes",
                        path, n_good);
    WF_TRY(create(ctx, WF_TOKENIZER_WORDS, &t));
    wf_status status = wfi_words_learn(ctx, path, bytes, n_bytes, &words);
    if (status == WF_OK) status = join_words(ctx, &words, &t->text);
    wfi_strings_release(ctx, &words);
    return finish(t, status == WF_OK ? number_lines(t) : status, tokenizer_out);
}

/* ---- properties ---- */

wf_tokenizer_kind wf_tokenizer_kind_of(const wf_tokenizer *t) {
    return t->kind;
}

const char *wf_tokenizer_name(const wf_tokenizer *t) {
    return kind_names[t->kind];
}

int64_t wf_tokenizer_n_tokens(const wf_tokenizer *t) {
    return t->n_tokens;
}

const char *wf_tokenizer_words(const wf_tokenizer *t) {
    return t->text;
}

const char *wf_tokenizer_hash(const wf_tokenizer *t) {
    return t->hash;
}

/* ---- to numbers, and back ---- */

static wf_status encode_bytes(wf_context *ctx, const char *name, const uint8_t *bytes,
                              size_t n_bytes, int32_t **tokens_out, int64_t *n_tokens_out) {
    int32_t *tokens = wfi_alloc(ctx, n_bytes ? n_bytes : 1, sizeof *tokens, name);
    if (!tokens) return WF_NO_MEMORY;
    for (size_t i = 0; i < n_bytes; i++) tokens[i] = bytes[i];
    *tokens_out = tokens;
    *n_tokens_out = (int64_t)n_bytes;
    return WF_OK;
}

wf_status wf_tokenizer_encode(const wf_tokenizer *t, const char *name, const void *text,
                              size_t n_bytes, int32_t **tokens_out, int64_t *n_tokens_out) {
    switch (t->kind) {
    case WF_TOKENIZER_BYTES:
        return encode_bytes(t->ctx, name, text, n_bytes, tokens_out, n_tokens_out);
    case WF_TOKENIZER_WORDS:
        return wfi_words_encode(t->ctx, &t->words, name, text, n_bytes, tokens_out, n_tokens_out);
    case WF_TOKENIZER_BPE:
        break;
    }
    return wfi_bpe_encode(t->bpe, name, text, n_bytes, tokens_out, n_tokens_out);
}

void wf_tokens_free(wf_context *ctx, int32_t *tokens) {
    wfi_free(ctx, tokens);
}

/* The bytes of a token; of a word, the line's end is one, too. */
static wfi_string bytes_of(const wf_tokenizer *t, int32_t token, uint8_t *byte) {
    *byte = (uint8_t)token;
    switch (t->kind) {
    case WF_TOKENIZER_WORDS:
        return t->words.at[token];
    case WF_TOKENIZER_BPE:
        return t->bpe->token[token];
    case WF_TOKENIZER_BYTES:
        break;
    }
    return (wfi_string){byte, 1};
}

static bool is_line_end(wfi_string word) {
    return word.n == 5 && !memcmp(word.start, "<eos>", 5);
}

wf_status wf_tokenizer_decode(const wf_tokenizer *t, const int32_t *tokens, int64_t n_tokens,
                              char **text_out, size_t *n_bytes_out) {
    bool are_words = t->kind == WF_TOKENIZER_WORDS, is_after_word = false;
    size_t n_bytes = 0;
    uint8_t byte;
    for (int64_t i = 0; i < n_tokens; i++) {
        if (tokens[i] < 0 || tokens[i] >= t->n_tokens)
            return wfi_fail(t->ctx, WF_INVALID_ARG, "there is no token %ld in a vocabulary of %lld",
                            (long)tokens[i], (long long)t->n_tokens);
        n_bytes += bytes_of(t, tokens[i], &byte).n + are_words;
    }
    char *text = wfi_alloc(t->ctx, n_bytes + 1, 1, "a text"), *to = text;
    if (!text) return WF_NO_MEMORY;
    for (int64_t i = 0; i < n_tokens; i++) {
        wfi_string token = bytes_of(t, tokens[i], &byte);
        bool is_end = are_words && is_line_end(token);
        if (is_after_word && !is_end) *to++ = ' ';
        if (is_end) token = (wfi_string){(const uint8_t *)"\n", 1};
        memcpy(to, token.start, token.n);
        to += token.n;
        is_after_word = are_words && !is_end;
    }
    *text_out = text;
    *n_bytes_out = (size_t)(to - text);
    return WF_OK;
}
