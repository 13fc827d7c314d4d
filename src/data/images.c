#include "data/images.h"
#include "base/base.h"
#include "data/augment.h"

#include <inttypes.h>
#include <math.h>

static wf_status images_fill(const wf_data *data, const wfi_sample *sample, void *x, void *y) {
    const wfi_images *images = data->state;
    const wfi_image_split *split = &images->split[sample->split];
    int64_t plane = images->height * images->width;
    const uint8_t *pixels = split->pixels + (size_t)sample->index * split->pixel_stride;
    /* 4 pixels is the habit for CIFAR's 32 x 32; MNIST's 28 x 28 have narrower margins. */
    int64_t max_shift = wfi_min_i64(images->height, images->width) < 32 ? 2 : 4;
    wfi_augment change = {0, 0, false};
    if (sample->augment)
        change =
            wfi_augment_make(data->seed, sample->epoch, sample->index, max_shift, images->flip);
    for (int64_t c = 0; c < images->channels; c++)
        wfi_augment_apply(change, pixels + c * plane, images->height, images->width,
                          images->value_of[c], (float *)x + c * plane);
    *(int32_t *)y = split->labels[(size_t)sample->index * split->label_stride];
    return WF_OK;
}

static void images_hash(const wf_data *data, wfi_data_hash *hash) {
    const wfi_images *images = data->state;
    size_t n_pixels = (size_t)(images->channels * images->height * images->width);
    wfi_data_hash_number(hash, images->flip);
    for (int s = 0; s < 2; s++) {
        const wfi_image_split *split = &images->split[s];
        for (int64_t i = 0; i < split->n; i++) {
            wfi_data_hash_add(hash, split->pixels + (size_t)i * split->pixel_stride, n_pixels);
            wfi_data_hash_add(hash, split->labels + (size_t)i * split->label_stride, 1);
        }
    }
}

static void images_close(wf_data *data) {
    wfi_images *images = data->state;
    for (int s = 0; s < 2; s++)
        for (int i = 0; i < 2; i++) wfi_free(data->ctx, images->split[s].owned[i]);
    wfi_free(data->ctx, images);
}

static const wfi_source images_source = {images_fill, images_hash, images_close, NULL};

wf_status wfi_images_create(wf_data *data, wfi_images **images_out) {
    *images_out = wfi_data_own(data, &images_source, sizeof **images_out, "an image set");
    return *images_out ? WF_OK : WF_NO_MEMORY;
}

wf_status wfi_labels_check(wf_context *ctx, const char *path, const uint8_t *labels, size_t stride,
                           int64_t n, int64_t n_classes) {
    for (int64_t i = 0; i < n; i++) {
        int label = labels[(size_t)i * stride];
        if (label >= n_classes)
            return wfi_fail(ctx, WF_CORRUPT,
                            "%s: the label of sample %" PRId64 " is %d, but there are %" PRId64
                            " classes, 0 to %" PRId64,
                            path, i, label, n_classes, n_classes - 1);
    }
    return WF_OK;
}

/* Mean and standard deviation of pixel / 255 over a channel of the training images. Counting pixel
 * values first makes the sums exact in any order. */
static void measure(const wfi_images *images, int64_t channel, double *mean_out, double *std_out) {
    const wfi_image_split *split = &images->split[WF_DATA_TRAIN];
    int64_t plane = images->height * images->width;
    uint64_t count[256] = {0}, sum = 0;
    for (int64_t i = 0; i < split->n; i++) {
        const uint8_t *pixels = split->pixels + (size_t)i * split->pixel_stride + channel * plane;
        for (int64_t p = 0; p < plane; p++) count[pixels[p]]++;
    }
    for (uint64_t v = 0; v < 256; v++) sum += count[v] * v;
    double n = (double)split->n * (double)plane, mean = (double)sum / n, squares = 0;
    for (int v = 0; v < 256; v++) squares += (double)count[v] * (v - mean) * (v - mean);
    *mean_out = mean / 255;
    *std_out = sqrt(squares / n) / 255;
    if (*std_out == 0) *std_out = 1; /* all pixels are equal */
}

/* Drops the set's labels, which are not used: the model may have other classes. */
static void drop_labels(wfi_images *images) {
    static const uint8_t none;
    for (int s = 0; s < 2; s++) {
        images->split[s].labels = &none;
        images->split[s].label_stride = 0;
    }
}

void wfi_images_describe(wf_data *data, int64_t channels, int64_t height, int64_t width,
                         float value_of[][256]) {
    wf_data_description *about = &data->about;
    about->kind = WF_DATA_IMAGES;
    about->targets = WF_TARGETS_LABELS;
    about->x_dtype = WF_F32;
    about->y_dtype = WF_I32;
    about->channels = channels;
    about->height = height;
    about->width = width;
    about->x_shape = WF_SHAPE(channels, height, width);
    about->y_shape = WF_SCALAR;
    for (int64_t c = 0; c < channels; c++)
        for (int v = 0; v < 256; v++)
            value_of[c][v] = ((float)v / 255.0f - (float)about->mean[c]) / (float)about->std[c];
}

void wfi_images_finish(wf_data *data, const wf_data_config *config, int64_t n_classes) {
    wfi_images *images = data->state;
    wf_data_description *about = &data->about;
    if (config->unlabelled) drop_labels(images);
    for (int64_t c = 0; c < images->channels; c++) {
        double mean = 0, std = 1;
        if (config->normalize == WF_NORMALIZE_DEFAULT) measure(images, c, &mean, &std);
        if (config->normalize == WF_NORMALIZE_GIVEN) mean = config->mean[c], std = config->std[c];
        about->mean[c] = mean;
        about->std[c] = std;
    }
    wfi_images_describe(data, images->channels, images->height, images->width, images->value_of);
    about->n_classes = config->unlabelled && config->n_classes ? config->n_classes : n_classes;
    about->n_train = images->split[WF_DATA_TRAIN].n;
    about->n_test = images->split[WF_DATA_TEST].n;
}
