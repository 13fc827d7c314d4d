/* Hugging Face's files of a byte-level BPE: tokenizer.json, or vocab.json and merges.txt. The
 * reader refuses contradictory files: a token's number must mean the same as in training. */
#include "base/file.h"
#include "base/utf8.h"
#include "data/bpe.h"

#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#define MAX_FILE_BYTES ((size_t)64 << 20) /* the largest that are known have 33 MB */

typedef struct reader {
    wfi_bpe *bpe;
    const char *path; /* of the file at hand */
    wfi_strings vocab;
    int32_t *number_of; /* [vocab.n] */
    size_t number_capacity;
} reader;

/* ---- bytes as characters ---- */

/* A visible character of Latin-1 encodes its own byte. U+0100 and the following characters encode
 * the other bytes, in their order. */
static bool is_visible(int byte) {
    return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}

static int byte_of(int character) {
    if (character < 256) return is_visible(character) ? character : -1;
    for (int byte = 0, next = 256; byte < 256; byte++)
        if (!is_visible(byte) && next++ == character) return byte;
    return -1;
}

/* Decodes a character of one or two bytes; longer characters encode no byte. */
static int character_at(const char *text, size_t *n_out) {
    const uint8_t *at = (const uint8_t *)text;
    *n_out = wfi_utf8_character(at, strnlen(text, 4));
    if (*n_out == 1) return *at;
    return *n_out == 2 ? (*at & 0x1f) << 6 | (at[1] & 0x3f) : INT_MAX;
}

/* Decodes `text` to bytes; start NULL, without an error: `text` encodes no bytes. */
static wf_status to_bytes(wfi_pool *pool, const char *text, wfi_string *bytes_out) {
    size_t n_text = strlen(text), n = 0, length;
    uint8_t *bytes = wfi_pool_alloc(pool, n_text + 1, 1);
    if (!bytes) return WF_NO_MEMORY;
    *bytes_out = (wfi_string){NULL, 0};
    for (const char *at = text; *at; at += length) {
        int byte = byte_of(character_at(at, &length));
        if (byte < 0) return WF_OK;
        bytes[n++] = (uint8_t)byte;
    }
    *bytes_out = (wfi_string){bytes, n};
    return WF_OK;
}

/* ---- the vocabulary ---- */

static wf_status take_number(const reader *r, const char *token, const json_t *value,
                             int32_t *number_out) {
    wfi_bpe *bpe = r->bpe;
    json_int_t number = json_is_integer(value) ? json_integer_value(value) : -1;
    if (number < 0 || number >= bpe->n_tokens)
        return wfi_fail(bpe->ctx, WF_CORRUPT,
                        "%s: the number of token '%.40s' is not one of 0 to %d, though there are "
                        "%d tokens: numbers must have no gaps",
                        r->path, token, bpe->n_tokens - 1, bpe->n_tokens);
    if (bpe->token[number].start)
        return wfi_fail(bpe->ctx, WF_CORRUPT,
                        "%s: the number %lld of token '%.40s' is another token's, too", r->path,
                        (long long)number, token);
    *number_out = (int32_t)number;
    return WF_OK;
}

/* A token of the vocabulary, which merges may name. */
static wf_status add_token(reader *r, int32_t number, wfi_string bytes) {
    wfi_bpe *bpe = r->bpe;
    int32_t place;
    bpe->token[number] = bytes;
    WF_TRY(WFI_GROW(bpe->ctx, r->number_of, r->vocab.n, r->number_capacity, "a vocabulary"));
    WF_TRY(wfi_strings_add(bpe->ctx, &r->vocab, bytes, &place));
    r->number_of[place] = number;
    return WF_OK;
}

static wf_status read_token(reader *r, const char *text, const json_t *value) {
    wfi_bpe *bpe = r->bpe;
    wfi_string bytes, as_it_is = {(const uint8_t *)text, strlen(text)};
    int32_t number, added = wfi_strings_find(&bpe->added, as_it_is);
    WF_TRY(take_number(r, text, value, &number));
    WF_TRY(to_bytes(&bpe->pool, text, &bytes));
    if (bytes.n && added < 0) return add_token(r, number, bytes);
    if (added < 0)
        return wfi_fail(bpe->ctx, WF_CORRUPT,
                        "%s: token '%.40s' (%d) is empty or has characters that represent no byte; "
                        "this is not a byte-level BPE",
                        r->path, text, number);
    as_it_is = bpe->added.at[added];
    if (!bytes.n) {
        bpe->token[number] = as_it_is;
        return WF_OK;
    }
    if (bytes.n == as_it_is.n && !memcmp(bytes.start, as_it_is.start, bytes.n))
        return add_token(r, number, bytes);
    return wfi_fail(bpe->ctx, WF_UNSUPPORTED,
                    "%s: the added token '%.40s' represents other bytes in the vocabulary", r->path,
                    text);
}

static int32_t find_token(const reader *r, wfi_string bytes) {
    int32_t place = wfi_strings_find(&r->vocab, bytes);
    return place < 0 ? -1 : r->number_of[place];
}

/* Refuses flags of added tokens that weft does not implement: weft would find the tokens
 * elsewhere. */
static wf_status check_added(const reader *r, const json_t *token) {
    static const char *const flags[] = {"single_word", "lstrip", "rstrip"};
    const char *text = json_string_value(json_object_get(token, "content"));
    if (!text || !json_is_integer(json_object_get(token, "id")))
        return wfi_fail(r->bpe->ctx, WF_CORRUPT, "%s: an added token without a content or an id",
                        r->path);
    for (size_t i = 0; i < WFI_COUNT(flags); i++)
        if (json_is_true(json_object_get(token, flags[i])))
            return wfi_fail(r->bpe->ctx, WF_UNSUPPORTED,
                            "%s: the added token '%.40s' is %s, which is not supported", r->path,
                            text, flags[i]);
    return WF_OK;
}

/* Found in texts as a whole. */
static wf_status remember_added(reader *r, const char *text, const json_t *id) {
    wfi_bpe *bpe = r->bpe;
    size_t n = strlen(text);
    char *copy = wfi_pool_format(&bpe->pool, "%s", text);
    int32_t place;
    if (!copy) return WF_NO_MEMORY;
    if (!n || n > WFI_MAX_ADDED_BYTES)
        return wfi_fail(bpe->ctx, WF_UNSUPPORTED,
                        "%s: an added token of %zu bytes; they have 1 to %d", r->path, n,
                        WFI_MAX_ADDED_BYTES);
    WF_TRY(wfi_strings_add(bpe->ctx, &bpe->added, (wfi_string){(const uint8_t *)copy, n}, &place));
    bpe->added_token[place] = (int32_t)json_integer_value(id);
    bpe->begins_added[(uint8_t)*copy] = true;
    bpe->has_added_length[n] = true;
    return WF_OK;
}

static const char *content_of(const json_t *added, size_t i) {
    return json_string_value(json_object_get(json_array_get(added, i), "content"));
}

/* How many of them the vocabulary does not have: *n_more_out. */
static wf_status read_added(reader *r, const json_t *vocab, const json_t *added,
                            size_t *n_more_out) {
    wfi_bpe *bpe = r->bpe;
    size_t n = json_array_size(added);
    bpe->added_token = wfi_alloc(bpe->ctx, n + 1, sizeof *bpe->added_token, "a vocabulary");
    if (!bpe->added_token) return WF_NO_MEMORY;
    *n_more_out = 0;
    for (size_t i = 0; i < n; i++) {
        WF_TRY(check_added(r, json_array_get(added, i)));
        const char *text = content_of(added, i);
        const json_t *id = json_object_get(json_array_get(added, i), "id");
        const json_t *in_vocab = json_object_get(vocab, text);
        if (in_vocab && !json_equal(in_vocab, id))
            return wfi_fail(bpe->ctx, WF_CORRUPT,
                            "%s: the added token '%.40s' has another number in the vocabulary",
                            r->path, text);
        size_t n_before = bpe->added.n;
        WF_TRY(remember_added(r, text, id));
        if (bpe->added.n == n_before)
            return wfi_fail(bpe->ctx, WF_CORRUPT, "%s: the added token '%.40s' is listed twice",
                            r->path, text);
        *n_more_out += !in_vocab;
    }
    return WF_OK;
}

static wf_status find_bytes(reader *r) {
    for (int b = 0; b < 256; b++) {
        uint8_t byte = (uint8_t)b;
        r->bpe->byte_token[b] = find_token(r, (wfi_string){&byte, 1});
        if (r->bpe->byte_token[b] < 0)
            return wfi_fail(r->bpe->ctx, WF_CORRUPT, "%s has no token for the byte 0x%02x alone",
                            r->path, b);
    }
    return WF_OK;
}

static wf_status read_vocab(reader *r, json_t *vocab, const json_t *added) {
    wfi_bpe *bpe = r->bpe;
    size_t n = json_object_size(vocab), n_more;
    if (!n) return wfi_fail(bpe->ctx, WF_CORRUPT, "%s contains no vocabulary", r->path);
    WF_TRY(read_added(r, vocab, added, &n_more));
    bpe->n_tokens = (int32_t)(n + n_more);
    bpe->token = wfi_alloc(bpe->ctx, n + n_more, sizeof *bpe->token, "a vocabulary");
    if (!bpe->token) return WF_NO_MEMORY;
    for (void *at = json_object_iter(vocab); at; at = json_object_iter_next(vocab, at)) {
        WF_TRY(read_token(r, json_object_iter_key(at), json_object_iter_value(at)));
    }
    for (size_t i = 0; i < json_array_size(added); i++) {
        const char *text = content_of(added, i);
        int32_t number, place = wfi_strings_find(&bpe->added,
                                                 (wfi_string){(const uint8_t *)text, strlen(text)});
        if (json_object_get(vocab, text)) continue;
        WF_TRY(take_number(r, text, json_object_get(json_array_get(added, i), "id"), &number));
        bpe->token[number] = bpe->added.at[place];
    }
    return find_bytes(r);
}

/* ---- merges ---- */

static wf_status add_merge(reader *r, const char *where, size_t number, const char *left,
                           const char *right) {
    wfi_bpe *bpe = r->bpe;
    const char *const side[2] = {left, right};
    wfi_string bytes[2];
    int32_t token[2], merged;
    for (int i = 0; i < 2; i++) {
        WF_TRY(to_bytes(&bpe->pool, side[i], &bytes[i]));
        token[i] = bytes[i].n ? find_token(r, bytes[i]) : -1;
        if (token[i] < 0)
            return wfi_fail(bpe->ctx, WF_CORRUPT,
                            "%s: %s %zu merges '%.40s', which the vocabulary does not have",
                            r->path, where, number, side[i]);
    }
    uint8_t *both = wfi_pool_alloc(&bpe->pool, bytes[0].n + bytes[1].n, 1);
    if (!both) return WF_NO_MEMORY;
    memcpy(both, bytes[0].start, bytes[0].n);
    memcpy(both + bytes[0].n, bytes[1].start, bytes[1].n);
    merged = find_token(r, (wfi_string){both, bytes[0].n + bytes[1].n});
    if (merged < 0)
        return wfi_fail(bpe->ctx, WF_CORRUPT,
                        "%s: %s %zu makes '%.40s%.40s', which the vocabulary does not have",
                        r->path, where, number, left, right);
    const wfi_bpe_merge *again;
    WF_TRY(wfi_bpe_add_merge(bpe, token[0], token[1], merged, &again));
    if (!again) return WF_OK;
    return wfi_fail(bpe->ctx, WF_CORRUPT, "%s: %s %zu merges '%.40s' and '%.40s' again", r->path,
                    where, number, left, right);
}

/* "left right"; changes the line. */
static wf_status add_line(reader *r, const char *where, size_t number, char *line) {
    char *space = strchr(line, ' ');
    if (!space || space == line || !space[1] || strchr(space + 1, ' '))
        return wfi_fail(r->bpe->ctx, WF_CORRUPT,
                        "%s: %s %zu is '%.60s', not two tokens separated by a space", r->path,
                        where, number, line);
    *space = 0;
    return add_merge(r, where, number, line, space + 1);
}

static wf_status read_lines(reader *r, char *text, size_t n_bytes) {
    size_t number = 0, n_good = wf_text_valid((const uint8_t *)text, n_bytes);
    const char *zero = memchr(text, 0, n_bytes);
    if (zero || n_good < n_bytes)
        return wfi_fail(r->bpe->ctx, WF_CORRUPT, "%s is not UTF-8 text at byte %zu", r->path,
                        zero && (size_t)(zero - text) < n_good ? (size_t)(zero - text) : n_good);
    for (char *line = text, *end; *line; line = end) {
        end = line + strcspn(line, "\n");
        size_t n = (size_t)(end - line);
        if (*end) *end++ = 0;
        if (n && line[n - 1] == '\r') line[n - 1] = 0;
        number++;
        if (*line && strncmp(line, "#version", 8)) WF_TRY(add_line(r, "line", number, line));
    }
    return WF_OK;
}

static wf_status read_merge(reader *r, size_t i, const json_t *merge) {
    const char *left = json_string_value(json_array_get(merge, 0));
    const char *right = json_string_value(json_array_get(merge, 1));
    if (left && right && json_array_size(merge) == 2) return add_merge(r, "merge", i, left, right);
    if (!json_is_string(merge))
        return wfi_fail(r->bpe->ctx, WF_CORRUPT, "%s: merge %zu is not a pair of tokens", r->path,
                        i);
    char *line = wfi_pool_format(&r->bpe->pool, "%s", json_string_value(merge));
    return line ? add_line(r, "merge", i, line) : WF_NO_MEMORY;
}

/* ---- the whole ---- */

static wf_status parse_json(const reader *r, const char *text, size_t n, json_t **json_out) {
    json_error_t error;
    *json_out = json_loadb(text, n, JSON_REJECT_DUPLICATES, &error);
    if (*json_out) return WF_OK;
    return wfi_fail(r->bpe->ctx, WF_CORRUPT, "%s, line %d: %s", r->path, error.line, error.text);
}

/* A member that has to be absent, null, or that; `wanted` NULL: absent, null or an empty text. */
static wf_status check_member(const reader *r, const json_t *object, const char *key,
                              json_type wanted) {
    const json_t *value = json_object_get(object, key);
    bool is_empty = json_is_string(value) && !*json_string_value(value);
    if (!value || json_is_null(value) || is_empty || json_typeof(value) == wanted) return WF_OK;
    return wfi_fail(
        r->bpe->ctx, WF_UNSUPPORTED,
        "%s has a %s that GPT-2's byte-level BPE does not have and that is not supported", r->path,
        key);
}

static bool is_text(const json_t *object, const char *key, const char *wanted) {
    const char *text = json_string_value(json_object_get(object, key));
    return text && !strcmp(text, wanted);
}

/* ByteLevel with GPT-2's pattern; or another one before it, which splits: *pattern_out. */
static wf_status check_split(const reader *r, const json_t *before, const char **pattern_out) {
    const json_t *list = json_object_get(before, "pretokenizers"), *split = json_array_get(list, 0);
    const char *pattern =
        json_string_value(json_object_get(json_object_get(split, "pattern"), "Regex"));
    bool is_pair = is_text(before, "type", "Sequence") && json_array_size(list) == 2 && pattern &&
                   *pattern && is_text(split, "type", "Split") &&
                   is_text(split, "behavior", "Isolated") &&
                   !json_is_true(json_object_get(split, "invert"));
    const json_t *bytes = is_pair ? json_array_get(list, 1) : before;
    bool has_own = !json_is_false(json_object_get(bytes, "use_regex"));
    *pattern_out = is_pair ? pattern : NULL;
    if (!is_text(bytes, "type", "ByteLevel") || has_own == is_pair)
        return wfi_fail(r->bpe->ctx, WF_UNSUPPORTED,
                        "%s: the pre_tokenizer is neither GPT-2's, ByteLevel with its own pattern, "
                        "nor a Split before that",
                        r->path);
    return check_member(r, bytes, "add_prefix_space", JSON_FALSE);
}

/* Requires absent, null, or a list: ignoring another value would give other tokens. */
static wf_status check_list(const reader *r, const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    if (!value || json_is_null(value) || json_is_array(value)) return WF_OK;
    return wfi_fail(r->bpe->ctx, WF_CORRUPT, "%s: %s is not a list", r->path, key);
}

static wf_status check_kind(const reader *r, const json_t *all, const char **pattern_out) {
    wf_context *ctx = r->bpe->ctx;
    const json_t *model = json_object_get(all, "model");
    if (!is_text(model, "type", "BPE"))
        return wfi_fail(ctx, WF_UNSUPPORTED, "%s: the model is not a BPE", r->path);
    WF_TRY(check_split(r, json_object_get(all, "pre_tokenizer"), pattern_out));
    WF_TRY(check_list(r, model, "merges"));
    WF_TRY(check_list(r, all, "added_tokens"));
    WF_TRY(check_member(r, all, "normalizer", JSON_NULL));
    WF_TRY(check_member(r, model, "dropout", JSON_NULL));
    WF_TRY(check_member(r, model, "continuing_subword_prefix", JSON_NULL));
    WF_TRY(check_member(r, model, "end_of_word_suffix", JSON_NULL));
    return check_member(r, model, "byte_fallback", JSON_FALSE);
}

/* Pieces that are tokens are not merged: the reader's vocabulary becomes the table of whole
 * tokens. */
static void keep_whole(reader *r) {
    r->bpe->whole = r->vocab;
    r->bpe->whole_token = r->number_of;
    memset(&r->vocab, 0, sizeof r->vocab);
    r->number_of = NULL;
}

static wf_status read_all(reader *r, const json_t *all) {
    const json_t *model = json_object_get(all, "model"), *merges = json_object_get(model, "merges");
    const char *pattern = NULL;
    WF_TRY(check_kind(r, all, &pattern));
    WF_TRY(wfi_splitter_create(r->bpe->ctx, pattern, &r->bpe->splitter));
    WF_TRY(read_vocab(r, json_object_get(model, "vocab"), json_object_get(all, "added_tokens")));
    for (size_t i = 0; i < json_array_size(merges); i++)
        WF_TRY(read_merge(r, i, json_array_get(merges, i)));
    if (json_is_true(json_object_get(model, "ignore_merges"))) keep_whole(r);
    return WF_OK;
}

static wf_status parse_one(reader *r, const wfi_bpe_file *file) {
    json_t *all;
    WF_TRY(parse_json(r, file->text, file->n, &all));
    wf_status status = read_all(r, all);
    json_decref(all);
    return status;
}

/* GPT-2's own tokenizer takes this one, if the vocabulary has it, out of texts as a whole. */
#define END_OF_TEXT "<|endoftext|>"

static wf_status parse_two(reader *r, const wfi_bpe_file *file) {
    json_t *vocab, *added = NULL;
    WF_TRY(wfi_splitter_create(r->bpe->ctx, NULL, &r->bpe->splitter));
    WF_TRY(parse_json(r, file[0].text, file[0].n, &vocab));
    json_t *end = json_object_get(vocab, END_OF_TEXT);
    if (end) added = json_pack("[{s:s, s:O}]", "content", END_OF_TEXT, "id", end);
    wf_status status = read_vocab(r, vocab, added);
    json_decref(added);
    json_decref(vocab);
    WF_TRY(status);
    r->path = file[1].path;
    return read_lines(r, file[1].text, file[1].n);
}

wf_status wfi_bpe_parse(wf_context *ctx, const wfi_bpe_file *file, int n_files, wfi_bpe **bpe_out) {
    wfi_bpe *bpe = wfi_alloc(ctx, 1, sizeof *bpe, "a tokenizer");
    if (!bpe) return WF_NO_MEMORY;
    bpe->ctx = ctx;
    wfi_pool_init(&bpe->pool, ctx);
    reader r = {.bpe = bpe, .path = file->path};
    wf_status status = n_files == 1 ? parse_one(&r, file) : parse_two(&r, file);
    wfi_strings_release(ctx, &r.vocab);
    wfi_free(ctx, r.number_of);
    if (status == WF_OK)
        *bpe_out = bpe;
    else
        wfi_bpe_destroy(bpe);
    return status;
}

/* ---- files ---- */

static wf_status read_file(wf_context *ctx, wfi_bpe_file *file) {
    uint8_t *bytes;
    WF_TRY(wfi_file_size(ctx, file->path, &file->n));
    if (file->n > MAX_FILE_BYTES)
        return wfi_fail(ctx, WF_UNSUPPORTED,
                        "%s has %zu bytes, more than the %zu that a tokenizer's file may have",
                        file->path, file->n, MAX_FILE_BYTES);
    WF_TRY(wfi_file_read(ctx, file->path, &bytes, &file->n));
    file->text = wfi_alloc(ctx, file->n + 1, 1, file->path);
    if (file->text) memcpy(file->text, bytes, file->n);
    wfi_free(ctx, bytes);
    return file->text ? WF_OK : WF_NO_MEMORY;
}

wf_status wfi_bpe_open(wf_context *ctx, const char *path, wfi_bpe **bpe_out) {
    char whole[PATH_MAX], vocab[PATH_MAX], merges[PATH_MAX];
    wfi_bpe_file file[2] = {{.path = path}, {.path = merges}};
    int n_files = 1;
    wf_status status = WF_OK;
    snprintf(whole, sizeof whole, "%s/tokenizer.json", path);
    snprintf(vocab, sizeof vocab, "%s/vocab.json", path);
    snprintf(merges, sizeof merges, "%s/merges.txt", path);
    if (wfi_file_exists(whole)) {
        file->path = whole;
    } else if (wfi_file_exists(vocab) && wfi_file_exists(merges)) {
        file->path = vocab;
        n_files = 2;
    } else if (!wfi_file_exists(path)) {
        return wfi_fail(
            ctx, WF_IO,
            "%s contains no tokenizer: neither tokenizer.json nor vocab.json and merges.txt", path);
    }
    for (int i = 0; i < n_files && status == WF_OK; i++) status = read_file(ctx, &file[i]);
    if (status == WF_OK) status = wfi_bpe_parse(ctx, file, n_files, bpe_out);
    for (int i = 0; i < n_files; i++) wfi_free(ctx, file[i].text);
    return status;
}
