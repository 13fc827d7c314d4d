/* Text files: as bytes, as words, split in two, shifted by one. */
#include "data_folder.h"

#include "base/base.h"
#include "data/words.h"
#include <weft/data.h>

static wf_status open_text(folder *f, wf_data_text text, int64_t n_tokens, wf_data **data_out) {
    wf_data_config config = WF_DATA_CONFIG_INIT;
    config.name = folder_file(f, "text");
    config.kind = WF_DATA_TOKENS;
    config.text = text;
    config.n_tokens = n_tokens;
    return wf_data_open(f->ctx, &config, data_out);
}

static void check_tokens(wf_data *data, wf_data_split split, int64_t n_samples, const int *tokens) {
    wf_loader_config order = WF_LOADER_CONFIG_INIT;
    order.split = split;
    order.batch = 100;
    order.shuffle = 0;
    wf_loader *loader;
    const wf_batch *batch;
    int64_t n = n_samples * wf_data_describe(data)->n_tokens;
    assert_int_equal(wf_loader_create(data, &order, &loader), WF_OK);
    assert_int_equal(wf_loader_next(loader, &batch), WF_OK);
    assert_int_equal(batch->n_samples, n_samples);
    for (int64_t i = 0; i < n; i++) {
        assert_int_equal(((const int32_t *)batch->x)[i], tokens[i]);
        assert_int_equal(((const int32_t *)batch->y)[i], tokens[i + 1]);
    }
    wf_loader_destroy(loader);
}

static void reads_bytes(void **state) {
    folder *f = *state;
    char text[100];
    int tokens[100];
    wf_data *data;
    for (int i = 0; i < 100; i++) tokens[i] = (unsigned char)(text[i] = (char)(i * 5));
    folder_write(f, "text", text, sizeof text);
    assert_int_equal(open_text(f, WF_TEXT_BYTES, 4, &data), WF_OK);
    const wf_data_description *about = wf_data_describe(data);
    assert_int_equal(about->kind, WF_DATA_TOKENS);
    assert_int_equal(about->n_classes, 256);
    assert_int_equal(about->n_train, 22); /* of 90 bytes the last is only a label */
    assert_int_equal(about->n_test, 2);
    assert_int_equal(about->x_bytes, 16);
    check_tokens(data, WF_DATA_TRAIN, 22, tokens);
    check_tokens(data, WF_DATA_TEST, 2, tokens + 90);
    wf_data_close(data);
}

static void reads_words(void **state) {
    folder *f = *state;
    wf_data *data;
    const char text[] = "a rose  is a\trose\n\nis <eos> A";
    folder_write(f, "text", text, strlen(text));
    assert_int_equal(open_text(f, WF_TEXT_WORDS, 2, &data), WF_OK);
    assert_int_equal(wf_data_describe(data)->n_classes, 5);
    assert_int_equal(wf_data_describe(data)->n_train, 4); /* 10 words, one of them to test */
    check_tokens(data, WF_DATA_TRAIN, 4, (int[]){0, 1, 2, 0, 1, 3, 3, 2, 3});
    wf_data_close(data);
}

static void numbers_many_words(void **state) {
    folder *f = *state;
    enum { N = 20000 };
    char *text = malloc(2 * N * 8);
    int32_t *tokens;
    int64_t n_tokens, n_words;
    size_t n = 0;
    assert_non_null(text);
    for (int i = 0; i < 2 * N; i++) n += (size_t)sprintf(text + n, "w%d ", i % N);
    assert_int_equal(
        wfi_words_number(f->ctx, "x", (const uint8_t *)text, n, &tokens, &n_tokens, &n_words),
        WF_OK);
    assert_int_equal(n_words, N);
    assert_int_equal(n_tokens, 2 * N);
    for (int i = 0; i < 2 * N; i++) assert_int_equal(tokens[i], i % N);
    wfi_free(f->ctx, tokens);
    free(text);
}

static void refuses_short_texts(void **state) {
    folder *f = *state;
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

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST_IN_FOLDER(reads_bytes),
        TEST_IN_FOLDER(reads_words),
        TEST_IN_FOLDER(numbers_many_words),
        TEST_IN_FOLDER(refuses_short_texts),
    };
    return cmocka_run_group_tests_name("data_text", tests, NULL, NULL);
}
