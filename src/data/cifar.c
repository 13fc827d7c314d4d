#include "data/cifar.h"
#include "base/base.h"
#include "base/file.h"
#include "data/images.h"

#include <limits.h>
#include <stdio.h>

#define N_TRAIN_FILES 5
#define SIDE          32
#define CHANNELS      3

wf_status wfi_cifar_parse(wf_context *ctx, const char *path, const uint8_t *bytes, size_t n_bytes,
                          int64_t *n_records_out) {
    if (n_bytes == 0) return wfi_fail(ctx, WF_CORRUPT, "%s is empty", path);
    if (n_bytes % WFI_CIFAR_RECORD_BYTES != 0)
        return wfi_fail(
            ctx, WF_CORRUPT,
            "%s is truncated or not a CIFAR-10 file: %zu bytes are %zu records of %d and %zu bytes",
            path, n_bytes, n_bytes / WFI_CIFAR_RECORD_BYTES, WFI_CIFAR_RECORD_BYTES,
            n_bytes % WFI_CIFAR_RECORD_BYTES);
    int64_t n = (int64_t)(n_bytes / WFI_CIFAR_RECORD_BYTES);
    WF_TRY(wfi_labels_check(ctx, path, bytes, WFI_CIFAR_RECORD_BYTES, n, WFI_CIFAR_CLASSES));
    *n_records_out = n;
    return WF_OK;
}

/* File i of a split: 0 to 4 of the training one, 0 of the other. */
static bool find_file(const char *folder, int s, int i, char path[PATH_MAX]) {
    int n = s == WF_DATA_TRAIN ? snprintf(path, PATH_MAX, "%s/data_batch_%d.bin", folder, i + 1)
                               : snprintf(path, PATH_MAX, "%s/test_batch.bin", folder);
    return n > 0 && n < PATH_MAX && wfi_file_exists(path);
}

bool wfi_cifar_is_here(const char *folder) {
    char path[PATH_MAX];
    for (int i = 0; i < N_TRAIN_FILES; i++)
        if (find_file(folder, WF_DATA_TRAIN, i, path)) return true;
    return false;
}

/* All files of a split, one after the other in one block. */
static wf_status load_split(wf_context *ctx, const char *folder, int s, wfi_image_split *split) {
    int n_files = s == WF_DATA_TRAIN ? N_TRAIN_FILES : 1;
    size_t n_bytes[N_TRAIN_FILES] = {0}, total_bytes = 0;
    char path[PATH_MAX];
    for (int i = 0; i < n_files; i++) {
        if (!find_file(folder, s, i, path)) continue;
        WF_TRY(wfi_file_size(ctx, path, &n_bytes[i]));
        total_bytes += n_bytes[i];
    }
    if (!total_bytes && s == WF_DATA_TEST && !wfi_file_exists(path)) return WF_OK;
    uint8_t *block = wfi_alloc(ctx, total_bytes ? total_bytes : 1, 1, folder);
    if (!block) return WF_NO_MEMORY;
    split->owned[0] = block;
    size_t at = 0;
    for (int i = 0; i < n_files; i++) {
        if (!find_file(folder, s, i, path)) continue;
        int64_t n_records;
        WF_TRY(wfi_file_read_into(ctx, path, block + at, n_bytes[i]));
        WF_TRY(wfi_cifar_parse(ctx, path, block + at, n_bytes[i], &n_records));
        at += n_bytes[i];
        split->n += n_records;
    }
    split->labels = block;
    split->pixels = block + 1;
    split->label_stride = split->pixel_stride = WFI_CIFAR_RECORD_BYTES;
    return WF_OK;
}

wf_status wfi_cifar_open(wf_data *data, const wf_data_config *config, const char *folder) {
    wfi_images *images;
    WF_TRY(wfi_images_create(data, &images));
    images->channels = CHANNELS;
    images->height = images->width = SIDE;
    images->flip = true;
    WF_TRY(load_split(data->ctx, folder, WF_DATA_TRAIN, &images->split[WF_DATA_TRAIN]));
    WF_TRY(load_split(data->ctx, folder, WF_DATA_TEST, &images->split[WF_DATA_TEST]));
    wfi_images_finish(data, config, WFI_CIFAR_CLASSES);
    return WF_OK;
}
