/* A text file as a row of tokens: its bytes, or its words. The last tenth is the test split. */
#include "base/base.h"
#include "data/file.h"
#include "data/tokens.h"
#include "data/words.h"

#include <inttypes.h>
#include <string.h>

/* ---- what is no text ---- */

/* Files that begin with these bytes are of a known format. */
static const struct {
    const char *bytes, *name;
    size_t n, at;
} magics[] = {
    {"{\"", "a safetensors file", 2, 8},
    {"PK\3\4", "a zip archive, as PyTorch's .pt files are", 4, 0},
    {"\177ELF", "an ELF program or library", 4, 0},
    {"\x1f\x8b", "a gzip file; unpack it first", 2, 0},
    {"\xfd"
     "7zXZ",
     "an xz file; unpack it first", 5, 0},
    {"\x28\xb5\x2f\xfd", "a zstd file; unpack it first", 4, 0},
    {"\x93NUMPY", "a NumPy array", 6, 0},
    {"\x89HDF", "an HDF5 file", 4, 0},
    {"\x89PNG", "a PNG picture", 4, 0},
    {"\xff\xd8\xff", "a JPEG picture", 3, 0},
    {"%PDF-", "a PDF document", 5, 0},
    {"\x80\2", "a Python pickle", 2, 0},
    {"\x80\4\x95", "a Python pickle", 3, 0},
};

/* Names the format, NULL: none that is known. */
static const char *find_magic(const uint8_t *bytes, size_t n_bytes) {
    for (size_t i = 0; i < WFI_COUNT(magics); i++) {
        if (n_bytes < magics[i].at + magics[i].n) continue;
        if (memcmp(bytes + magics[i].at, magics[i].bytes, magics[i].n)) continue;
        /* Safetensors begin with the length of what is in braces; of a text's 8 bytes it is huge.
         */
        if (magics[i].at && bytes[7]) continue;
        return magics[i].name;
    }
    return NULL;
}

static wf_status check_text(wf_context *ctx, const char *path, const uint8_t *bytes,
                            size_t n_bytes) {
    const char *magic = find_magic(bytes, n_bytes);
    const uint8_t *zero = memchr(bytes, 0, n_bytes);
    if (magic)
        return wfi_fail(ctx, WF_CORRUPT,
                        "%s is no text, but %s (--data-format bytes takes any file's bytes)", path,
                        magic);
    if (!zero) return WF_OK;
    return wfi_fail(ctx, WF_CORRUPT,
                    "%s is no text: byte %zu is zero (--data-format tokens reads 16-bit numbers of "
                    "tokens, bytes takes any file's bytes)",
                    path, (size_t)(zero - bytes));
}

/* ---- tokens ---- */

static wf_status read_tokens(wf_context *ctx, const wf_data_config *config, const char *path,
                             wfi_tokens *t, int64_t *n_out, int64_t *vocabulary_out) {
    size_t n_bytes;
    uint8_t *bytes;
    int32_t *words;
    WF_TRY(wfi_file_read(ctx, path, &bytes, &n_bytes));
    t->owned[0] = bytes;
    *n_out = (int64_t)n_bytes;
    *vocabulary_out = 256;
    t->at[0] = bytes;
    t->width_bytes[0] = 1;
    if (config->format != WF_FORMAT_BYTES) WF_TRY(check_text(ctx, path, bytes, n_bytes));
    if (config->text == WF_TEXT_WORDS && config->format != WF_FORMAT_BYTES) {
        WF_TRY(wfi_words_number(ctx, path, bytes, n_bytes, &words, n_out, vocabulary_out));
        wfi_free(ctx, bytes);
        t->owned[0] = words;
        t->at[0] = (const uint8_t *)words;
        t->width_bytes[0] = sizeof *words;
    }
    if (*n_out == 0)
        return wfi_fail(ctx, WF_CORRUPT, "%s is empty: there is nothing to learn", path);
    return WF_OK;
}

wf_status wfi_text_open(wf_data *data, const wf_data_config *config, const char *path) {
    wfi_tokens *t;
    WF_TRY(wfi_tokens_create(data, &t));
    int64_t n, vocabulary, n_tokens = config->n_tokens;
    WF_TRY(read_tokens(data->ctx, config, path, t, &n, &vocabulary));
    if (n < 2 * (n_tokens + 1))
        return wfi_fail(
            data->ctx, WF_INVALID_ARG,
            "%s is too short: %" PRId64 " %s, samples of %" PRId64 " tokens need at least %" PRId64,
            path, n, t->width_bytes[0] == 1 ? "bytes" : "words", n_tokens, 2 * (n_tokens + 1));
    t->n[WF_DATA_TEST] = n / 10;
    t->n[WF_DATA_TRAIN] = n - n / 10;
    t->width_bytes[WF_DATA_TEST] = t->width_bytes[WF_DATA_TRAIN];
    t->at[WF_DATA_TEST] = t->at[WF_DATA_TRAIN] + (size_t)t->n[WF_DATA_TRAIN] * t->width_bytes[0];
    wfi_tokens_finish(data, n_tokens, vocabulary);
    return WF_OK;
}
