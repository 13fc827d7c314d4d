/* CIFAR-10's binary layout.
 *
 * label: serial
 */
#include "data_folder.h"

#include "data/cifar.h"

#define RECORD WFI_CIFAR_RECORD_BYTES

/* Sample i of a file that starts at `first` has label (first + i) % 10; its pixels in
 * channel c are first + i + 50 c. */
static void write_batch(folder *f, const char *name, int first, int n, size_t cut) {
    uint8_t *bytes = malloc((size_t)n * RECORD);
    assert_non_null(bytes);
    for (int i = 0; i < n; i++) {
        uint8_t *record = bytes + (size_t)i * RECORD;
        record[0] = (uint8_t)((first + i) % 10);
        for (int c = 0; c < 3; c++) memset(record + 1 + 1024 * c, first + i + 50 * c, 1024);
    }
    folder_write(f, name, bytes, (size_t)n * RECORD - cut);
    free(bytes);
}

static wf_status open_set(folder *f, wf_data **data_out) {
    wf_data_config config = WF_DATA_CONFIG_INIT;
    config.name = f->path;
    config.normalize = WF_NORMALIZE_NONE;
    return wf_data_open(f->ctx, &config, data_out);
}

static void check_split(wf_data *data, wf_data_split split, const int *number, int n) {
    wf_loader_config order = WF_LOADER_CONFIG_INIT;
    order.split = split;
    order.batch = n;
    order.shuffle = 0;
    scoped_loader loader;
    const wf_batch *batch;
    assert_int_equal(wf_loader_create(data, &order, &loader), WF_OK);
    assert_int_equal(wf_loader_next(loader, &batch), WF_OK);
    assert_int_equal(batch->n_samples, n);
    for (int i = 0; i < n; i++) {
        assert_int_equal(((const int32_t *)batch->y)[i], number[i] % 10);
        for (int p = 0; p < 3 * 1024; p++)
            assert_true(((const float *)batch->x)[i * 3 * 1024 + p] ==
                        (float)(number[i] + 50 * (p / 1024)) / 255.0f);
    }
}

TEST_IN_FOLDER(opens_some_batches) {
    scoped_data data;
    write_batch(f, "data_batch_2.bin", 0, 3, 0);
    write_batch(f, "data_batch_5.bin", 20, 2, 0);
    write_batch(f, "test_batch.bin", 40, 2, 0);
    assert_int_equal(open_set(f, &data), WF_OK);
    const wf_data_description *about = wf_data_describe(data);
    assert_int_equal(about->channels, 3);
    assert_int_equal(about->height, 32);
    assert_int_equal(about->n_train, 5);
    assert_int_equal(about->n_test, 2);
    check_split(data, WF_DATA_TRAIN, (int[]){0, 1, 2, 20, 21}, 5);
    check_split(data, WF_DATA_TEST, (int[]){40, 41}, 2);
}

TEST_IN_FOLDER(refuses_bad_files) {
    wf_data *data;
    uint8_t *record = calloc(1, RECORD);
    assert_non_null(record);
    write_batch(f, "data_batch_1.bin", 0, 3, 1);
    expect_failure(
        f->ctx, open_set(f, &data), WF_CORRUPT,
        "data_batch_1.bin is truncated or not a CIFAR-10 file: 9218 bytes are 2 records of "
        "3073 and 3072 bytes");
    folder_write(f, "data_batch_1.bin", "", 0);
    expect_failure(f->ctx, open_set(f, &data), WF_CORRUPT, "data_batch_1.bin is empty");
    record[0] = 10;
    folder_write(f, "data_batch_1.bin", record, RECORD);
    expect_failure(f->ctx, open_set(f, &data), WF_CORRUPT, "the label of sample 0 is 10");
    write_batch(f, "data_batch_1.bin", 0, 3, 0);
    folder_write(f, "test_batch.bin", "", 0);
    expect_failure(f->ctx, open_set(f, &data), WF_CORRUPT, "test_batch.bin is empty");
    free(record);
}
