/* Properties of this build, this machine and the environment. */
#ifndef WEFT_INFO_H
#define WEFT_INFO_H

#include <stddef.h>
#include <weft/context.h>
#include <weft/status.h>

/* One environment variable. None of them affects a result. */
typedef struct wf_variable {
    const char *name, *help;
    const char
        *value; /* as set, or the default; a secret is not shown. Borrowed from the environment */
    int is_set;
} wf_variable;

/* The resources that this process may use. */
typedef struct wf_limits {
    int n_cores;         /* hardware threads, limited by the CPU quota; at least 1 */
    double cpu_quota;    /* quota of the control groups, in CPUs; 0: unlimited */
    size_t memory_bytes; /* memory limit of the control groups; 0: unlimited */
} wf_limits;

#ifdef __cplusplus
extern "C" {
#endif

/* The limits now. n_cores is the default number of threads where none is configured. */
WF_API wf_limits wf_info_limits(void);

/* Version of the library that the program runs with, such as "0.1.0". Static. */
WF_API const char *wf_version(void);

/* The i-th library that libweft uses, such as "oneDNN 2.6.3 (avx512_core)". Static; NULL past the
 * last. */
WF_API const char *wf_info_library(int i);

/* The arithmetic of BF16 products on this processor: "bf16", or "f32" where that is faster. The
 * bits of results depend on it. Static. */
WF_API const char *wf_info_bf16(void);

/* Describes the machine's devices of a kind other than the CPU, such as "opencl", in a buffer of
 * `bytes` bytes: "1 device: 0 NVIDIA H200", then the library that computes on them. Errors:
 * UNSUPPORTED (no such devices; the sentence names the missing part), INVALID_ARG (an unknown
 * kind). */
WF_API WF_NODISCARD wf_status wf_info_devices(wf_context *ctx, const char *kind, char *text,
                                              size_t bytes);

/* Gets the i-th variable that weft or a library under it reads, and returns 1; 0 past the last. */
WF_API int wf_info_variable(int i, wf_variable *variable_out);

/* The value of a variable that weft reads, or its default; NULL for any other name. */
WF_API const char *wf_info_variable_value(const char *name);

#ifdef __cplusplus
}
#endif
#endif
