/* CUDA's driver and its compiler, NVRTC, found at run time: the parts of their interfaces that weft
 * uses. They are declared here with CUDA's types, so that no header of CUDA is needed.
 * tests/cuda_headers.sh compares the declarations with CUDA's headers if they are installed.
 *
 * Private to src/device, src/kernel/cuda and src/comm/wire/nccl.
 */
#pragma once

#include "base/base.h"

typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphExec_st *CUgraphExec;
typedef struct _nvrtcProgram *nvrtcProgram;
/* An enumeration of CUDA: results, attributes. */
typedef unsigned wfi_cuda_enum;

/* name, CUDA's constant, its value */
#define WFI_CUDA_CONSTANTS(X)                                                                      \
    X(WFI_CUDA_SUCCESS, CUDA_SUCCESS, 0)                                                           \
    X(WFI_CUDA_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY, 2)                                         \
    X(WFI_CUDA_NO_DEVICE, CUDA_ERROR_NO_DEVICE, 100)                                               \
    X(WFI_CUDA_NOT_READY, CUDA_ERROR_NOT_READY, 600)                                               \
    X(WFI_CUDA_PEER_ALREADY, CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, 704)                          \
    X(WFI_CUDA_CAPABILITY_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 75)                 \
    X(WFI_CUDA_CAPABILITY_MINOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 76)                 \
    X(WFI_CUDA_NON_BLOCKING, CU_STREAM_NON_BLOCKING, 1)                                            \
    X(WFI_CUDA_NO_TIMING, CU_EVENT_DISABLE_TIMING, 2)                                              \
    X(WFI_CUDA_PORTABLE, CU_MEMHOSTALLOC_PORTABLE, 1)                                              \
    X(WFI_CUDA_THREAD_LOCAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, 1)

enum {
#define WFI_CUDA_ENUM(name, cuda, value) name = value,
    WFI_CUDA_CONSTANTS(WFI_CUDA_ENUM)
#undef WFI_CUDA_ENUM
};

/* name, CUDA's symbol, parameters */
#define WFI_CUDA_FUNCTIONS(X)                                                                      \
    X(Init, cuInit, (unsigned))                                                                    \
    X(DriverGetVersion, cuDriverGetVersion, (int *))                                               \
    X(GetErrorName, cuGetErrorName, (wfi_cuda_enum, const char **))                                \
    X(GetErrorString, cuGetErrorString, (wfi_cuda_enum, const char **))                            \
    X(DeviceGetCount, cuDeviceGetCount, (int *))                                                   \
    X(DeviceGet, cuDeviceGet, (CUdevice *, int))                                                   \
    X(DeviceGetName, cuDeviceGetName, (char *, int, CUdevice))                                     \
    X(DeviceGetAttribute, cuDeviceGetAttribute, (int *, wfi_cuda_enum, CUdevice))                  \
    X(DeviceCanAccessPeer, cuDeviceCanAccessPeer, (int *, CUdevice, CUdevice))                     \
    X(DevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, (CUcontext *, CUdevice))                   \
    X(DevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, (CUdevice))                           \
    X(CtxPushCurrent, cuCtxPushCurrent_v2, (CUcontext))                                            \
    X(CtxPopCurrent, cuCtxPopCurrent_v2, (CUcontext *))                                            \
    X(CtxSetCurrent, cuCtxSetCurrent, (CUcontext))                                                 \
    X(CtxEnablePeerAccess, cuCtxEnablePeerAccess, (CUcontext, unsigned))                           \
    X(MemGetInfo, cuMemGetInfo_v2, (size_t *, size_t *))                                           \
    X(MemAlloc, cuMemAlloc_v2, (CUdeviceptr *, size_t))                                            \
    X(MemFree, cuMemFree_v2, (CUdeviceptr))                                                        \
    X(MemHostAlloc, cuMemHostAlloc, (void **, size_t, unsigned))                                   \
    X(MemFreeHost, cuMemFreeHost, (void *))                                                        \
    X(MemcpyAsync, cuMemcpyAsync, (CUdeviceptr, CUdeviceptr, size_t, CUstream))                    \
    X(MemcpyHtoDAsync, cuMemcpyHtoDAsync_v2, (CUdeviceptr, const void *, size_t, CUstream))        \
    X(MemcpyDtoHAsync, cuMemcpyDtoHAsync_v2, (void *, CUdeviceptr, size_t, CUstream))              \
    X(MemsetD8Async, cuMemsetD8Async, (CUdeviceptr, unsigned char, size_t, CUstream))              \
    X(StreamCreate, cuStreamCreate, (CUstream *, unsigned))                                        \
    X(StreamDestroy, cuStreamDestroy_v2, (CUstream))                                               \
    X(StreamQuery, cuStreamQuery, (CUstream))                                                      \
    X(StreamWaitEvent, cuStreamWaitEvent, (CUstream, CUevent, unsigned))                           \
    X(EventCreate, cuEventCreate, (CUevent *, unsigned))                                           \
    X(EventDestroy, cuEventDestroy_v2, (CUevent))                                                  \
    X(EventRecord, cuEventRecord, (CUevent, CUstream))                                             \
    X(EventQuery, cuEventQuery, (CUevent))                                                         \
    X(EventElapsedTime, cuEventElapsedTime, (float *, CUevent, CUevent))                           \
    X(ModuleLoadData, cuModuleLoadData, (CUmodule *, const void *))                                \
    X(ModuleUnload, cuModuleUnload, (CUmodule))                                                    \
    X(ModuleGetFunction, cuModuleGetFunction, (CUfunction *, CUmodule, const char *))              \
    X(LaunchKernel, cuLaunchKernel,                                                                \
      (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, \
       void **, void **))

/* Functions of CUDA 11.4 and newer. */
#define WFI_CUDA_GRAPH_FUNCTIONS(X)                                                                \
    X(StreamBeginCapture, cuStreamBeginCapture_v2, (CUstream, wfi_cuda_enum))                      \
    X(StreamEndCapture, cuStreamEndCapture, (CUstream, CUgraph *))                                 \
    X(GraphInstantiate, cuGraphInstantiateWithFlags, (CUgraphExec *, CUgraph, unsigned long long)) \
    X(GraphLaunch, cuGraphLaunch, (CUgraphExec, CUstream))                                         \
    X(GraphDestroy, cuGraphDestroy, (CUgraph))                                                     \
    X(GraphExecDestroy, cuGraphExecDestroy, (CUgraphExec))

#define WFI_NVRTC_FUNCTIONS(X)                                                                     \
    X(Version, nvrtcVersion, (int *, int *))                                                       \
    X(GetNumSupportedArchs, nvrtcGetNumSupportedArchs, (int *))                                    \
    X(GetSupportedArchs, nvrtcGetSupportedArchs, (int *))                                          \
    X(CreateProgram, nvrtcCreateProgram,                                                           \
      (nvrtcProgram *, const char *, const char *, int, const char *const *, const char *const *)) \
    X(DestroyProgram, nvrtcDestroyProgram, (nvrtcProgram *))                                       \
    X(CompileProgram, nvrtcCompileProgram, (nvrtcProgram, int, const char *const *))               \
    X(GetProgramLogSize, nvrtcGetProgramLogSize, (nvrtcProgram, size_t *))                         \
    X(GetProgramLog, nvrtcGetProgramLog, (nvrtcProgram, char *))                                   \
    X(GetCUBINSize, nvrtcGetCUBINSize, (nvrtcProgram, size_t *))                                   \
    X(GetCUBIN, nvrtcGetCUBIN, (nvrtcProgram, char *))                                             \
    X(GetPTXSize, nvrtcGetPTXSize, (nvrtcProgram, size_t *))                                       \
    X(GetPTX, nvrtcGetPTX, (nvrtcProgram, char *))

#define WFI_CUDA_MEMBER(name, symbol, parameters) wfi_cuda_enum(*name) parameters;
typedef struct wfi_cuda {
    WFI_CUDA_FUNCTIONS(WFI_CUDA_MEMBER)
} wfi_cuda;
typedef struct wfi_cuda_graphs {
    WFI_CUDA_GRAPH_FUNCTIONS(WFI_CUDA_MEMBER)
} wfi_cuda_graphs;
typedef struct wfi_nvrtc {
    WFI_NVRTC_FUNCTIONS(WFI_CUDA_MEMBER)
} wfi_nvrtc;

/* Loads and initializes the driver; version 13020 is CUDA 13.2. Errors: UNSUPPORTED: no driver, too
 * old or broken, or no GPU. */
wf_status wfi_cuda_load(wf_context *ctx, wfi_cuda *driver_out, int *version_out);
/* Loads the functions for graphs. Errors: UNSUPPORTED: the driver has none. */
wf_status wfi_cuda_graphs_load(wf_context *ctx, wfi_cuda_graphs *graphs_out);
/* Loads a compiler for programs that a driver of that version can load. Errors: UNSUPPORTED. */
wf_status wfi_nvrtc_load(wf_context *ctx, int driver_version, wfi_nvrtc *compiler_out);

/* "CUDA_ERROR_LAUNCH_FAILED: unspecified launch failure" */
#define WFI_CUDA_ERROR_TEXT 160
const char *wfi_cuda_error(const wfi_cuda *driver, wfi_cuda_enum error,
                           char text[WFI_CUDA_ERROR_TEXT]);
