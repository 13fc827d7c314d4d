/* Environment variables: one table. None of them changes a result. Private. */
#ifndef WFI_ENV_H
#define WFI_ENV_H

#include <stdint.h>

/* id, variable, what it takes, meaning */
#define WFI_ENV_LIST(X)                                                                            \
    X(LOG, "WEFT_LOG", "level[:topic,...]",                                                        \
      "log to standard error: error, warn, info or debug; topics such as dispatch, memory")        \
    X(TIMEOUT_MS, "WEFT_TIMEOUT_MS", "milliseconds", "deadline of every wait (600000)")            \
    X(DELAY_US, "WEFT_DELAY_US", "microseconds",                                                   \
      "tests: a random delay of up to so much before every instruction")                           \
    X(ARENA_SHIFT, "WEFT_ARENA_SHIFT", "bytes", "tests: moves every buffer by so much")

typedef enum wfi_env {
#define ENUM(id, variable, takes, meaning) WFI_ENV_##id,
    WFI_ENV_LIST(ENUM)
#undef ENUM
        WFI_N_ENVS
} wfi_env;

const char *wfi_env_name(wfi_env env);
const char *wfi_env_takes(wfi_env env);
const char *wfi_env_meaning(wfi_env env);
/* NULL if it is not set, or empty. */
const char *wfi_env_text(wfi_env env);
/* `otherwise` if it is not set or no whole number. */
int64_t wfi_env_int(wfi_env env, int64_t otherwise);

#endif
