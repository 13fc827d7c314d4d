/* A tokenizer: text as numbers of tokens, and back.
 *
 *     wf_tokenizer_open(ctx, "gpt2", &tokenizer);    a folder from Hugging Face
 *     wf_tokenizer_encode(tokenizer, "text", text, n_bytes, &tokens, &n_tokens);
 *     wf_tokenizer_decode(tokenizer, tokens, n_tokens, &back, &n_back);
 *
 * It is read-only once it is made, and may be used by several threads.
 */
#ifndef WEFT_TOKENIZER_H
#define WEFT_TOKENIZER_H

#include <weft/context.h>

typedef struct wf_tokenizer wf_tokenizer;

/* BYTES: every byte is a token. WORDS: between white space; the end of a line is the word <eos>.
 * BPE: byte pair encoding of bytes, as GPT-2 has it. */
typedef enum wf_tokenizer_kind {
    WF_TOKENIZER_BYTES,
    WF_TOKENIZER_WORDS,
    WF_TOKENIZER_BPE
} wf_tokenizer_kind;

#define WF_TOKENIZER_HASH_BYTES 65

#ifdef __cplusplus
extern "C" {
#endif

/* Byte-level BPE from Hugging Face's files: `path` is a folder with tokenizer.json, or with
 * vocab.json and merges.txt, or a file tokenizer.json. Text is divided by GPT-2's pattern or Llama
 * 3's, then merged pair by pair, the earliest merge first; added tokens, such as <|endoftext|>, are
 * found in it before. Errors: IO; CORRUPT: the sentence names the file and what is wrong (numbers
 * that repeat or leave a hole, merges of tokens that the vocabulary does not have, ...);
 * UNSUPPORTED: another model, or a normalizer, a prefix or an option that is not byte-level BPE's;
 * NO_MEMORY. */
WF_API WF_NODISCARD wf_status wf_tokenizer_open(wf_context *ctx, const char *path,
                                                wf_tokenizer **tokenizer_out);
WF_API WF_NODISCARD wf_status wf_tokenizer_create_bytes(wf_context *ctx,
                                                        wf_tokenizer **tokenizer_out);
/* Those words, in this order, one a line. Errors: CORRUPT (a word is empty, holds white space, or
 * is there twice; no UTF-8), UNSUPPORTED (more than 1,048,576), NO_MEMORY. */
WF_API WF_NODISCARD wf_status wf_tokenizer_create_words(wf_context *ctx, const char *words,
                                                        wf_tokenizer **tokenizer_out);
WF_API void wf_tokenizer_destroy(wf_tokenizer *tokenizer); /* NULL is allowed */

WF_API wf_tokenizer_kind wf_tokenizer_kind_of(const wf_tokenizer *tokenizer);
/* "bytes", "words", "bpe" */
WF_API const char *wf_tokenizer_name(const wf_tokenizer *tokenizer);
WF_API int64_t wf_tokenizer_n_tokens(const wf_tokenizer *tokenizer); /* the vocabulary */
/* As wf_tokenizer_create_words takes them; NULL unless it is one of words. Borrowed. */
WF_API const char *wf_tokenizer_words(const wf_tokenizer *tokenizer);
/* 64 hex digits and a zero: equal for two that give the same tokens for every text. Borrowed. */
WF_API const char *wf_tokenizer_hash(const wf_tokenizer *tokenizer);

/* `name` is for sentences: the text's file. Free with wf_tokens_free. Errors: CORRUPT: the text is
 * not UTF-8 (BPE), or a word is not in the vocabulary, and the sentence says where; NO_MEMORY. */
WF_API WF_NODISCARD wf_status wf_tokenizer_encode(const wf_tokenizer *tokenizer, const char *name,
                                                  const void *text, size_t n_bytes,
                                                  int32_t **tokens_out, int64_t *n_tokens_out);
WF_API void wf_tokens_free(wf_context *ctx, int32_t *tokens);

/* The bytes of the tokens, one after the other, words with spaces between them, and a zero behind
 * them that is not counted. A character may be divided by the first or the last token. Free with
 * wf_text_free. Errors: INVALID_ARG (there is no such token), NO_MEMORY. */
WF_API WF_NODISCARD wf_status wf_tokenizer_decode(const wf_tokenizer *tokenizer,
                                                  const int32_t *tokens, int64_t n_tokens,
                                                  char **text_out, size_t *n_bytes_out);

#ifdef __cplusplus
}
#endif
#endif
