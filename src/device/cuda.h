/* The parts of a CUDA device that kernels and collectives use: the driver's functions, the GPU, and
 * a stream's CUstream. Private to src/device, src/kernel/cuda and src/comm/wire/nccl.
 *
 * The current context of a stream's thread is its device's: tasks call the driver and libraries
 * directly. Any other thread does so between wfi_cuda_push and wfi_cuda_pop.
 */
#pragma once

#include "device/cuda_library.h"
#include "device/separate.h"

/* A GPU of the machine. Its driver releases nothing before the queued work has ended. */
typedef struct wfi_cuda_gpu {
    wfi_device_unit unit; /* numbered in the driver's order for this process */
    int major, minor;     /* compute capability */
    CUdevice device;
    CUcontext context; /* primary context; NULL: no rank uses the GPU */
    uint64_t peers;    /* bit mask: GPUs with memory that its kernels can access */
    bool wants_ptx;    /* the compiler is older than the GPU: the driver compiles PTX */
    char target[64];   /* NVRTC's option for the GPU, or for the newest known one */
} wfi_cuda_gpu;

typedef struct wfi_cuda_machine {
    wfi_machine machine;
    wfi_cuda driver;
    int version;
    wfi_nvrtc nvrtc; /* loaded with the first target */
    int nvrtc_major, nvrtc_minor;
    wfi_cuda_gpu gpus[WFI_MOST_UNITS];
} wfi_cuda_machine;

static inline const wfi_cuda_gpu *wfi_cuda_gpu_of(const wfi_device *device) {
    return device->state;
}
static inline const wfi_cuda_machine *wfi_cuda_machine_of(const wfi_device *device) {
    return (const void *)wfi_device_unit_of(device)->machine;
}
static inline const wfi_cuda *wfi_cuda_driver(const wfi_device *device) {
    return &wfi_cuda_machine_of(device)->driver;
}
static inline CUstream wfi_cuda_stream(const wfi_stream_queue *stream) {
    return wfi_separate_queue(stream->device, stream);
}

wf_status wfi_cuda_push(const wfi_device *device);
void wfi_cuda_pop(const wfi_device *device);

/* cuda_graph.c: functions of wfi_device_class. */
void *wfi_cuda_capture(wfi_stream_queue *stream, wfi_task task, void *self, void *argument);
wf_status wfi_cuda_replay(wfi_stream_queue *stream, const void *captured);
void wfi_cuda_forget(const wfi_device *device, void *captured);

/* Reports the error of operation `what` on the GPU; success is not an error. Errors: NO_MEMORY;
 * DEVICE. */
wf_status wfi_cuda_check(const wfi_device *device, const char *what, wfi_cuda_enum error);
