/* Kernels for a GPU of CUDA's: text compiled by NVRTC, or found compiled. Private to src/device. */
#ifndef WFI_CUDA_PROGRAM_H
#define WFI_CUDA_PROGRAM_H

#include "device/cuda.h"

/* A module with that kernel alone. The GPU's context is the current one. */
wf_status wfi_cuda_compile(wf_context *ctx, const wfi_cuda *driver, int driver_version,
                           const wfi_cuda_gpu *gpu, const wfi_kernel_launch *launch,
                           CUmodule *module_out);

#endif
