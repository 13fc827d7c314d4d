/* JPEG and PNG. Larger pictures than some are left to the bound that the header has to keep. */
#include "base/base.h"
#include "data/resize.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes) {
    wf_context *ctx;
    wfi_picture picture;
    uint8_t image[8 * 8 * 3];
    if (wf_context_create(NULL, &ctx) != WF_OK) return 0;
    if (wfi_picture_decode(ctx, "input", bytes, n_bytes, &picture) == WF_OK) {
        const wfi_box whole = {0, 0, picture.width, picture.height};
        if (picture.width < 1 || picture.height > WFI_PICTURE_MAX_PIXELS / picture.width) abort();
        if (wfi_picture_resize(ctx, &picture, whole, 8, 8, (wfi_box){0, 0, 8, 8}, image) != WF_OK)
            abort();
        wfi_free(ctx, picture.rgb);
    }
    if (wf_context_memory(ctx).n_live) abort();
    wf_context_destroy(ctx);
    return 0;
}
