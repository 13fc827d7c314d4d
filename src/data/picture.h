/* JPEG and PNG, decoded as the Python Imaging Library's convert("RGB") does: alpha is left out,
 * palettes and grey become RGB, of 16 bits the upper 8 count, CMYK is Adobe's; the orientation in
 * EXIF is ignored. The sizes in a file's header are not trusted. Private. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weft/context.h>

/* A picture of more is refused before it is decoded, as a bomb: the bound from which that library
 * warns of one. */
#define WFI_PICTURE_MAX_PIXELS 89478485

typedef struct wfi_picture {
    int64_t width, height;
    uint8_t *rgb; /* [height, width, 3] */
} wfi_picture;

/* `path` is for sentences. Free rgb with wfi_free. Errors: CORRUPT (it is neither, truncated,
 * damaged or too large), NO_MEMORY. */
wf_status wfi_picture_decode(wf_context *ctx, const char *path, const uint8_t *bytes,
                             size_t n_bytes, wfi_picture *picture_out);
