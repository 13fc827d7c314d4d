/* The recipe without a plan: its checks, and the division of its samples. Private. */
#pragma once

#include "base/base.h"

#include <weft/recipe.h>

/* The first sample of microbatch `micro` of a step: if the microbatches do not divide its
 * samples, the last ones are a sample smaller. */
static inline int64_t wfi_first_sample(int64_t n_samples, int64_t n_micro, int64_t micro) {
    return micro * (n_samples / n_micro) + wfi_min_i64(micro, n_samples % n_micro);
}

/* Errors: INVALID_ARG: a field is outside its limits, or two do not go together. */
wf_status wfi_recipe_check(wf_context *ctx, const wf_recipe *r);
