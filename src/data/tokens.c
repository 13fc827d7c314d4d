#include "data/tokens.h"
#include "base/base.h"
#include "data/file.h"

#include <dirent.h>
#include <endian.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
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
                    "%s is too short: %" PRId64 " %s tokens are no %" PRId64
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

/* llm.c: 256 numbers of 32 bits, of which the first three say what follows; all little-endian. */
typedef struct header {
    uint32_t magic, version;
    size_t width_bytes;
    int64_t vocabulary;
} header;

#define HEADER_BYTES 1024

static const header headers[] = {{20240520, 1, 2, 50257}, {20240801, 7, 4, 128256}};
static const header no_header = {0, 0, 2, 50257};

static uint32_t number_at(const uint8_t *bytes, int i) {
    uint32_t number;
    memcpy(&number, bytes + 4 * (size_t)i, sizeof number);
    return le32toh(number);
}

static const header *find_header(const uint8_t *bytes, size_t n_bytes) {
    for (size_t i = 0; i < WFI_COUNT(headers) && n_bytes >= 4; i++)
        if (number_at(bytes, 0) == headers[i].magic) return &headers[i];
    return NULL;
}

/* The one file of `folder` whose name ends so. More than one: the second, too. */
static int find_file(const char *folder, const char *end, char path[2][PATH_MAX]) {
    int n = 0;
    size_t n_end = strlen(end);
    DIR *files = opendir(folder);
    for (struct dirent *f; files && n < 2 && (f = readdir(files));) {
        size_t length = strlen(f->d_name);
        if (length < n_end || strcmp(f->d_name + length - n_end, end) != 0) continue;
        if (snprintf(path[n], PATH_MAX, "%s/%s", folder, f->d_name) < PATH_MAX &&
            wfi_file_exists(path[n]))
            n++;
    }
    if (files) closedir(files);
    return n;
}

static const char *const file_end[2] = {"train.bin", "val.bin"};

bool wfi_tokens_is_here(const char *path) {
    char found[2][PATH_MAX];
    uint8_t first[4];
    struct stat st;
    if (stat(path, &st) != 0 || !S_ISREG(st.st_mode))
        return find_file(path, file_end[WF_DATA_TRAIN], found) > 0;
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
                        ", but at byte 4 it says %" PRIu32,
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
        uint16_t two;
        uint32_t four;
        if (width_bytes == 2) {
            memcpy(&two, at, sizeof two);
            two = le16toh(two);
            memcpy(at, &two, sizeof two);
        } else {
            memcpy(&four, at, sizeof four);
            four = le32toh(four);
            memcpy(at, &four, sizeof four);
        }
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
                        "%s is truncated or holds no tokens: %zu bytes are no whole number of %zu "
                        "bytes each",
                        path, n_bytes, about->width_bytes);
    if (!*vocabulary) *vocabulary = about->vocabulary;
    t->at[s] = bytes + skipped;
    t->width_bytes[s] = about->width_bytes;
    t->n[s] = (int64_t)((n_bytes - skipped) / about->width_bytes);
    to_host(bytes + skipped, t->n[s], about->width_bytes);
    return check_tokens(ctx, path, t, s, *vocabulary, skipped);
}

static wf_status load_folder(wf_context *ctx, const char *folder, wfi_tokens *t,
                             int64_t *vocabulary) {
    char path[2][PATH_MAX];
    for (int s = 0; s < 2; s++) {
        int n = find_file(folder, file_end[s], path);
        if (n > 1)
            return wfi_fail(ctx, WF_INVALID_ARG,
                            "%s and %s both end in %s: name one file, or a folder with one",
                            path[0], path[1], file_end[s]);
        if (n == 0 && s == WF_DATA_TRAIN)
            return wfi_fail(ctx, WF_INVALID_ARG, "%s has no file ...%s of tokens", folder,
                            file_end[s]);
        if (n) WF_TRY(load(ctx, path[0], s, t, vocabulary));
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
