/* What this build of weft is made of, and what it reads from the environment. */
#ifndef WEFT_INFO_H
#define WEFT_INFO_H

#include <stddef.h>
#include <weft/context.h>
#include <weft/status.h>

/* One environment variable. None of them changes a result. */
typedef struct wf_variable {
    const char *name, *help;
    const char *value; /* as set, or the default; borrowed from the environment */
    int is_set;
} wf_variable;

/* What this process may use of the machine. */
typedef struct wf_limits {
    int n_cores;         /* hardware threads, no more than the quota; 1 or more */
    double cpu_quota;    /* of its control groups, in CPUs; 0: there is none */
    size_t memory_bytes; /* the same */
} wf_limits;

#ifdef __cplusplus
extern "C" {
#endif

/* As it is now; threads that nobody has counted are as many as the cores. */
WF_API wf_limits wf_info_limits(void);

/* Of the library that the program runs with, such as "0.1.0". */
WF_API const char *wf_version(void);

/* The i-th library that weft runs on, such as "oneDNN 2.6.3 (avx512_core)". Static;
 * NULL past the last. */
WF_API const char *wf_info_library(int i);

/* How products of BF16 are made on this processor: "bf16", or, where that is faster, "f32"; their
 * bits depend on it. Static. */
WF_API const char *wf_info_bf16(void);

/* What this machine has of a kind of device other than the CPU, into a buffer of so many bytes:
 * of "opencl" "1 device: 0 NVIDIA H200". Errors: UNSUPPORTED: nothing, and what is missing;
 * INVALID_ARG: there is no such kind. */
WF_API WF_NODISCARD wf_status wf_info_devices(wf_context *ctx, const char *kind, char *text,
                                              size_t bytes);

/* The i-th variable that weft or a library under it reads; 0 past the last. */
WF_API int wf_info_variable(int i, wf_variable *variable_out);

/* The value of a variable that weft reads, or its default; NULL for any other name. */
WF_API const char *wf_info_variable_value(const char *name);

#ifdef __cplusplus
}
#endif
#endif
