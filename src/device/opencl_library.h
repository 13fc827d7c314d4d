/* OpenCL's library, found at run time: the part of its interface, of version 1.2, that weft uses.
 * The declarations replace OpenCL's headers. Private to src/device. */
#pragma once

#include "base/base.h"

typedef int32_t cl_int;
typedef uint32_t cl_uint;
typedef uint64_t cl_ulong;
typedef void *cl_handle; /* of any kind */
/* The type of OpenCL's callbacks, which weft does not use. */
typedef void (*cl_callback)(const char *, const void *, size_t, void *);

enum {
    CL_SUCCESS = 0,
    CL_PLATFORM_NAME = 0x0902,
    CL_DEVICE_NAME = 0x102B,
    CL_DRIVER_VERSION = 0x102D,
    CL_DEVICE_SINGLE_FP_CONFIG = 0x101B,
    CL_DEVICE_DOUBLE_FP_CONFIG = 0x1032,
    CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT = 1 << 7,
    CL_MEM_READ_WRITE = 1,
    CL_BUFFER_CREATE_TYPE_REGION = 0x1220,
    CL_PROGRAM_BINARY_SIZES = 0x1165,
    CL_PROGRAM_BINARIES = 0x1166,
    CL_PROGRAM_BUILD_LOG = 0x1183,
    CL_EVENT_COMMAND_EXECUTION_STATUS = 0x11D3,
    CL_COMPLETE = 0,
};

/* name, result, parameters */
#define WFI_OPENCL_LIST(X)                                                                         \
    X(GetPlatformIDs, cl_int, (cl_uint, cl_handle *, cl_uint *))                                   \
    X(GetPlatformInfo, cl_int, (cl_handle, cl_uint, size_t, void *, size_t *))                     \
    X(GetDeviceIDs, cl_int, (cl_handle, cl_ulong, cl_uint, cl_handle *, cl_uint *))                \
    X(GetDeviceInfo, cl_int, (cl_handle, cl_uint, size_t, void *, size_t *))                       \
    X(CreateContext, cl_handle,                                                                    \
      (const intptr_t *, cl_uint, const cl_handle *, cl_callback, void *, cl_int *))               \
    X(ReleaseContext, cl_int, (cl_handle))                                                         \
    X(CreateCommandQueue, cl_handle, (cl_handle, cl_handle, cl_ulong, cl_int *))                   \
    X(ReleaseCommandQueue, cl_int, (cl_handle))                                                    \
    X(CreateBuffer, cl_handle, (cl_handle, cl_ulong, size_t, void *, cl_int *))                    \
    X(CreateSubBuffer, cl_handle, (cl_handle, cl_ulong, cl_uint, const void *, cl_int *))          \
    X(ReleaseMemObject, cl_int, (cl_handle))                                                       \
    X(CreateProgramWithSource, cl_handle,                                                          \
      (cl_handle, cl_uint, const char **, const size_t *, cl_int *))                               \
    X(CreateProgramWithBinary, cl_handle,                                                          \
      (cl_handle, cl_uint, const cl_handle *, const size_t *, const unsigned char **, cl_int *,    \
       cl_int *))                                                                                  \
    X(BuildProgram, cl_int,                                                                        \
      (cl_handle, cl_uint, const cl_handle *, const char *, cl_callback, void *))                  \
    X(GetProgramBuildInfo, cl_int, (cl_handle, cl_handle, cl_uint, size_t, void *, size_t *))      \
    X(GetProgramInfo, cl_int, (cl_handle, cl_uint, size_t, void *, size_t *))                      \
    X(ReleaseProgram, cl_int, (cl_handle))                                                         \
    X(CreateKernel, cl_handle, (cl_handle, const char *, cl_int *))                                \
    X(ReleaseKernel, cl_int, (cl_handle))                                                          \
    X(SetKernelArg, cl_int, (cl_handle, cl_uint, size_t, const void *))                            \
    X(EnqueueNDRangeKernel, cl_int,                                                                \
      (cl_handle, cl_handle, cl_uint, const size_t *, const size_t *, const size_t *, cl_uint,     \
       const cl_handle *, cl_handle *))                                                            \
    X(EnqueueReadBuffer, cl_int,                                                                   \
      (cl_handle, cl_handle, cl_uint, size_t, size_t, void *, cl_uint, const cl_handle *,          \
       cl_handle *))                                                                               \
    X(EnqueueWriteBuffer, cl_int,                                                                  \
      (cl_handle, cl_handle, cl_uint, size_t, size_t, const void *, cl_uint, const cl_handle *,    \
       cl_handle *))                                                                               \
    X(EnqueueCopyBuffer, cl_int,                                                                   \
      (cl_handle, cl_handle, cl_handle, size_t, size_t, size_t, cl_uint, const cl_handle *,        \
       cl_handle *))                                                                               \
    X(EnqueueFillBuffer, cl_int,                                                                   \
      (cl_handle, cl_handle, const void *, size_t, size_t, size_t, cl_uint, const cl_handle *,     \
       cl_handle *))                                                                               \
    X(EnqueueMarkerWithWaitList, cl_int, (cl_handle, cl_uint, const cl_handle *, cl_handle *))     \
    X(Flush, cl_int, (cl_handle))                                                                  \
    X(GetEventInfo, cl_int, (cl_handle, cl_uint, size_t, void *, size_t *))                        \
    X(ReleaseEvent, cl_int, (cl_handle))                                                           \
    X(Finish, cl_int, (cl_handle))

typedef struct wfi_opencl {
#define WFI_OPENCL_MEMBER(name, result, parameters) result(*name) parameters;
    WFI_OPENCL_LIST(WFI_OPENCL_MEMBER)
#undef WFI_OPENCL_MEMBER
} wfi_opencl;

/* Loads the library, which stays loaded. Errors: UNSUPPORTED: not installed, or too old. */
wf_status wfi_opencl_load(wf_context *ctx, wfi_opencl *library_out);
/* "out of memory (-4)" */
const char *wfi_opencl_error(cl_int error, char text[64]);
