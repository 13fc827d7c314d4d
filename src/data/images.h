/* Image sets: decoded bytes in memory, turned into floats when a sample is asked for.
 * Private. */
#pragma once

#include "data/source.h"

#define WFI_MAX_CHANNELS 3

/* One split. Image i begins at pixels + i * pixel_stride, [channels, height, width]; its
 * label is at labels + i * label_stride. */
typedef struct wfi_image_split {
    void *owned[2]; /* freed by close */
    const uint8_t *pixels, *labels;
    size_t pixel_stride, label_stride;
    int64_t n;
} wfi_image_split;

typedef struct wfi_images {
    wfi_image_split split[2]; /* by wf_data_split; n 0: not there */
    int64_t channels, height, width;
    bool flip;                             /* whether a flipped image still belongs to its class */
    float value_of[WFI_MAX_CHANNELS][256]; /* value of each byte of a pixel */
} wfi_images;

/* Makes an empty set the state of `data`. */
wf_status wfi_images_create(wf_data *data, wfi_images **images_out);

/* Errors: CORRUPT (a label is not below n_classes; the sentence says which). */
wf_status wfi_labels_check(wf_context *ctx, const char *path, const uint8_t *labels, size_t stride,
                           int64_t n, int64_t n_classes);

/* Describes a set of images with labels whose means and deviations are set, and fills the value of
 * each byte of a pixel, by channel. */
void wfi_images_describe(wf_data *data, int64_t channels, int64_t height, int64_t width,
                         float value_of[][256]);

/* When both splits and the sizes are set: normalisation and description. */
void wfi_images_finish(wf_data *data, const wf_data_config *config, int64_t n_classes);
