/* Sets of tokens: one row of numbers a split. Sample i of n_tokens T reads tokens [i T, i T + T)
 * and is asked for those one place later; of S streams, tokens [i / S T, ...) of stream i % S.
 * Private. */
#pragma once

#include "data/source.h"

typedef struct wfi_tokens {
    void *owned[2];        /* freed by close */
    const uint8_t *at[2];  /* by wf_data_split; numbers without a sign, in the host's byte order */
    int64_t n[2];          /* tokens */
    size_t width_bytes[2]; /* of a token: 1, 2 or 4 */
    int64_t n_streams[2];  /* 0: none, but samples one after the other */
} wfi_tokens;

/* Makes an empty set the state of `data`. */
wf_status wfi_tokens_create(wf_data *data, wfi_tokens **tokens_out);

/* When both splits are set: the description. Errors: INVALID_ARG: too few tokens for the
 * configuration's streams. */
wf_status wfi_tokens_finish(wf_data *data, const wf_data_config *config, const char *path,
                            int64_t vocabulary);
