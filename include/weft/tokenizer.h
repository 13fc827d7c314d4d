/* Tokenizers: from text to token numbers, and back.
 *
 *     wf_tokenizer_open(ctx, "gpt2", &tokenizer);    a folder from Hugging Face
 *     wf_tokenizer_encode(tokenizer, "text", text, n_bytes, &tokens, &n_tokens);
 *     wf_tokenizer_decode(tokenizer, tokens, n_tokens, &back, &n_back);
 *
 * A tokenizer is read-only after its creation, and several threads may use it. Programs link
 * libweft-data for this header.
 */
#ifndef WEFT_TOKENIZER_H
#define WEFT_TOKENIZER_H

#include <weft/context.h>

typedef struct wf_tokenizer wf_tokenizer;

/* BYTES: each byte is a token. WORDS: the text between white space; the end of a line is the word
 * <eos>. BPE: byte pair encoding of bytes, as in GPT-2. */
typedef enum wf_tokenizer_kind {
    WF_TOKENIZER_BYTES,
    WF_TOKENIZER_WORDS,
    WF_TOKENIZER_BPE
} wf_tokenizer_kind;

#define WF_TOKENIZER_HASH_BYTES 65

#ifdef __cplusplus
extern "C" {
#endif

/* Opens a byte-level BPE tokenizer from Hugging Face's files. `path` is a folder with
 * tokenizer.json, or with vocab.json and merges.txt, or a file tokenizer.json. Added tokens, such
 * as <|endoftext|>, are found first. The remaining text is split by GPT-2's pattern or Llama 3's,
 * then merged pair by pair, earliest merge first. Errors: IO; CORRUPT (the sentence names the file
 * and the fault, such as duplicate or missing numbers, or merges of unknown tokens); UNSUPPORTED
 * (another model; a normalizer, prefix or option that byte-level BPE does not have; libsodium
 * cannot start); NO_MEMORY. */
WF_API WF_NODISCARD wf_status wf_tokenizer_open(wf_context *ctx, const char *path,
                                                wf_tokenizer **tokenizer_out);
/* Creates a tokenizer of 256 bytes. Errors: UNSUPPORTED (libsodium cannot start), NO_MEMORY. */
WF_API WF_NODISCARD wf_status wf_tokenizer_create_bytes(wf_context *ctx,
                                                        wf_tokenizer **tokenizer_out);
/* Creates a tokenizer of the given words, one per line, in this order. Errors: CORRUPT (a word is
 * empty, contains white space or occurs twice; not UTF-8), UNSUPPORTED (more than 1,048,576 words;
 * libsodium cannot start), NO_MEMORY. */
WF_API WF_NODISCARD wf_status wf_tokenizer_create_words(wf_context *ctx, const char *words,
                                                        wf_tokenizer **tokenizer_out);
WF_API void wf_tokenizer_destroy(wf_tokenizer *tokenizer); /* NULL is allowed */

/* The kind of tokenizer. */
WF_API wf_tokenizer_kind wf_tokenizer_kind_of(const wf_tokenizer *tokenizer);
/* The name of the kind: "bytes", "words" or "bpe". */
WF_API const char *wf_tokenizer_name(const wf_tokenizer *tokenizer);
WF_API int64_t wf_tokenizer_n_tokens(const wf_tokenizer *tokenizer); /* vocabulary size */
/* The words as wf_tokenizer_create_words takes them; NULL for other kinds. Borrowed. */
WF_API const char *wf_tokenizer_words(const wf_tokenizer *tokenizer);
/* A fingerprint, 64 hex digits and a zero. Two tokenizers have the same one if they give the same
 * tokens for every text. Borrowed. */
WF_API const char *wf_tokenizer_hash(const wf_tokenizer *tokenizer);

/* Encodes a text. `name`, such as the text's file, is only for error sentences. Free the tokens
 * with wf_tokens_free. Errors: CORRUPT (BPE: not UTF-8; words: a word that is not in the
 * vocabulary; the sentence names the position), NO_MEMORY. */
WF_API WF_NODISCARD wf_status wf_tokenizer_encode(const wf_tokenizer *tokenizer, const char *name,
                                                  const void *text, size_t n_bytes,
                                                  int32_t **tokens_out, int64_t *n_tokens_out);
WF_API void wf_tokens_free(wf_context *ctx, int32_t *tokens);

/* Decodes tokens to bytes, with spaces between words. A zero follows the text and is not counted.
 * The first or the last token may end within a character. Free the text with wf_text_free. Errors:
 * INVALID_ARG (a token that is not in the vocabulary), NO_MEMORY. */
WF_API WF_NODISCARD wf_status wf_tokenizer_decode(const wf_tokenizer *tokenizer,
                                                  const int32_t *tokens, int64_t n_tokens,
                                                  char **text_out, size_t *n_bytes_out);

#ifdef __cplusplus
}
#endif
#endif
