/* Libraries and environment variables, for reports. */
#include "base/env.h"
#include "kernel/kernel.h"

#include <hwloc.h>
#include <jansson.h>
#include <sodium.h>
#include <string.h>
#include <weft/info.h>
#include <zlib.h>

const char *wf_info_library(int i) {
    switch (i) {
    case 0:
        return wfi_kernel_library();
    case 1:
        return "hwloc " HWLOC_VERSION;
    case 2:
        return "jansson " JANSSON_VERSION;
    case 3:
        return "libsodium " SODIUM_VERSION_STRING;
    case 4:
        return "zlib " ZLIB_VERSION;
    default:
        return NULL;
    }
}

int wf_info_variable(int i, wf_variable *variable_out) {
    if (i < 0 || i >= WFI_N_ENV) return 0;
    const wfi_env *about = &wfi_env_table[i];
    *variable_out = (wf_variable){.name = about->name,
                                  .help = about->help,
                                  .value = wfi_env_text((wfi_env_id)i),
                                  .is_set = wfi_env_is_set((wfi_env_id)i)};
    return 1;
}

const char *wf_info_variable_value(const char *name) {
    for (int i = 0; i < WFI_N_ENV; i++)
        if (!strcmp(wfi_env_table[i].name, name)) return wfi_env_text((wfi_env_id)i);
    return NULL;
}
