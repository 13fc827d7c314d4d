/* A text file as a row of tokens. Sample i of n_tokens T reads tokens [i T, i T + T) and
 * is asked for those one place later. The last tenth of the text is the test split. */
#include "base/base.h"
#include "data/file.h"
#include "data/source.h"
#include "data/words.h"

#include <inttypes.h>

typedef struct text {
    uint8_t *bytes; /* one of the two */
    int32_t *words;
    int64_t first[2], n[2]; /* tokens of each split */
} text;

static int32_t token_at(const text *t, int64_t i) {
    return t->words ? t->words[i] : t->bytes[i];
}

static void text_fill(const wf_data *data, const wfi_sample *sample, void *x, void *y) {
    const text *t = data->state;
    int64_t n_tokens = data->about.n_tokens;
    int64_t first = t->first[sample->split] + sample->index * n_tokens;
    for (int64_t i = 0; i < n_tokens; i++) {
        ((int32_t *)x)[i] = token_at(t, first + i);
        ((int32_t *)y)[i] = token_at(t, first + i + 1);
    }
}

static void text_hash(const wf_data *data, wfi_data_hash *hash) {
    const text *t = data->state;
    size_t n = (size_t)(t->n[WF_DATA_TRAIN] + t->n[WF_DATA_TEST]);
    if (t->words)
        wfi_data_hash_add(hash, t->words, n * sizeof *t->words);
    else
        wfi_data_hash_add(hash, t->bytes, n);
}

static void text_close(wf_data *data) {
    text *t = data->state;
    wfi_free(data->ctx, t->bytes);
    wfi_free(data->ctx, t->words);
    wfi_free(data->ctx, t);
}

static const wfi_source text_source = {text_fill, text_hash, text_close};

static wf_status read_tokens(wf_context *ctx, const char *path, wf_data_text kind, text *t,
                             int64_t *n_out, int64_t *vocabulary_out) {
    size_t n_bytes;
    WF_TRY(wfi_file_read(ctx, path, &t->bytes, &n_bytes));
    *n_out = (int64_t)n_bytes;
    *vocabulary_out = 256;
    if (kind == WF_TEXT_WORDS) {
        WF_TRY(wfi_words_number(ctx, path, t->bytes, n_bytes, &t->words, n_out, vocabulary_out));
        wfi_free(ctx, t->bytes);
        t->bytes = NULL;
    }
    if (*n_out == 0)
        return wfi_fail(ctx, WF_CORRUPT, "%s is empty: there is nothing to learn", path);
    return WF_OK;
}

wf_status wfi_text_file_open(wf_data *data, const wf_data_config *config, const char *path) {
    wf_context *ctx = data->ctx;
    text *t = wfi_alloc(ctx, 1, sizeof *t, "a text");
    if (!t) return WF_NO_MEMORY;
    data->state = t;
    data->source = &text_source;
    int64_t n, vocabulary, n_tokens = config->n_tokens;
    WF_TRY(read_tokens(ctx, path, config->text, t, &n, &vocabulary));
    if (n < 2 * (n_tokens + 1))
        return wfi_fail(ctx, WF_INVALID_ARG,
                        "%s is too short: %" PRId64 " %s, samples of %" PRId64
                        " tokens need at least %" PRId64,
                        path, n, config->text == WF_TEXT_WORDS ? "words" : "bytes", n_tokens,
                        2 * (n_tokens + 1));
    t->n[WF_DATA_TEST] = n / 10;
    t->n[WF_DATA_TRAIN] = t->first[WF_DATA_TEST] = n - n / 10;
    wf_data_description *about = &data->about;
    about->kind = WF_DATA_TOKENS;
    about->targets = WF_TARGETS_LABELS;
    about->x_dtype = about->y_dtype = WF_I32;
    about->x_shape = about->y_shape = WF_SHAPE(n_tokens);
    about->n_classes = vocabulary;
    about->n_tokens = n_tokens;
    /* The last token of a split is only asked for, never read. */
    about->n_train = (t->n[WF_DATA_TRAIN] - 1) / n_tokens;
    about->n_test = wfi_max_i64(t->n[WF_DATA_TEST] - 1, 0) / n_tokens;
    return WF_OK;
}
