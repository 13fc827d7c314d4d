/* What kernels and collectives of libraries have to know of a CUDA device: the driver's functions,
 * the GPU, and a stream's own CUstream. Private to src/device, src/kernel/cuda and
 * src/comm/wire/nccl.
 *
 * The current context of a stream's thread is its device's: tasks call the driver and libraries as
 * they are. Any other thread does so between wfi_cuda_push and wfi_cuda_pop.
 */
#ifndef WFI_CUDA_H
#define WFI_CUDA_H

#include "device/cuda_library.h"
#include "device/device.h"

/* A GPU of the machine, which several ranks may be on. */
typedef struct wfi_cuda_gpu {
    int ordinal;      /* among those that the driver shows this process */
    int major, minor; /* its compute capability */
    char name[128];
    CUdevice device;
    CUcontext context; /* its primary one; NULL: no rank is on it */
    /* Atomic access: it does not end what it was asked for, and the driver would wait for that
     * before it takes anything back: what is on it goes with the process. */
    int hangs;
} wfi_cuda_gpu;

const wfi_cuda *wfi_cuda_driver(const wfi_device *device);
const wfi_cuda_gpu *wfi_cuda_gpu_of(const wfi_device *device);
CUstream wfi_cuda_stream(const wfi_stream_queue *stream);

static inline bool wfi_cuda_hangs(const wfi_cuda_gpu *gpu) {
    return __atomic_load_n(&gpu->hangs, __ATOMIC_RELAXED);
}

/* Of a GPU that hangs nothing more is waited for. Errors: its rank's failure, or TIMEOUT. */
wf_status wfi_cuda_given_up(const wfi_device *device);

wf_status wfi_cuda_push(const wfi_device *device);
void wfi_cuda_pop(const wfi_device *device);

/* Records what of the GPU has failed, and how; success is no failure. Errors: NO_MEMORY; DEVICE. */
wf_status wfi_cuda_check(wf_context *ctx, const wfi_cuda *driver, const wfi_cuda_gpu *gpu,
                         const char *what, wfi_cuda_enum error);

#endif
