/* CLBlast, found at run time. This file declares the functions and types that weft uses, under the
 * library's own names, so that its header is not needed. Private to kernel/opencl.
 *
 * A test that includes the real header first defines WFI_CLBLAST_TYPES_ARE_DECLARED, and compares.
 */
#pragma once

#include "base/base.h"

#ifndef WFI_CLBLAST_TYPES_ARE_DECLARED
typedef void *cl_mem, *cl_command_queue, *cl_event;
#endif

/* Constants, by name and value. */
#define WFI_CLBLAST_CONSTANTS(X)                                                                   \
    X(CLBlastSuccess, 0)                                                                           \
    X(CLBlastLayoutRowMajor, 101)                                                                  \
    X(CLBlastTransposeNo, 111)                                                                     \
    X(CLBlastTransposeYes, 112)

#ifndef WFI_CLBLAST_TYPES_ARE_DECLARED
#define WFI_CLBLAST_ENUM(name, value) name = value,
enum { WFI_CLBLAST_CONSTANTS(WFI_CLBLAST_ENUM) };
#undef WFI_CLBLAST_ENUM
#endif

/* name, parameters: the layout, the transpositions, m, n, k; then the matrices, each with its
 * offset, the step of its rows, and the step to the next matrix. All return a status. */
#define WFI_CLBLAST_LIST(X)                                                                        \
    X(SGemmTempBufferSize, (unsigned, unsigned, unsigned, size_t, size_t, size_t, size_t, size_t,  \
                            size_t, size_t, size_t, size_t, cl_command_queue *, size_t *))         \
    X(SgemmWithTempBuffer, (unsigned, unsigned, unsigned, size_t, size_t, size_t, float, cl_mem,   \
                            size_t, size_t, cl_mem, size_t, size_t, float, cl_mem, size_t, size_t, \
                            cl_command_queue *, cl_event *, cl_mem))                               \
    X(SgemmStridedBatched, (unsigned, unsigned, unsigned, size_t, size_t, size_t, float, cl_mem,   \
                            size_t, size_t, size_t, cl_mem, size_t, size_t, size_t, float, cl_mem, \
                            size_t, size_t, size_t, size_t, cl_command_queue *, cl_event *))       \
    X(ClearCache, (void))

typedef struct wfi_clblast {
#define WFI_CLBLAST_MEMBER(name, parameters) int(*name) parameters;
    WFI_CLBLAST_LIST(WFI_CLBLAST_MEMBER)
#undef WFI_CLBLAST_MEMBER
    char missing[256]; /* why it is not used; "": it is */
} wfi_clblast;

wf_status wfi_clblast_find(wf_context *ctx, const wfi_clblast **library_out);
/* wfi_backend.library */
const char *wfi_clblast_text(wf_context *ctx);
