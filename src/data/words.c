#include "data/words.h"
#include "base/base.h"
#include "base/hash.h"

#include <string.h>

static const uint8_t end_of_line[] = "<eos>";

/* A place in the text, or `end_of_line`. */
typedef struct word {
    const uint8_t *start;
    size_t n;
} word;

/* Open addressing; a slot holds a word's number + 1, 0 is free. */
typedef struct table {
    word *words;
    size_t n_words, capacity;
    uint32_t *slot;
    size_t n_slots; /* a power of two, more than twice n_words */
} table;

static bool is_space(uint8_t c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* The next word at or after *at; false at the end of the text. */
static bool next_word(const uint8_t *bytes, size_t n_bytes, size_t *at, word *word_out) {
    size_t i = *at;
    while (i < n_bytes && is_space(bytes[i]) && bytes[i] != '\n') i++;
    if (i == n_bytes) return false;
    if (bytes[i] == '\n') {
        *word_out = (word){end_of_line, sizeof end_of_line - 1};
        *at = i + 1;
        return true;
    }
    size_t start = i;
    while (i < n_bytes && !is_space(bytes[i])) i++;
    *word_out = (word){bytes + start, i - start};
    *at = i;
    return true;
}

/* The slot that holds `w`, or the free one where it belongs. */
static uint32_t *find_slot(const table *t, word w) {
    uint64_t hash = wfi_hash_add(WFI_HASH_INIT, w.start, w.n);
    for (size_t s = (hash ^ hash >> 32) & (t->n_slots - 1);; s = (s + 1) & (t->n_slots - 1)) {
        uint32_t number = t->slot[s];
        if (!number) return &t->slot[s];
        const word *held = &t->words[number - 1];
        if (held->n == w.n && memcmp(held->start, w.start, w.n) == 0) return &t->slot[s];
    }
}

static wf_status grow(wf_context *ctx, table *t) {
    WF_TRY(WFI_GROW(ctx, t->words, t->n_words, t->capacity, "a vocabulary"));
    if (t->n_slots > 2 * (t->n_words + 1)) return WF_OK;
    size_t n_slots = t->n_slots ? 2 * t->n_slots : 1024;
    uint32_t *slot = wfi_alloc(ctx, n_slots, sizeof *slot, "a vocabulary");
    if (!slot) return WF_NO_MEMORY;
    wfi_free(ctx, t->slot);
    t->slot = slot;
    t->n_slots = n_slots;
    for (size_t i = 0; i < t->n_words; i++) *find_slot(t, t->words[i]) = (uint32_t)i + 1;
    return WF_OK;
}

static wf_status number_words(wf_context *ctx, const char *path, const uint8_t *bytes,
                              size_t n_bytes, table *t, int32_t *tokens) {
    word w;
    for (size_t at = 0; next_word(bytes, n_bytes, &at, &w);) {
        WF_TRY(grow(ctx, t));
        uint32_t *slot = find_slot(t, w);
        if (!*slot) {
            if (t->n_words == WFI_MAX_WORDS)
                return wfi_fail(ctx, WF_UNSUPPORTED,
                                "%s has more than %d different words; read it as bytes instead",
                                path, WFI_MAX_WORDS);
            t->words[t->n_words++] = w;
            *slot = (uint32_t)t->n_words;
        }
        *tokens++ = (int32_t)*slot - 1;
    }
    return WF_OK;
}

wf_status wfi_words_number(wf_context *ctx, const char *path, const uint8_t *bytes, size_t n_bytes,
                           int32_t **tokens_out, int64_t *n_tokens_out, int64_t *n_words_out) {
    int64_t n_tokens = 0;
    word w;
    for (size_t at = 0; next_word(bytes, n_bytes, &at, &w);) n_tokens++;
    int32_t *tokens = wfi_alloc(ctx, n_tokens ? (size_t)n_tokens : 1, sizeof *tokens, path);
    if (!tokens) return WF_NO_MEMORY;
    table t = {0};
    wf_status status = number_words(ctx, path, bytes, n_bytes, &t, tokens);
    wfi_free(ctx, t.words);
    wfi_free(ctx, t.slot);
    if (status != WF_OK) {
        wfi_free(ctx, tokens);
        return status;
    }
    *tokens_out = tokens;
    *n_tokens_out = n_tokens;
    *n_words_out = (int64_t)t.n_words;
    return WF_OK;
}
