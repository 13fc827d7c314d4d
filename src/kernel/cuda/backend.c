/* CUDA's backend: cuBLASLt's products and attention by them, cuDNN's convolutions and batch norms
 * where these libraries are, weft's own kernels for all else. */
#include "kernel/cuda/library.h"
#include "kernel/gpu/gpu.h"

static const wfi_kernel_impl *const implementations[] = {&wfi_kernel_cublaslt, &wfi_kernel_cudnn,
                                                         &wfi_kernel_cudnn_norm, &wfi_kernel_gpu};

const wfi_backend wfi_backend_cuda = {
    .device = &wfi_device_cuda,
    .implementations = implementations,
    .n_implementations = WFI_COUNT(implementations),
    .library = wfi_cuda_libraries_text,
    .has_tf32 = true,
    WFI_GPU_BACKEND,
};
