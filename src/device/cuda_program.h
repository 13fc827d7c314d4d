/* Kernels for a GPU of CUDA's: text compiled by NVRTC, or found compiled. Private to src/device. */
#ifndef WFI_CUDA_PROGRAM_H
#define WFI_CUDA_PROGRAM_H

#include "device/cuda.h"

typedef struct wfi_cuda_program {
    CUmodule module;
    CUfunction *functions; /* [the source's n_entries], of malloc */
} wfi_cuda_program;

/* The GPU's context is the current one. */
wf_status wfi_cuda_compile(wf_context *ctx, const wfi_cuda *driver, int driver_version,
                           const wfi_cuda_gpu *gpu, const wfi_launch_source *source,
                           wfi_cuda_program *program_out);
void wfi_cuda_program_destroy(const wfi_cuda *driver, wfi_cuda_program *program);

#endif
