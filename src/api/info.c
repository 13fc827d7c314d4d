/* Libraries and environment variables, for reports. */
#include "base/env.h"
#include "kernel/backend.h"

#include <hwloc.h>
#include <jansson.h>
#include <pthread.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weft/weft.h>

/* Versions of the loaded libraries, not of the headers that weft was built with. */
static struct { char hwloc[48], jansson[48], sodium[48]; } versions;

static void ask_versions(void) {
    unsigned api = hwloc_get_api_version();
    snprintf(versions.hwloc, sizeof versions.hwloc, "hwloc (interface %u.%u.%u)", api >> 16,
             api >> 8 & 255, api & 255);
    snprintf(versions.jansson, sizeof versions.jansson, "jansson %.30s", jansson_version_str());
    snprintf(versions.sodium, sizeof versions.sodium, "libsodium %.30s", sodium_version_string());
}

const char *wf_version(void) {
    return WEFT_VERSION;
}

const char *wf_info_library(int i) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    const char *const names[] = {wfi_backend_of(WFI_DEFAULT_DEVICE)->library(NULL), versions.hwloc,
                                 versions.jansson, versions.sodium};
    pthread_once(&once, ask_versions);
    return i >= 0 && (size_t)i < sizeof names / sizeof *names ? names[i] : NULL;
}

const char *wf_info_bf16(void) {
    bool is_fast = wfi_backend_bf16_speed(wfi_backend_of(WFI_DEFAULT_DEVICE)) == WFI_BF16_FAST;
    return is_fast ? "bf16" : "f32";
}

wf_status wf_info_devices(wf_context *ctx, const char *kind, char *text, size_t bytes) {
    const wfi_device_class *device = kind ? wfi_device_kind(kind, strlen(kind)) : NULL;
    if (!device || !device->describe)
        return wfi_fail(ctx, WF_INVALID_ARG, "devices of kind '%.80s' are not counted",
                        kind ? kind : "");
    WF_TRY(device->describe(ctx, device, text, bytes));
    size_t n = strlen(text);
    snprintf(text + n, bytes - n, "; %s", wfi_backend_of(device)->library(ctx));
    return WF_OK;
}

/* Read by the libraries, not by weft. */
static const struct {
    const char *name, *help;
} of_libraries[] = {
    {"OMP_NUM_THREADS", "OpenMP: number of threads; weft uses --threads instead"},
    {"OMP_WAIT_POLICY", "OpenMP: waiting threads spin (active) or sleep (passive)"},
    {"OMP_PROC_BIND", "OpenMP: bind threads to their cores"},
    {"OMP_PLACES", "OpenMP: cores for the threads"},
    {"ONEDNN_VERBOSE", "oneDNN: 1 or 2: print every kernel to standard output"},
    {"DNNL_VERBOSE", "oneDNN: older name of the same variable"},
};

int wf_info_variable(int i, wf_variable *variable_out) {
    int k = i - WFI_N_ENV;
    if (i < 0 || k >= (int)(sizeof of_libraries / sizeof *of_libraries)) return 0;
    if (k >= 0) {
        const char *value = getenv(of_libraries[k].name);
        *variable_out = (wf_variable){.name = of_libraries[k].name,
                                      .help = of_libraries[k].help,
                                      .value = value ? value : "",
                                      .is_set = value && *value};
        return 1;
    }
    const wfi_env *about = &wfi_env_table[i];
    bool is_set = wfi_env_is_set((wfi_env_id)i), is_secret = about->type == WFI_ENV_SECRET;
    *variable_out =
        (wf_variable){.name = about->name,
                      .help = about->help,
                      .value = is_set && is_secret ? "(not shown)" : wfi_env_text((wfi_env_id)i),
                      .is_set = is_set};
    return 1;
}

const char *wf_info_variable_value(const char *name) {
    for (int i = 0; i < WFI_N_ENV; i++)
        if (!strcmp(wfi_env_table[i].name, name)) return wfi_env_text((wfi_env_id)i);
    return NULL;
}
