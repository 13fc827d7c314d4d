/* The table of environment variables and how their values are read. */
#include "base/env.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>

const wfi_env wfi_env_table[WFI_N_ENV] = {
#define ROW(name, type, fallback, help) [WFI_##name] = {#name, fallback, help, WFI_ENV_##type},
    WFI_ENV_LIST(ROW)
#undef ROW
};

bool wfi_env_is_set(wfi_env_id id) {
    const char *text = getenv(wfi_env_table[id].name);
    return text && *text;
}

const char *wfi_env_text(wfi_env_id id) {
    return wfi_env_is_set(id) ? getenv(wfi_env_table[id].name) : wfi_env_table[id].fallback;
}

wf_status wfi_env_count(wf_context *ctx, wfi_env_id id, int64_t *value_out) {
    const char *text = wfi_env_text(id);
    char *end = NULL;
    errno = 0;
    long long value = isdigit((unsigned char)*text) ? strtoll(text, &end, 10) : -1;
    if (value < 0 || errno || *end)
        return wfi_fail(ctx, WF_INVALID_ARG,
                        "environment: %s='%.64s'; it takes a whole number from 0, below 2^63",
                        wfi_env_table[id].name, text);
    *value_out = value;
    return WF_OK;
}

wf_status wfi_env_timeout(wf_context *ctx, int64_t *timeout_ms) {
    if (!*timeout_ms) WF_TRY(wfi_env_count(ctx, WFI_WEFT_TIMEOUT_MS, timeout_ms));
    if (*timeout_ms >= 1) return WF_OK;
    return wfi_fail(ctx, WF_INVALID_ARG, "a timeout of %lld ms; every wait needs a deadline",
                    (long long)*timeout_ms);
}
