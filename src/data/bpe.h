/* Byte-level BPE: the model, the pattern that divides text for it, and the files it comes from.
 * Private. */
#pragma once

#include "base/base.h"
#include "data/hash.h"
#include "data/strings.h"

/* Two tokens become one; of those that a text has, the lowest rank comes first. */
typedef struct wfi_bpe_merge {
    int32_t left, right, token;
    int32_t number; /* rank + 1; 0: the slot is free */
} wfi_bpe_merge;

#define WFI_MAX_ADDED_BYTES 256

typedef struct wfi_bpe {
    wf_context *ctx;
    wfi_pool pool;
    wfi_string *token; /* [n_tokens] their bytes */
    int32_t n_tokens;
    int32_t byte_token[256];
    wfi_bpe_merge *merge; /* open addressing by left and right */
    size_t n_merges, n_slots;
    /* Tokens that are found in the text before it is divided. */
    wfi_strings added;
    int32_t *added_token; /* [added.n] */
    /* Pieces that are whole tokens without any merge; `number` NULL: none. */
    wfi_strings whole;
    int32_t *whole_token; /* [whole.n] */
    bool begins_added[256], has_added_length[WFI_MAX_ADDED_BYTES + 1];
    struct wfi_splitter *splitter;
} wfi_bpe;

/* As wf_tokenizer_open. */
wf_status wfi_bpe_open(wf_context *ctx, const char *path, wfi_bpe **bpe_out);
/* A file's text, zero-terminated; parsers may modify it. */
typedef struct wfi_bpe_file {
    const char *path; /* for sentences */
    char *text;
    size_t n;
} wfi_bpe_file;
/* The same of tokenizer.json, or of vocab.json and merges.txt. */
wf_status wfi_bpe_parse(wf_context *ctx, const wfi_bpe_file *file, int n_files, wfi_bpe **bpe_out);
void wfi_bpe_destroy(wfi_bpe *bpe); /* NULL is allowed */

/* The next rank. False: they are merged already, and *again_out is how. Errors: NO_MEMORY. */
wf_status wfi_bpe_add_merge(wfi_bpe *bpe, int32_t left, int32_t right, int32_t token,
                            const wfi_bpe_merge **again_out);
void wfi_bpe_hash(const wfi_bpe *bpe, wfi_data_hash *hash);
/* As wf_tokenizer_encode. */
wf_status wfi_bpe_encode(const wfi_bpe *bpe, const char *name, const uint8_t *text, size_t n_bytes,
                         int32_t **tokens_out, int64_t *n_tokens_out);

/* ---- bpe_split.c: how text is divided ---- */

typedef struct wfi_splitter wfi_splitter;
typedef struct wfi_split wfi_split;

/* By a pattern of tokenizer.json; NULL: GPT-2's. Errors: UNSUPPORTED: it is not a known one. */
wf_status wfi_splitter_create(wf_context *ctx, const char *in_files, wfi_splitter **splitter_out);
/* The pattern as files have it; "": GPT-2's. */
const char *wfi_splitter_name(const wfi_splitter *splitter);
void wfi_splitter_destroy(wfi_splitter *splitter); /* NULL is allowed */
/* One text at a time; it is UTF-8. */
wf_status wfi_split_begin(const wfi_splitter *splitter, wfi_split **split_out);
/* How many bytes from `at` on are one piece of text[n]; at < n. Errors: NO_MEMORY, UNSUPPORTED. */
wf_status wfi_split_next(wfi_split *split, const uint8_t *text, size_t n, size_t at,
                         size_t *length_out);
void wfi_split_end(wfi_split *split); /* NULL is allowed */
