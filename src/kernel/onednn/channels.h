/* Batch norm of images that are held in blocks of 16 channels (C16), with what stands behind it: an
 * addend, a ReLU. Private.
 *
 * A block of channels is one call, which knows nothing of the others. All variants give the same
 * bits.
 */
#ifndef WFI_ONEDNN_CHANNELS_H
#define WFI_ONEDNN_CHANNELS_H

#include "base/variants.h"

#include <stdbool.h>
#include <stdint.h>

#define WFI_BLOCK_CHANNELS 16

/* Of each image n_pixels of 16 channels side by side, the next one's `step` elements further on:
 * F32, or BF16. What has one number a channel is F32. */
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
/* dy, x, mean, var, scale -> dx, dscale, dshift. What a ReLU let through follows, with an addend,
 * from y, which gives daddend, too; otherwise it is computed again, from shift. */
void wfi_channels_differentiate(wfi_variant variant, const wfi_channels *c);

#endif
