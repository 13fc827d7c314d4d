/* Libraries that are found when they are needed, so that weft is built and runs without them.
 * Private. */
#pragma once

#include "base/base.h"

typedef struct wfi_library {
    const char *who;          /* whose sentences: "opencl" */
    const char *const *files; /* as dlopen takes them, in the order in which they are tried; NULL */
    const char *const *symbols; /* of all functions that are used; NULL */
    const char *missing;        /* advice if the library is not found */
    const char *lacking;        /* advice if some of the symbols are missing */
} wfi_library;

/* Fills a structure of pointers to functions, one for each symbol. The library stays loaded.
 * Errors: UNSUPPORTED: there is none, it cannot be loaded, or a function is missing. */
wf_status wfi_library_load(wf_context *ctx, const wfi_library *library, void *functions_out);
/* The same for an optional library: if it is missing, why_out gets the reason and no error is
 * recorded. */
void wfi_library_try(wf_context *ctx, const wfi_library *library, void *functions_out,
                     size_t why_bytes, char *why_out);
