/* Opening a data set by its name. */
#include "base/base.h"
#include "data/source.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>

#define FASHION_MNIST_FOLDER  "/usr/share/datasets/fashion-mnist"
#define FASHION_MNIST_PACKAGE "dataset-fashion-mnist"

/* Wide enough for any data set, narrow enough that products of three cannot overflow. */
#define MAX_SIZE (INT64_C(1) << 20)

static wf_status check_field(wf_context *ctx, const char *field, int64_t value, int64_t low,
                             int64_t high) {
    if (value >= low && value <= high) return WF_OK;
    return wfi_fail(ctx, WF_INVALID_ARG,
                    "data: %s is %" PRId64 ", but must be %" PRId64 " to %" PRId64, field, value,
                    low, high);
}

static wf_status check_config(wf_context *ctx, const wf_data_config *c) {
    WF_TRY(wfi_check_struct(ctx, c, sizeof *c, "wf_data_config"));
    if (!c->name || !*c->name) return wfi_fail(ctx, WF_INVALID_ARG, "data: no name is given");
    WF_TRY(check_field(ctx, "format", c->format, WF_FORMAT_AUTO, WF_FORMAT_BYTES));
    WF_TRY(check_field(ctx, "kind", c->kind, WF_DATA_IMAGES, WF_DATA_TOKENS));
    WF_TRY(check_field(ctx, "targets", c->targets, WF_TARGETS_LABELS, WF_TARGETS_ONE_HOT));
    WF_TRY(check_field(ctx, "text", c->text, WF_TEXT_BYTES, WF_TEXT_WORDS));
    WF_TRY(check_field(ctx, "normalize", c->normalize, WF_NORMALIZE_DEFAULT, WF_NORMALIZE_GIVEN));
    for (size_t k = 0; k < WFI_COUNT(c->std) && c->normalize == WF_NORMALIZE_GIVEN; k++)
        if (!isfinite(c->mean[k]) || !isfinite(c->std[k]) || !(c->std[k] > 0))
            return wfi_fail(ctx, WF_INVALID_ARG,
                            "data: pixels cannot be normalised by mean %g and deviation %g",
                            c->mean[k], c->std[k]);
    WF_TRY(check_field(ctx, "n_classes", c->n_classes, 0, INT32_MAX));
    for (int s = 0; s < 2; s++)
        WF_TRY(check_field(ctx, "n_streams", c->n_streams[s], 0, INT32_MAX));
    if (c->kind == WF_DATA_TOKENS) WF_TRY(check_field(ctx, "n_tokens", c->n_tokens, 1, MAX_SIZE));
    if (strcmp(c->name, "synthetic") != 0) return WF_OK;
    WF_TRY(check_field(ctx, "n_synthetic", c->n_synthetic, 1, INT64_C(1) << 40));
    if (c->kind == WF_DATA_TOKENS) return WF_OK;
    WF_TRY(check_field(ctx, "channels", c->channels, 1, MAX_SIZE));
    WF_TRY(check_field(ctx, "height", c->height, 1, MAX_SIZE));
    return check_field(ctx, "width", c->width, 1, MAX_SIZE);
}

/* ---- formats of folders and files ---- */

typedef struct format {
    wf_data_kind kind;
    bool is_folder, is_file;
    bool (*is_here)(const char *path); /* NULL: it is not looked for */
    wf_status (*open)(wf_data *data, const wf_data_config *config, const char *path);
} format;

/* In the order of detection; a file of no known format is text. */
static const format formats[] = {
    [WF_FORMAT_IMAGES] = {WF_DATA_IMAGES, true, false, wfi_pictures_is_here, wfi_pictures_open},
    [WF_FORMAT_MNIST] = {WF_DATA_IMAGES, true, false, wfi_mnist_is_here, wfi_mnist_open},
    [WF_FORMAT_CIFAR] = {WF_DATA_IMAGES, true, false, wfi_cifar_is_here, wfi_cifar_open},
    [WF_FORMAT_TEXT] = {WF_DATA_TOKENS, false, true, NULL, wfi_text_open},
    [WF_FORMAT_TOKENS] = {WF_DATA_TOKENS, true, true, wfi_tokens_is_here, wfi_tokens_open},
    [WF_FORMAT_BYTES] = {WF_DATA_TOKENS, false, true, NULL, wfi_text_open},
};

/* NULL: a folder without any. */
static const format *find_format(wf_data_format wanted, const char *path, bool is_folder) {
    if (wanted != WF_FORMAT_AUTO) return &formats[wanted];
    for (size_t f = 0; f < WFI_COUNT(formats); f++)
        if (formats[f].is_here && formats[f].is_here(path)) return &formats[f];
    return is_folder ? NULL : &formats[WF_FORMAT_TEXT];
}

wf_data_format wf_data_find_format(const char *path, wf_data_format wanted) {
    struct stat st;
    const format *found = find_format(wanted, path, stat(path, &st) == 0 && S_ISDIR(st.st_mode));
    return found ? (wf_data_format)(found - formats) : WF_FORMAT_AUTO;
}

static wf_status open_path(wf_data *data, const wf_data_config *config, const char *path,
                           bool is_folder) {
    bool is_plain = config->unlabelled && config->kind == WF_DATA_IMAGES &&
                    config->format == WF_FORMAT_AUTO && !wfi_mnist_is_here(path) &&
                    !wfi_cifar_is_here(path);
    if (is_plain) return wfi_pictures_open(data, config, path);
    const format *found = find_format(config->format, path, is_folder);
    if (!found)
        return wfi_fail(data->ctx, WF_INVALID_ARG,
                        "%s contains no data set: neither a folder train with a folder of pictures "
                        "for each class, MNIST's train-images-idx3-ubyte (or .gz) nor CIFAR-10's "
                        "data_batch_1.bin is in it, nor a file ...train.bin of tokens",
                        path);
    if (is_folder ? !found->is_folder : !found->is_file)
        return wfi_fail(data->ctx, WF_INVALID_ARG,
                        "%s is a %s; in the requested format, data is a %s", path,
                        is_folder ? "folder" : "file", is_folder ? "file" : "folder");
    if (config->kind != found->kind)
        return wfi_fail(data->ctx, WF_INVALID_ARG, "%s holds %s, but the model reads %s",
                        config->name, found->kind == WF_DATA_IMAGES ? "images" : "text",
                        found->kind == WF_DATA_IMAGES ? "tokens" : "images");
    return found->open(data, config, path);
}

static wf_status open_named(wf_data *data, const wf_data_config *config) {
    struct stat st;
    if (strcmp(config->name, "synthetic") == 0) return wfi_synthetic_open(data, config);
    if (strcmp(config->name, "fashion-mnist") == 0) {
        if (!wfi_mnist_is_here(FASHION_MNIST_FOLDER))
            return wfi_fail(data->ctx, WF_IO,
                            "fashion-mnist is not in %s: install the Debian package %s, or name a "
                            "folder that holds its files",
                            FASHION_MNIST_FOLDER, FASHION_MNIST_PACKAGE);
        return open_path(data, config, FASHION_MNIST_FOLDER, true);
    }
    if (stat(config->name, &st) != 0)
        return wfi_fail(
            data->ctx, strpbrk(config->name, "/.") ? WF_IO : WF_INVALID_ARG,
            "there is no data set and no file called %s; known are synthetic, "
            "fashion-mnist, a folder of pictures, in MNIST's or CIFAR-10's binary layout, a text "
            "file, and files of tokens",
            config->name);
    return open_path(data, config, config->name, S_ISDIR(st.st_mode));
}

void *wfi_data_own(wf_data *data, const wfi_source *source, size_t bytes, const char *what) {
    data->state = wfi_alloc(data->ctx, 1, bytes, what);
    if (data->state) data->source = source;
    return data->state;
}

wf_status wf_data_open(wf_context *ctx, const wf_data_config *config, wf_data **data_out) {
    if (!config || !data_out) return wfi_fail(ctx, WF_INVALID_ARG, "data: an argument is NULL");
    WF_TRY(check_config(ctx, config));
    wf_data *data = wfi_alloc(ctx, 1, sizeof *data, "a data set");
    if (!data) return WF_NO_MEMORY;
    data->ctx = ctx;
    data->seed = config->seed;
    for (size_t c = 0; c < WFI_COUNT(data->about.std); c++) data->about.std[c] = 1;
    wf_status status = open_named(data, config);
    if (status != WF_OK) {
        wf_data_close(data);
        return status;
    }
    wf_data_description *about = &data->about;
    about->x_bytes = (size_t)wf_shape_n_elem(&about->x_shape) * wf_dtype_bytes(about->x_dtype);
    about->y_bytes = (size_t)wf_shape_n_elem(&about->y_shape) * wf_dtype_bytes(about->y_dtype);
    *data_out = data;
    return WF_OK;
}

void wf_data_close(wf_data *data) {
    if (!data) return;
    if (data->source) data->source->close(data);
    wf_tokenizer_destroy(data->own_tokenizer);
    wfi_free(data->ctx, data);
}

const wf_tokenizer *wf_data_tokenizer(const wf_data *data) {
    return data->tokenizer;
}

const char *wf_data_class_name(const wf_data *data, int64_t i) {
    return data->classes && i >= 0 && i < data->about.n_classes ? data->classes[i] : NULL;
}

const char *wf_data_sample_name(const wf_data *data, wf_data_split split, int64_t i) {
    int64_t n = split == WF_DATA_TRAIN ? data->about.n_train : data->about.n_test;
    bool is_there = data->source->sample_name && i >= 0 && i < n;
    return is_there ? data->source->sample_name(data, split, i) : NULL;
}

const wf_data_description *wf_data_describe(const wf_data *data) {
    return &data->about;
}
