/* Text files: as bytes, as words, split in two, shifted by one; what is none; files of tokens.
 *
 * label: serial
 */
#include "data_folder.h"

#include "base/base.h"
#include "data/words.h"

static wf_status open_as(folder *f, const char *name, wf_data_format format, wf_data_text text,
                         int64_t n_tokens, wf_data **data_out) {
    wf_data_config config = WF_DATA_CONFIG_INIT;
    config.name = folder_file(f, name);
    config.format = format;
    config.kind = WF_DATA_TOKENS;
    config.text = text;
    config.n_tokens = n_tokens;
    return wf_data_open(f->ctx, &config, data_out);
}

static wf_status open_text(folder *f, wf_data_text text, int64_t n_tokens, wf_data **data_out) {
    return open_as(f, "text", WF_FORMAT_AUTO, text, n_tokens, data_out);
}

static void refuse_tokens(folder *f, const char *name, wf_data_format format, int64_t n_tokens,
                          wf_status status, const char *words) {
    wf_data *data;
    expect_failure(f->ctx, open_as(f, name, format, WF_TEXT_BYTES, n_tokens, &data), status, words);
}

static void check_tokens(wf_data *data, wf_data_split split, int64_t n_samples, const int *tokens) {
    wf_loader_config order = WF_LOADER_CONFIG_INIT;
    order.split = split;
    order.batch = 100;
    order.shuffle = 0;
    scoped_loader loader;
    const wf_batch *batch;
    int64_t n = n_samples * wf_data_describe(data)->n_tokens;
    assert_int_equal(wf_loader_create(data, &order, &loader), WF_OK);
    assert_int_equal(wf_loader_next(loader, &batch), WF_OK);
    assert_int_equal(batch->n_samples, n_samples);
    for (int64_t i = 0; i < n; i++) {
        assert_int_equal(((const int32_t *)batch->x)[i], tokens[i]);
        assert_int_equal(((const int32_t *)batch->y)[i], tokens[i + 1]);
    }
}

TEST_IN_FOLDER(reads_bytes) {
    char text[100];
    int tokens[100];
    scoped_data data;
    for (int i = 0; i < 100; i++) tokens[i] = (unsigned char)(text[i] = (char)(i * 5));
    folder_write(f, "text", text, sizeof text);
    assert_int_equal(open_as(f, "text", WF_FORMAT_BYTES, WF_TEXT_BYTES, 4, &data), WF_OK);
    const wf_data_description *about = wf_data_describe(data);
    assert_int_equal(about->kind, WF_DATA_TOKENS);
    assert_int_equal(about->n_classes, 256);
    assert_int_equal(about->n_train, 22); /* of 90 bytes the last is only a label */
    assert_int_equal(about->n_test, 2);
    assert_int_equal(about->x_bytes, 16);
    check_tokens(data, WF_DATA_TRAIN, 22, tokens);
    check_tokens(data, WF_DATA_TEST, 2, tokens + 90);
}

TEST_IN_FOLDER(reads_words) {
    scoped_data data;
    const char text[] = "\xef\xbb\xbf" /* a byte order mark, which is no part of a word */
                        "a rose  is a\trose\n\nis <eos> A";
    folder_write(f, "text", text, strlen(text));
    assert_int_equal(open_text(f, WF_TEXT_WORDS, 2, &data), WF_OK);
    assert_int_equal(wf_data_describe(data)->n_classes, 5);
    assert_int_equal(wf_data_describe(data)->n_train, 4); /* 10 words, one of them to test */
    check_tokens(data, WF_DATA_TRAIN, 4, (int[]){0, 1, 2, 0, 1, 3, 3, 2, 3});
}

/* A batch is the next piece of every stream; what the last one lacks does not count. */
TEST_IN_FOLDER(reads_streams) {
    wf_data_config config = WF_DATA_CONFIG_INIT;
    wf_loader_config order = WF_LOADER_CONFIG_INIT;
    wf_data *data;
    wf_loader *loader;
    const wf_batch *batch;
    folder_write(f, "text", "abcdefghijklmnopqrstuvw", 23); /* 21 to train: of each stream 5 */
    config.name = folder_file(f, "text");
    config.kind = WF_DATA_TOKENS;
    config.n_tokens = 3;
    config.n_streams[WF_DATA_TRAIN] = order.batch = 4;
    config.n_streams[WF_DATA_TEST] = 1;
    order.shuffle = 0;
    assert_int_equal(wf_data_open(f->ctx, &config, &data), WF_OK);
    assert_int_equal(wf_data_describe(data)->n_train, 8);
    assert_int_equal(wf_data_describe(data)->n_test, 1);
    assert_int_equal(wf_loader_create(data, &order, &loader), WF_OK);
    for (int k = 0; k < 2; k++) {
        assert_int_equal(wf_loader_next(loader, &batch), WF_OK);
        for (int s = 0; s < 4; s++)
            for (int i = 0; i < 3; i++) {
                bool is_there = 3 * k + i < 4;
                int at = 'a' + 5 * s + 3 * k + i;
                assert_int_equal(((const int32_t *)batch->x)[3 * s + i], is_there ? at : 0);
                assert_int_equal(((const int32_t *)batch->y)[3 * s + i], is_there ? at + 1 : -1);
            }
    }
    assert_true(batch->last_of_epoch);
    wf_loader_destroy(loader);
    wf_data_close(data);
    config.n_streams[WF_DATA_TEST] = 2;
    expect_failure(f->ctx, wf_data_open(f->ctx, &config, &data), WF_INVALID_ARG,
                   "2 test tokens do not fill 2 streams of at least 2");
}

TEST_IN_FOLDER(numbers_many_words) {
    enum { N = 20000 };
    char *text = malloc(2 * N * 8);
    int32_t *tokens;
    int64_t n_tokens;
    wfi_strings words = {0};
    size_t n = 0;
    assert_non_null(text);
    for (int i = 0; i < 2 * N; i++) n += (size_t)sprintf(text + n, "w%d ", i % N);
    const uint8_t *bytes = (const uint8_t *)text;
    assert_int_equal(wfi_words_learn(f->ctx, "x", bytes, n, &words), WF_OK);
    assert_int_equal(wfi_words_encode(f->ctx, &words, "x", bytes, n, &tokens, &n_tokens), WF_OK);
    assert_int_equal(words.n, N);
    wfi_strings_release(f->ctx, &words);
    assert_int_equal(n_tokens, 2 * N);
    for (int i = 0; i < 2 * N; i++) assert_int_equal(tokens[i], i % N);
    wfi_free(f->ctx, tokens);
    free(text);
}

TEST_IN_FOLDER(refuses_short_texts) {
    wf_data *data;
    folder_write(f, "text", "", 0);
    expect_failure(f->ctx, open_text(f, WF_TEXT_BYTES, 4, &data), WF_CORRUPT, "text is empty");
    folder_write(f, "text", "   ", 3);
    expect_failure(f->ctx, open_text(f, WF_TEXT_WORDS, 4, &data), WF_CORRUPT, "text is empty");
    folder_write(f, "text", "123456789", 9);
    expect_failure(f->ctx, open_text(f, WF_TEXT_BYTES, 4, &data), WF_INVALID_ARG,
                   "text is too short: 9 bytes, samples of 4 tokens need at least 10");
    expect_failure(f->ctx, open_text(f, WF_TEXT_BYTES, 0, &data), WF_INVALID_ARG, "n_tokens is 0");
    folder_write(f, "text", "1234567890", 10);
    assert_int_equal(open_text(f, WF_TEXT_BYTES, 4, &data), WF_OK);
    assert_int_equal(wf_data_describe(data)->n_train, 2);
    assert_int_equal(wf_data_describe(data)->n_test, 0);
    wf_data_close(data);
    wf_data_config config = WF_DATA_CONFIG_INIT;
    config.name = folder_file(f, "text");
    expect_failure(f->ctx, wf_data_open(f->ctx, &config, &data), WF_INVALID_ARG,
                   "holds text, but the model reads images");
}

static void refuse(folder *f, const void *bytes, size_t n, const char *sentence) {
    scoped_data data;
    folder_write(f, "text", bytes, n);
    expect_failure(f->ctx, open_text(f, WF_TEXT_BYTES, 4, &data), WF_CORRUPT, sentence);
    expect_failure(f->ctx, open_as(f, "text", WF_FORMAT_TEXT, WF_TEXT_WORDS, 4, &data), WF_CORRUPT,
                   sentence);
    assert_int_equal(open_as(f, "text", WF_FORMAT_BYTES, WF_TEXT_BYTES, 4, &data), WF_OK);
}

TEST_IN_FOLDER(refuses_what_is_no_text) {
    scoped_data data;
    refuse(f, "some text, then\0none", 20,
           "text is not text: byte 15 is zero (--data-format tokens");
    refuse(f, "PK\3\4and so on and on", 20, "text is not text, but a zip archive");
    refuse(f, "\x1f\x8b and so on and on", 20, "text is not text, but a gzip file");
    refuse(f, "\177ELFand so on and on", 20, "text is not text, but an ELF program");
    refuse(f, "\x30\0\0\0\0\0\0\0{\"a\":{}, and so on", 26, "but a safetensors file");
    refuse(f, "\x80\2}q\1and so on and on", 20, "but a Python pickle");
    const char like[] = "12345678{\"this\": \"is text\"}";
    folder_write(f, "text", like, strlen(like));
    assert_int_equal(open_text(f, WF_TEXT_BYTES, 4, &data), WF_OK);
}

/* ---- files of tokens ---- */

static size_t put16(uint8_t *to, size_t at, unsigned value) {
    to[at] = (uint8_t)value;
    to[at + 1] = (uint8_t)(value >> 8);
    return at + 2;
}

static size_t put32(uint8_t *to, size_t at, unsigned value) {
    return put16(to, put16(to, at, value & 0xFFFF), value >> 16);
}

/* llm.c's header for n tokens. */
static size_t put_header(uint8_t *to, unsigned magic, unsigned version, unsigned n) {
    memset(to, 0, 1024);
    put32(to, put32(to, put32(to, 0, magic), version), n);
    return 1024;
}

TEST_IN_FOLDER(reads_headers) {
    uint8_t bytes[2048];
    const int small[] = {50256, 1, 2, 3, 50000, 5}, large[] = {128255, 1, 70000, 3, 128000, 5};
    wf_data *data;
    size_t n = put_header(bytes, 20240520, 1, 6);
    for (int i = 0; i < 6; i++) n = put16(bytes, n, (unsigned)small[i]);
    folder_write(f, "toks.bin", bytes, n);
    assert_int_equal(open_as(f, "toks.bin", WF_FORMAT_AUTO, WF_TEXT_BYTES, 2, &data), WF_OK);
    assert_int_equal(wf_data_describe(data)->n_classes, 50257);
    assert_int_equal(wf_data_describe(data)->n_test, 0);
    check_tokens(data, WF_DATA_TRAIN, 2, small);
    wf_data_close(data);
    n = put_header(bytes, 20240801, 7, 6);
    for (int i = 0; i < 6; i++) n = put32(bytes, n, (unsigned)large[i]);
    folder_write(f, "toks.bin", bytes, n);
    assert_int_equal(open_as(f, "toks.bin", WF_FORMAT_AUTO, WF_TEXT_BYTES, 5, &data), WF_OK);
    assert_int_equal(wf_data_describe(data)->n_classes, 128256);
    check_tokens(data, WF_DATA_TRAIN, 1, large);
    wf_data_close(data);
}

TEST_IN_FOLDER(reads_folders_of_tokens) {
    uint8_t train[32], val[2048];
    size_t n = 0, n_val = put_header(val, 20240520, 1, 3);
    const int tokens[] = {7, 300, 50256, 0, 7}, others[] = {9, 8, 7};
    wf_data *data;
    for (int i = 0; i < 5; i++) n = put16(train, n, (unsigned)tokens[i]);
    for (int i = 0; i < 3; i++) n_val = put16(val, n_val, (unsigned)others[i]);
    folder_write(f, "train.bin", train, n);
    folder_write(f, "tiny_val.bin", val, n_val);
    assert_int_equal(open_as(f, "", WF_FORMAT_AUTO, WF_TEXT_BYTES, 2, &data), WF_OK);
    check_tokens(data, WF_DATA_TRAIN, 2, tokens);
    check_tokens(data, WF_DATA_TEST, 1, others);
    wf_data_close(data);
    /* Without a header it is only tokens where that is said, or in a folder. */
    refuse_tokens(f, "train.bin", WF_FORMAT_AUTO, 2, WF_CORRUPT,
                  "train.bin is not text: byte 1 is zero (--data-format tokens");
    assert_int_equal(open_as(f, "train.bin", WF_FORMAT_TOKENS, WF_TEXT_BYTES, 2, &data), WF_OK);
    check_tokens(data, WF_DATA_TRAIN, 2, tokens);
    wf_data_close(data);
    refuse_tokens(f, "", WF_FORMAT_TEXT, 2, WF_INVALID_ARG,
                  "is a folder; in the requested format, data is a file");
    refuse_tokens(f, "train.bin", WF_FORMAT_CIFAR, 2, WF_INVALID_ARG,
                  "is a file; in the requested format, data is a folder");
    folder_write(f, "other_train.bin", train, n);
    refuse_tokens(f, "", WF_FORMAT_AUTO, 2, WF_INVALID_ARG,
                  "other_train.bin and train.bin are not shards of one set");
}

/* In the order of their numbers, whatever that of their names is; samples cross from one to
 * another. */
TEST_IN_FOLDER(reads_shards_of_tokens) {
    uint8_t bytes[2048];
    const int tokens[] = {1, 2, 3, 4, 5, 6, 50256, 8, 9};
    static const char *const names[] = {"a_train_1.bin", "a_train_2.bin", "a_train_10.bin"};
    wf_data *data;
    for (int i = 0; i < 3; i++) {
        size_t n = put_header(bytes, 20240520, 1, 3);
        for (int k = 0; k < 3; k++) n = put16(bytes, n, (unsigned)tokens[3 * i + k]);
        folder_write(f, names[i], bytes, n);
    }
    folder_write(f, "a_val_000000.bin", bytes, put16(bytes, put_header(bytes, 20240520, 1, 1), 7));
    assert_int_equal(open_as(f, "", WF_FORMAT_AUTO, WF_TEXT_BYTES, 2, &data), WF_OK);
    check_tokens(data, WF_DATA_TRAIN, 4, tokens);
    wf_data_close(data);
    folder_write(f, "a_train_2.bin", bytes, put_header(bytes, 20240520, 1, 3));
    refuse_tokens(f, "", WF_FORMAT_AUTO, 2, WF_CORRUPT, "a_train_2.bin is truncated");
    folder_write(f, "a_train_2.bin", bytes, put_header(bytes, 20240801, 7, 0));
    refuse_tokens(f, "", WF_FORMAT_AUTO, 2, WF_CORRUPT,
                  "a_train_2.bin has tokens of 4 bytes, and the shards before 2");
    folder_write(f, "b_train_2.bin", bytes, 1024);
    refuse_tokens(f, "", WF_FORMAT_AUTO, 2, WF_INVALID_ARG,
                  "a_train_1.bin and b_train_2.bin are not shards of one set");
}

TEST_IN_FOLDER(refuses_bad_tokens) {
    uint8_t bytes[2048];
    size_t n = put16(bytes, put_header(bytes, 20240520, 1, 2), 12);
    n = put16(bytes, n, 50257);
    folder_write(f, "toks.bin", bytes, n);
    refuse_tokens(f, "toks.bin", WF_FORMAT_AUTO, 1, WF_CORRUPT,
                  "toks.bin: token 1, at byte 1026, is 50257, but the vocabulary has 50257");
    folder_write(f, "toks.bin", bytes, n - 1);
    refuse_tokens(f, "toks.bin", WF_FORMAT_AUTO, 1, WF_CORRUPT,
                  "at byte 8 it announces 2 tokens, which take 1028 bytes");
    folder_write(f, "toks.bin", bytes, 100);
    refuse_tokens(f, "toks.bin", WF_FORMAT_AUTO, 1, WF_CORRUPT,
                  "but has 100 bytes, fewer than the 1024 of their header");
    put_header(bytes, 20240520, 3, 2);
    folder_write(f, "toks.bin", bytes, n);
    refuse_tokens(f, "toks.bin", WF_FORMAT_AUTO, 1, WF_CORRUPT,
                  "tokens 20240520 have version 1, but byte 4 holds 3");
    folder_write(f, "toks.bin", "abc", 3);
    refuse_tokens(f, "toks.bin", WF_FORMAT_TOKENS, 1, WF_CORRUPT,
                  "3 bytes are not a whole number of tokens of 2 bytes");
    folder_write(f, "toks.bin", "ab", 2);
    refuse_tokens(f, "toks.bin", WF_FORMAT_TOKENS, 1, WF_INVALID_ARG,
                  "1 tokens to train on, samples of 1 need at least 2");
}
