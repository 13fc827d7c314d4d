/* NCCL, found at run time: the part of its interface that weft uses, under NCCL's names. The
 * declarations replace NCCL's header. Private to nccl.c.
 *
 * A test includes the real header after it defines WFI_NCCL_TYPES_ARE_DECLARED, and compares the
 * declarations.
 */
#pragma once

#include "device/cuda_library.h"

#define WFI_NCCL_CONSTANTS(X)                                                                      \
    X(ncclSuccess, 0)                                                                              \
    X(ncclInProgress, 7)                                                                           \
    X(ncclInt8, 0)                                                                                 \
    X(ncclFloat32, 7)                                                                              \
    X(ncclSum, 0)

#ifndef WFI_NCCL_TYPES_ARE_DECLARED
#define WFI_NCCL_ENUM(name, value) name = value,
enum { WFI_NCCL_CONSTANTS(WFI_NCCL_ENUM) };
#undef WFI_NCCL_ENUM
typedef wfi_cuda_enum ncclResult_t, ncclDataType_t, ncclRedOp_t;
typedef struct ncclComm *ncclComm_t;
typedef CUstream cudaStream_t;
typedef struct ncclConfig ncclConfig_t;
typedef struct ncclUniqueId {
    char internal[128];
} ncclUniqueId;
#endif

/* ncclConfig_t of NCCL 2.14; its first member is its size. */
typedef struct wfi_nccl_config {
    size_t size;
    unsigned magic, version;
    int blocking;
} wfi_nccl_config;
#define WFI_NCCL_MAGIC  0xcafebeefu
#define WFI_NCCL_OLDEST 21400

#define WFI_NCCL_LIST(X)                                                                           \
    X(GetVersion, ncclResult_t, (int *))                                                           \
    X(GetErrorString, const char *, (ncclResult_t))                                                \
    X(GetLastError, const char *, (ncclComm_t))                                                    \
    X(GetUniqueId, ncclResult_t, (ncclUniqueId *))                                                 \
    X(CommInitRankConfig, ncclResult_t, (ncclComm_t *, int, ncclUniqueId, int, ncclConfig_t *))    \
    X(CommGetAsyncError, ncclResult_t, (ncclComm_t, ncclResult_t *))                               \
    X(CommFinalize, ncclResult_t, (ncclComm_t))                                                    \
    X(CommDestroy, ncclResult_t, (ncclComm_t))                                                     \
    X(CommAbort, ncclResult_t, (ncclComm_t))                                                       \
    X(GroupStart, ncclResult_t, (void))                                                            \
    X(GroupEnd, ncclResult_t, (void))                                                              \
    X(Send, ncclResult_t, (const void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t))   \
    X(Recv, ncclResult_t, (void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t))         \
    X(AllReduce, ncclResult_t,                                                                     \
      (const void *, void *, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t, cudaStream_t))

#define WFI_NCCL_MEMBER(name, result, parameters) result(*name) parameters;
typedef struct wfi_nccl {
    WFI_NCCL_LIST(WFI_NCCL_MEMBER)
} wfi_nccl;
