/* Parts of pictures, made larger or smaller: bilinear with a filter as wide as the scale asks for,
 * in fixed point, along rows and then along columns, bit by bit as the Python Imaging Library does
 * it. Private. */
#pragma once

#include "data/picture.h"

typedef struct wfi_box {
    int64_t x, y, width, height;
} wfi_box;

/* The `part` of the picture becomes to_width x to_height; of that the `window` is written, RGB in
 * rows, to dst. Errors: NO_MEMORY. */
wf_status wfi_picture_resize(wf_context *ctx, const wfi_picture *picture, wfi_box part,
                             int64_t to_width, int64_t to_height, wfi_box window, uint8_t *dst);
