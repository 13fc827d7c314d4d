/* Words of a text as numbers. Private. */
#ifndef WFI_DATA_WORDS_H
#define WFI_DATA_WORDS_H

#include <stddef.h>
#include <stdint.h>
#include <weft/context.h>

/* Bounds the table that a file without spaces or with random ones can make us build. */
#define WFI_MAX_WORDS 1048576

/* Numbers the words in order of first appearance; a line's end is the word <eos>. `path`
 * is for sentences. Errors: UNSUPPORTED (too many different words), NO_MEMORY. Free
 * *tokens_out with wfi_free. */
wf_status wfi_words_number(wf_context *ctx, const char *path, const uint8_t *bytes, size_t n_bytes,
                           int32_t **tokens_out, int64_t *n_tokens_out, int64_t *n_words_out);

#endif
