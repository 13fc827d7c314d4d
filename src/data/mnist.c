/* Folders in MNIST's layout: for each split one IDX file of images and one of labels. */
#include "base/base.h"
#include "base/file.h"
#include "data/gzip.h"
#include "data/idx.h"
#include "data/images.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

static const char *const image_stem[2] = {"train-images", "t10k-images"};
static const char *const label_stem[2] = {"train-labels", "t10k-labels"};

/* "train-images" and 3 dims: train-images-idx3-ubyte, or with a dot as in some copies,
 * packed or not. Gives the path of the one that is there. */
static bool find_file(const char *folder, const char *stem, int n_dims, char path[PATH_MAX]) {
    for (int variant = 0; variant < 4; variant++) {
        int n = snprintf(path, PATH_MAX, "%s/%s%cidx%d-ubyte%s", folder, stem,
                         variant & 1 ? '.' : '-', n_dims, variant & 2 ? ".gz" : "");
        if (n > 0 && n < PATH_MAX && wfi_file_exists(path)) return true;
    }
    return false;
}

bool wfi_mnist_is_here(const char *folder) {
    char path[PATH_MAX];
    return find_file(folder, image_stem[WF_DATA_TRAIN], 3, path);
}

/* The file's bytes, unpacked if need be; the caller frees *owned_out, also after an error. */
static wf_status load(wf_context *ctx, const char *path, int n_dims, void **owned_out,
                      wfi_idx *idx_out) {
    uint8_t *bytes;
    size_t n_bytes;
    WF_TRY(wfi_file_read(ctx, path, &bytes, &n_bytes));
    size_t n_path = strlen(path);
    if (n_path > 3 && strcmp(path + n_path - 3, ".gz") == 0) {
        uint8_t *packed = bytes;
        wf_status status = wfi_gzip_unpack(ctx, path, packed, n_bytes, wfi_idx_head_bytes(n_dims),
                                           wfi_idx_announced, &n_dims, &bytes, &n_bytes);
        wfi_free(ctx, packed);
        if (status != WF_OK) return status;
    }
    *owned_out = bytes;
    return wfi_idx_parse(ctx, path, bytes, n_bytes, n_dims, idx_out);
}

/* n_classes 0: labels may be any. */
static wf_status load_split(wf_context *ctx, const char *folder, int s, int64_t n_classes,
                            wfi_images *images) {
    char image_path[PATH_MAX], label_path[PATH_MAX];
    bool has_images = find_file(folder, image_stem[s], 3, image_path);
    bool has_labels = find_file(folder, label_stem[s], 1, label_path);
    if (!has_images && !has_labels && s == WF_DATA_TEST) return WF_OK; /* a set without tests */
    if (!has_images || !has_labels)
        return wfi_fail(ctx, WF_IO, "%s has no file %s-idx%d-ubyte, with or without .gz", folder,
                        has_images ? label_stem[s] : image_stem[s], has_images ? 1 : 3);
    wfi_image_split *split = &images->split[s];
    wfi_idx pixels, labels;
    WF_TRY(load(ctx, image_path, 3, &split->owned[0], &pixels));
    WF_TRY(load(ctx, label_path, 1, &split->owned[1], &labels));
    if (pixels.dim[0] != labels.dim[0])
        return wfi_fail(ctx, WF_CORRUPT, "%s holds %" PRId64 " images, but %s %" PRId64 " labels",
                        image_path, pixels.dim[0], label_path, labels.dim[0]);
    if (s == WF_DATA_TRAIN) {
        images->height = pixels.dim[1];
        images->width = pixels.dim[2];
    } else if (pixels.dim[1] != images->height || pixels.dim[2] != images->width) {
        return wfi_fail(ctx, WF_CORRUPT,
                        "%s holds images of %" PRId64 " x %" PRId64
                        ", but those to train on are %" PRId64 " x %" PRId64,
                        image_path, pixels.dim[1], pixels.dim[2], images->height, images->width);
    }
    split->pixels = pixels.values;
    split->labels = labels.values;
    split->pixel_stride = (size_t)(pixels.dim[1] * pixels.dim[2]);
    split->label_stride = 1;
    split->n = pixels.dim[0];
    return n_classes ? wfi_labels_check(ctx, label_path, labels.values, 1, labels.dim[0], n_classes)
                     : WF_OK;
}

static const char *const clothes[] = {"T-shirt/top", "trouser", "pullover", "dress", "coat",
                                      "sandal",      "shirt",   "sneaker",  "bag",   "ankle boot"};

/* Clothes may be flipped, digits may not. Only the folder's name tells them apart. */
static bool holds_clothes(const char *folder) {
    size_t n = strlen(folder);
    while (n && folder[n - 1] == '/') n--;
    static const char name[] = "fashion-mnist";
    size_t n_name = sizeof name - 1;
    return n >= n_name && memcmp(folder + n - n_name, name, n_name) == 0;
}

wf_status wfi_mnist_open(wf_data *data, const wf_data_config *config, const char *folder) {
    int64_t n_classes = config->n_classes ? config->n_classes : 10,
            n_labels = config->unlabelled ? 0 : n_classes;
    wfi_images *images;
    WF_TRY(wfi_images_create(data, &images));
    images->channels = 1;
    images->flip = holds_clothes(folder);
    WF_TRY(load_split(data->ctx, folder, WF_DATA_TRAIN, n_labels, images));
    WF_TRY(load_split(data->ctx, folder, WF_DATA_TEST, n_labels, images));
    wfi_images_finish(data, config, n_classes);
    if (images->flip && n_classes == (int64_t)WFI_COUNT(clothes)) data->classes = clothes;
    return WF_OK;
}
