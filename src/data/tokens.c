#include "data/tokens.h"
#include "base/base.h"
#include "base/bytes.h"
#include "base/file.h"

#include <dirent.h>
#include <endian.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- any set of tokens ---- */

static int32_t token_at(const wfi_tokens *t, int s, int64_t i) {
    const uint8_t *from = t->at[s] + (size_t)i * t->width_bytes[s];
    uint16_t two;
    int32_t four;
    switch (t->width_bytes[s]) {
    case 1:
        return *from;
    case 2:
        memcpy(&two, from, sizeof two);
        return two;
    default:
        memcpy(&four, from, sizeof four);
        return four;
    }
}

static wf_status tokens_fill(const wf_data *data, const wfi_sample *sample, void *x, void *y) {
    const wfi_tokens *t = data->state;
    int64_t n = data->about.n_tokens, first = sample->index * n, n_left = n;
    int64_t n_streams = t->n_streams[sample->split];
    if (n_streams) {
        int64_t n_each = t->n[sample->split] / n_streams, at = sample->index / n_streams * n;
        first = sample->index % n_streams * n_each + at;
        n_left = n_each - 1 - at; /* the last token is only asked for */
    }
    for (int64_t i = 0; i < n; i++) {
        bool is_there = i < n_left;
        ((int32_t *)x)[i] = is_there ? token_at(t, sample->split, first + i) : 0;
        ((int32_t *)y)[i] = is_there ? token_at(t, sample->split, first + i + 1) : -1;
    }
    return WF_OK;
}

static void tokens_hash(const wf_data *data, wfi_data_hash *hash) {
    const wfi_tokens *t = data->state;
    for (int s = 0; s < 2; s++)
        wfi_data_hash_add(hash, t->at[s], (size_t)t->n[s] * t->width_bytes[s]);
    for (int s = 0; s < 2 && t->n_streams[s]; s++) wfi_data_hash_number(hash, t->n_streams[s]);
}

static void tokens_close(wf_data *data) {
    wfi_tokens *t = data->state;
    for (int i = 0; i < 2; i++) wfi_free(data->ctx, t->owned[i]);
    wfi_free(data->ctx, t);
}

static const wfi_source tokens_source = {tokens_fill, tokens_hash, tokens_close, NULL};

wf_status wfi_tokens_create(wf_data *data, wfi_tokens **tokens_out) {
    *tokens_out = wfi_data_own(data, &tokens_source, sizeof **tokens_out, "a set of tokens");
    return *tokens_out ? WF_OK : WF_NO_MEMORY;
}

/* Of a split. The last token is only asked for, never read. */
static wf_status count_samples(const wf_data *data, int s, int64_t n_tokens, const char *path,
                               int64_t *n_out) {
    const wfi_tokens *t = data->state;
    int64_t n_streams = t->n_streams[s], n_each = n_streams ? t->n[s] / n_streams : t->n[s];
    *n_out = wfi_max_i64(n_each - 1, 0) / n_tokens;
    if (!n_streams || !t->n[s]) return WF_OK;
    *n_out = n_streams * ((n_each - 1 + n_tokens - 1) / n_tokens);
    if (n_each >= 2) return WF_OK;
    return wfi_fail(data->ctx, WF_INVALID_ARG,
                    "%s is too short: %" PRId64 " %s tokens do not fill %" PRId64
                    " streams of at least 2",
                    path, t->n[s], s == WF_DATA_TRAIN ? "training" : "test", n_streams);
}

wf_status wfi_tokens_finish(wf_data *data, const wf_data_config *config, const char *path,
                            int64_t vocabulary) {
    wfi_tokens *t = data->state;
    int64_t n_tokens = config->n_tokens;
    wf_data_description *about = &data->about;
    about->kind = WF_DATA_TOKENS;
    about->targets = WF_TARGETS_LABELS;
    about->x_dtype = about->y_dtype = WF_I32;
    about->x_shape = about->y_shape = WF_SHAPE(n_tokens);
    about->n_classes = vocabulary;
    about->n_tokens = n_tokens;
    memcpy(t->n_streams, config->n_streams, sizeof t->n_streams);
    WF_TRY(count_samples(data, WF_DATA_TRAIN, n_tokens, path, &about->n_train));
    return count_samples(data, WF_DATA_TEST, n_tokens, path, &about->n_test);
}

/* ---- files of tokens ---- */

/* llm.c: 256 little-endian numbers of 32 bits; the first three describe the rest of the file. */
typedef struct header {
    uint32_t magic, version;
    size_t width_bytes;
    int64_t vocabulary;
} header;

#define HEADER_BYTES 1024

static const header headers[] = {{20240520, 1, 2, 50257}, {20240801, 7, 4, 128256}};
static const header no_header = {0, 0, 2, 50257};

static uint32_t number_at(const uint8_t *bytes, int i) {
    return (uint32_t)wfi_get_number(bytes + 4 * (size_t)i, 4);
}

static const header *find_header(const uint8_t *bytes, size_t n_bytes) {
    for (size_t i = 0; i < WFI_COUNT(headers) && n_bytes >= 4; i++)
        if (number_at(bytes, 0) == headers[i].magic) return &headers[i];
    return NULL;
}

/* A name is of a split if it ends in that word and ".bin", as nanoGPT's does, or also has a number,
 * as the shards of llm.c's fineweb have: fineweb_train_000001.bin. */
static const char *const split_words[2] = {"train", "val"};

/* How much of the name the split's files have in common; 0: it is none of them. */
static size_t match_split(const char *name, int s) {
    static const char end[] = ".bin";
    const char *word = split_words[s];
    size_t n = strlen(name), n_end = strlen(end), n_word = strlen(word);
    if (n < n_end || strcmp(name + n - n_end, end) != 0) return 0;
    n -= n_end;
    size_t at = n;
    while (at && name[at - 1] >= '0' && name[at - 1] <= '9') at--;
    if (at < n && at && name[at - 1] == '_') at--;
    return at >= n_word && !memcmp(name + at - n_word, word, n_word) ? at : 0;
}

static int is_train(const struct dirent *f) {
    return match_split(f->d_name, WF_DATA_TRAIN) > 0;
}

static int is_val(const struct dirent *f) {
    return match_split(f->d_name, WF_DATA_TEST) > 0;
}

static void free_names(struct dirent **names, int n) {
    for (int i = 0; i < n; i++) free(names[i]); /* scandir allocates with malloc */
    free(names);
}

/* The files of a split, in the order of their numbers. */
static int find_files(const char *folder, int s, struct dirent ***names_out) {
    int n = scandir(folder, names_out, s == WF_DATA_TRAIN ? is_train : is_val, versionsort);
    return n > 0 ? n : 0;
}

bool wfi_tokens_is_here(const char *path) {
    struct dirent **names;
    uint8_t first[4];
    struct stat st;
    if (stat(path, &st) != 0 || !S_ISREG(st.st_mode)) {
        int n_files = find_files(path, WF_DATA_TRAIN, &names);
        if (n_files) free_names(names, n_files);
        return n_files > 0;
    }
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, first, sizeof first) : 0;
    if (fd >= 0) close(fd);
    return n > 0 && find_header(first, (size_t)n);
}

static wf_status check_header(wf_context *ctx, const char *path, const header *about,
                              const uint8_t *bytes, size_t n_bytes) {
    if (n_bytes < HEADER_BYTES)
        return wfi_fail(ctx, WF_CORRUPT,
                        "%s is truncated: it begins as llm.c's tokens do, but has %zu bytes, fewer "
                        "than the %d of their header",
                        path, n_bytes, HEADER_BYTES);
    uint32_t version = number_at(bytes, 1), n = number_at(bytes, 2);
    if (version != about->version)
        return wfi_fail(ctx, WF_CORRUPT,
                        "%s: llm.c's tokens %" PRIu32 " have version %" PRIu32
                        ", but byte 4 holds %" PRIu32,
                        path, about->magic, about->version, version);
    if (n_bytes - HEADER_BYTES != n * about->width_bytes)
        return wfi_fail(ctx, WF_CORRUPT,
                        "%s is truncated or damaged: at byte 8 it announces %" PRIu32
                        " tokens, which take %zu bytes with the header, but it has %zu",
                        path, n, HEADER_BYTES + n * about->width_bytes, n_bytes);
    return WF_OK;
}

/* To the host's byte order, in place. */
static void to_host(uint8_t *at, int64_t n, size_t width_bytes) {
    for (int64_t i = 0; i < n; i++, at += width_bytes) {
        uint32_t four = (uint32_t)wfi_get_number(at, (int)width_bytes);
        uint16_t two = (uint16_t)four;
        memcpy(at, width_bytes == 2 ? (void *)&two : &four, width_bytes);
    }
}

static wf_status check_tokens(wf_context *ctx, const char *path, const wfi_tokens *t, int s,
                              int64_t vocabulary, size_t header_bytes) {
    for (int64_t i = 0; i < t->n[s]; i++) {
        uint32_t token = (uint32_t)token_at(t, s, i);
        if (token >= (uint64_t)vocabulary)
            return wfi_fail(ctx, WF_CORRUPT,
                            "%s: token %" PRId64 ", at byte %zu, is %" PRIu32
                            ", but the vocabulary has %" PRId64 ", 0 to %" PRId64,
                            path, i, header_bytes + (size_t)i * t->width_bytes[s], token,
                            vocabulary, vocabulary - 1);
    }
    return WF_OK;
}

static wf_status load(wf_context *ctx, const char *path, int s, wfi_tokens *t,
                      int64_t *vocabulary) {
    size_t n_bytes, skipped = 0;
    uint8_t *bytes;
    WF_TRY(wfi_file_read(ctx, path, &bytes, &n_bytes));
    t->owned[s] = bytes;
    const header *about = find_header(bytes, n_bytes);
    if (about) {
        WF_TRY(check_header(ctx, path, about, bytes, n_bytes));
        skipped = HEADER_BYTES;
    } else {
        about = &no_header;
    }
    if ((n_bytes - skipped) % about->width_bytes)
        return wfi_fail(ctx, WF_CORRUPT,
                        "%s is truncated or holds no tokens: %zu bytes are not a whole number of "
                        "tokens of %zu bytes",
                        path, n_bytes, about->width_bytes);
    if (!*vocabulary) *vocabulary = about->vocabulary;
    t->at[s] = bytes + skipped;
    t->width_bytes[s] = about->width_bytes;
    t->n[s] = (int64_t)((n_bytes - skipped) / about->width_bytes);
    to_host(bytes + skipped, t->n[s], about->width_bytes);
    return check_tokens(ctx, path, t, s, *vocabulary, skipped);
}

static wf_status make_path(wf_context *ctx, const char *folder, const struct dirent *name,
                           char path[PATH_MAX]) {
    if (snprintf(path, PATH_MAX, "%s/%s", folder, name->d_name) < PATH_MAX) return WF_OK;
    return wfi_fail(ctx, WF_INVALID_ARG, "%s: the path is too long", folder);
}

/* Shards of one set differ in their numbers. */
static wf_status check_shards(wf_context *ctx, const char *folder, int s, struct dirent **names,
                              int n) {
    const char *first = names[0]->d_name;
    size_t n_common = match_split(first, s);
    for (int i = 1; i < n; i++) {
        const char *name = names[i]->d_name;
        if (match_split(name, s) != n_common || strncmp(name, first, n_common) ||
            first[n_common] == '.')
            return wfi_fail(
                ctx, WF_INVALID_ARG,
                "%s: %s and %s are not shards of one set: name one file, or a folder with one set",
                folder, first, name);
    }
    return WF_OK;
}

/* One after the other into memory for all. */
static wf_status load_shards(wf_context *ctx, const char *folder, int s, struct dirent **names,
                             int n, wfi_tokens *t, int64_t *vocabulary) {
    char path[PATH_MAX];
    size_t total = 0, n_bytes, done = 0;
    WF_TRY(check_shards(ctx, folder, s, names, n));
    for (int i = 0; i < n; i++) {
        WF_TRY(make_path(ctx, folder, names[i], path));
        WF_TRY(wfi_file_size(ctx, path, &n_bytes));
        total += n_bytes;
    }
    uint8_t *all = wfi_alloc(ctx, total + 1, 1, folder);
    if (!all) return WF_NO_MEMORY;
    t->owned[s] = all;
    for (int i = 0; i < n; i++) {
        wfi_tokens shard = {{NULL}, {NULL}, {0}, {0}, {0}};
        wf_status status = make_path(ctx, folder, names[i], path);
        if (status == WF_OK) status = load(ctx, path, s, &shard, vocabulary);
        size_t width = shard.width_bytes[s];
        if (status == WF_OK && i && width != t->width_bytes[s])
            status =
                wfi_fail(ctx, WF_CORRUPT, "%s has tokens of %zu bytes, and the shards before %zu",
                         path, width, t->width_bytes[s]);
        n_bytes = (size_t)shard.n[s] * width;
        if (status == WF_OK && n_bytes > total - done)
            status = wfi_fail(ctx, WF_IO, "%s became longer while it was read", path);
        if (status == WF_OK) memcpy(all + done, shard.at[s], n_bytes);
        wfi_free(ctx, shard.owned[s]);
        WF_TRY(status);
        done += n_bytes;
        t->at[s] = all;
        t->width_bytes[s] = width;
        t->n[s] += shard.n[s];
    }
    return WF_OK;
}

static wf_status load_files(wf_context *ctx, const char *folder, int s, struct dirent **names,
                            int n, wfi_tokens *t, int64_t *vocabulary) {
    char path[PATH_MAX];
    if (n > 1) return load_shards(ctx, folder, s, names, n, t, vocabulary);
    WF_TRY(make_path(ctx, folder, names[0], path));
    return load(ctx, path, s, t, vocabulary);
}

static wf_status load_folder(wf_context *ctx, const char *folder, wfi_tokens *t,
                             int64_t *vocabulary) {
    for (int s = 0; s < 2; s++) {
        struct dirent **names;
        int n = find_files(folder, s, &names);
        if (!n && s == WF_DATA_TRAIN)
            return wfi_fail(ctx, WF_INVALID_ARG, "%s has no file ...train.bin of tokens", folder);
        if (!n) continue;
        wf_status status = load_files(ctx, folder, s, names, n, t, vocabulary);
        free_names(names, n);
        WF_TRY(status);
    }
    return WF_OK;
}

wf_status wfi_tokens_open(wf_data *data, const wf_data_config *config, const char *path) {
    wfi_tokens *t;
    int64_t vocabulary = config->n_classes;
    WF_TRY(wfi_tokens_create(data, &t));
    if (wfi_file_exists(path))
        WF_TRY(load(data->ctx, path, WF_DATA_TRAIN, t, &vocabulary));
    else
        WF_TRY(load_folder(data->ctx, path, t, &vocabulary));
    WF_TRY(wfi_tokens_finish(data, config, path, vocabulary));
    if (data->about.n_train) return WF_OK;
    return wfi_fail(data->ctx, WF_INVALID_ARG,
                    "%s is too short: %" PRId64 " tokens to train on, samples of %" PRId64
                    " need at least %" PRId64,
                    path, t->n[WF_DATA_TRAIN], config->n_tokens, config->n_tokens + 1);
}
