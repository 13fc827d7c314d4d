/* Augmentation: small random changes of a training image. Private. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Pixel (y, x) of the new image is pixel (y + down, x' + right) of the old one, where x'
 * is x, or width - 1 - x if flipped; black where there is no such pixel. */
typedef struct wfi_augment {
    int64_t down, right;
    bool flip;
} wfi_augment;

/* A function of its arguments alone. `max_shift` is in pixels. */
wfi_augment wfi_augment_make(uint64_t seed, int64_t epoch, int64_t sample, int64_t max_shift,
                             bool may_flip);

/* One channel: src and dst are [height, width]; value_of gives each pixel's float. */
void wfi_augment_apply(wfi_augment change, const uint8_t *src, int64_t height, int64_t width,
                       const float value_of[256], float *dst);
