#include "base/env.h"

#include <stdlib.h>

static const struct {
    const char *name, *takes, *meaning;
} table[] = {
#define ROW(id, variable, takes, meaning) {variable, takes, meaning},
    WFI_ENV_LIST(ROW)
#undef ROW
};

const char *wfi_env_name(wfi_env env) {
    return table[env].name;
}
const char *wfi_env_takes(wfi_env env) {
    return table[env].takes;
}
const char *wfi_env_meaning(wfi_env env) {
    return table[env].meaning;
}

const char *wfi_env_text(wfi_env env) {
    const char *text = getenv(table[env].name);
    return text && *text ? text : NULL;
}

int64_t wfi_env_int(wfi_env env, int64_t otherwise) {
    const char *text = wfi_env_text(env);
    if (!text) return otherwise;
    char *end;
    long long value = strtoll(text, &end, 10);
    return *end ? otherwise : (int64_t)value;
}
