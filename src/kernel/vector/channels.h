/* Batch norm of images in blocks of 16 channels (C16), fused with an addend and a ReLU. Private.
 *
 * A call computes one block of channels, independently of the others. All variants give the same
 * bits.
 */
#pragma once

#include "base/variants.h"

#include <stdbool.h>
#include <stdint.h>

#define WFI_BLOCK_CHANNELS 16

/* n images of n_pixels, each pixel with 16 adjacent channels, `step` elements from image to image:
 * F32 or BF16. Values per channel are F32. */
typedef struct wfi_channels {
    int64_t n, n_pixels, step;
    bool is_narrow;
    bool relu;
    double eps;
    const void *x, *addend; /* addend: NULL, if there is none */
    void *y;                /* may be x or addend; backward reads it, where there is an addend */
    const float *scale, *shift;
    float *mean, *var; /* backward reads them */
    const void *dy;
    void *dx, *daddend; /* dx: may be dy; daddend: NULL, if there is none */
    float *dscale, *dshift;
} wfi_channels;

/* x, scale, shift, addend -> y, mean, var */
void wfi_channels_normalize(wfi_variant variant, const wfi_channels *c);
/* dy, x, mean, var, scale -> dx, dscale, dshift. With an addend, the ReLU's mask comes from y, and
 * daddend is written too; otherwise the mask is recomputed from shift. */
void wfi_channels_differentiate(wfi_variant variant, const wfi_channels *c);
