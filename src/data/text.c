/* A text file as a row of tokens, which a tokenizer makes of it. The last tenth is the test split.
 */
#include "base/base.h"
#include "base/file.h"
#include "data/tokenizer.h"
#include "data/tokens.h"

#include <inttypes.h>
#include <string.h>

/* ---- files that are not text ---- */

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
        /* Safetensors begin with the length of their JSON; the first 8 bytes of a text would be a
         * huge length.
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
                        "%s is not text, but %s (--data-format bytes takes any file's bytes)", path,
                        magic);
    if (!zero) return WF_OK;
    return wfi_fail(ctx, WF_CORRUPT,
                    "%s is not text: byte %zu is zero (--data-format tokens reads 16-bit numbers "
                    "of tokens, bytes takes any file's bytes)",
                    path, (size_t)(zero - bytes));
}

/* ---- tokens ---- */

/* Bytes, or words that the text itself has. */
static wf_status make_tokenizer(wf_data *data, const wf_data_config *config, const char *path,
                                const uint8_t *bytes, size_t n_bytes) {
    bool are_words = config->text == WF_TEXT_WORDS && config->format != WF_FORMAT_BYTES;
    data->tokenizer = config->tokenizer;
    if (data->tokenizer) return WF_OK;
    if (are_words)
        WF_TRY(wfi_tokenizer_learn_words(data->ctx, path, bytes, n_bytes, &data->own_tokenizer));
    else
        WF_TRY(wf_tokenizer_create_bytes(data->ctx, &data->own_tokenizer));
    data->tokenizer = data->own_tokenizer;
    return WF_OK;
}

static wf_status encode(wf_data *data, const char *path, wfi_tokens *t, int64_t *n_out) {
    int32_t *tokens;
    WF_TRY(wf_tokenizer_encode(data->tokenizer, path, t->owned[0], (size_t)*n_out, &tokens, n_out));
    wfi_free(data->ctx, t->owned[0]);
    t->owned[0] = tokens;
    t->width_bytes[0] = sizeof *tokens;
    return WF_OK;
}

static wf_status read_tokens(wf_data *data, const wf_data_config *config, const char *path,
                             wfi_tokens *t, int64_t *n_out) {
    size_t n_bytes;
    uint8_t *bytes;
    WF_TRY(wfi_file_read(data->ctx, path, &bytes, &n_bytes));
    t->owned[0] = bytes;
    t->width_bytes[0] = 1;
    *n_out = (int64_t)n_bytes;
    if (config->format != WF_FORMAT_BYTES) WF_TRY(check_text(data->ctx, path, bytes, n_bytes));
    WF_TRY(make_tokenizer(data, config, path, bytes, n_bytes));
    /* With the tokenizer `bytes` the file's bytes are the tokens. */
    if (wf_tokenizer_kind_of(data->tokenizer) != WF_TOKENIZER_BYTES)
        WF_TRY(encode(data, path, t, n_out));
    t->at[0] = t->owned[0];
    if (*n_out == 0)
        return wfi_fail(data->ctx, WF_CORRUPT, "%s is empty: there is nothing to learn", path);
    return WF_OK;
}

static const char *plural_of(const wf_tokenizer *t) {
    return wf_tokenizer_kind_of(t) == WF_TOKENIZER_BPE ? "tokens" : wf_tokenizer_name(t);
}

wf_status wfi_text_open(wf_data *data, const wf_data_config *config, const char *path) {
    wfi_tokens *t;
    WF_TRY(wfi_tokens_create(data, &t));
    int64_t n, n_tokens = config->n_tokens;
    WF_TRY(read_tokens(data, config, path, t, &n));
    if (n < 2 * (n_tokens + 1))
        return wfi_fail(data->ctx, WF_INVALID_ARG,
                        "%s is too short: %" PRId64 " %s, samples of %" PRId64
                        " tokens need at least %" PRId64,
                        path, n, plural_of(data->tokenizer), n_tokens, 2 * (n_tokens + 1));
    t->n[WF_DATA_TEST] = n / 10;
    t->n[WF_DATA_TRAIN] = n - n / 10;
    t->width_bytes[WF_DATA_TEST] = t->width_bytes[WF_DATA_TRAIN];
    t->at[WF_DATA_TEST] = t->at[WF_DATA_TRAIN] + (size_t)t->n[WF_DATA_TRAIN] * t->width_bytes[0];
    return wfi_tokens_finish(data, config, path, wf_tokenizer_n_tokens(data->tokenizer));
}
