#include "base/library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

/* Reports the error of the first file, or of a later file that exists and cannot be loaded. */
static void *open_any(const char *const *files, char *error, size_t bytes) {
    *error = '\0';
    for (; *files; files++) {
        void *handle = dlopen(*files, RTLD_NOW | RTLD_LOCAL);
        if (handle) return handle;
        const char *why = dlerror();
        bool is_missing = !why || strstr(why, "No such file");
        if (!*error || !is_missing)
            snprintf(error, bytes, is_missing ? "there is no %s on this machine" : "%.300s",
                     is_missing ? *files : why);
    }
    return NULL;
}

wf_status wfi_library_load(wf_context *ctx, const wfi_library *library, void *functions_out) {
    char error[320];
    void *handle = open_any(library->files, error, sizeof error);
    if (!handle)
        return wfi_fail(ctx, WF_UNSUPPORTED, "%s: %s; %s", library->who, error, library->missing);
    for (size_t i = 0; library->symbols[i]; i++) {
        void *function = dlsym(handle, library->symbols[i]);
        if (!function)
            return wfi_fail(ctx, WF_UNSUPPORTED, "%s: %s has no %s: %s", library->who,
                            library->files[0], library->symbols[i], library->lacking);
        memcpy((char *)functions_out + i * sizeof function, &function, sizeof function);
    }
    return WF_OK;
}

void wfi_library_try(wf_context *ctx, const wfi_library *library, void *functions_out,
                     size_t why_bytes, char *why_out) {
    bool is_there = wfi_library_load(ctx, library, functions_out) == WF_OK;
    snprintf(why_out, why_bytes, "%s", is_there ? "" : wf_context_error(ctx));
}
