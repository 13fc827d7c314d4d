/* Finding a model's weights in a file that another program wrote. Private.
 *
 * A name fits if it is equal, or equal after the prefixes `module.` (PyTorch's data
 * parallel wrappers), `_orig_mod.` (torch.compile) and `transformer.` (Hugging Face's
 * GPT-2 with a head) are taken off both. Mask buffers (`.attn.bias`,
 * `.attn.masked_bias`) are passed over, and `lm_head.weight` where the model ties it to
 * `wte.weight`; `num_batches_tracked` may be missing.
 */
#pragma once

#include <weft/checkpoint.h>

typedef struct wfi_wanted {
    const char *name;
    wf_dtype dtype;
    wf_shape shape;
} wfi_wanted;

/* The name without those prefixes. */
const char *wfi_bare_name(const char *name);

/* index_out[i] becomes the number of the file's tensor for wanted[i], or -1 if it is
 * missing and may be, or one of the names in `skip` (base/names.h; NULL: none), which the file may
 * have in any shape. Errors: INVALID_ARG (`skip` names nothing of the model), SHAPE (the sentence
 * counts the missing and unexpected names and lists up to ten of each, or gives both dtypes or
 * shapes), IO, NO_MEMORY. */
wf_status wfi_match_weights(wf_context *ctx, const wf_safetensors *file, const wfi_wanted *wanted,
                            int n_wanted, const char *skip, int *index_out);
