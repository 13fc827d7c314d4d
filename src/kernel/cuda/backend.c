/* CUDA's backend: cuBLASLt's products and cuDNN's convolutions where these libraries are, weft's
 * own kernels for all else. */
#include "kernel/cuda/library.h"
#include "kernel/gpu/gpu.h"

static const wfi_kernel_impl *const implementations[] = {&wfi_kernel_cublaslt, &wfi_kernel_cudnn,
                                                         &wfi_kernel_gpu};

const wfi_backend wfi_backend_cuda = {
    .device = &wfi_device_cuda,
    .implementations = implementations,
    .n_implementations = WFI_COUNT(implementations),
    .n_plain = 1,
    .copy = wfi_gpu_copy,
    .add = wfi_gpu_add,
    .squares = wfi_gpu_squares,
    .update = wfi_gpu_update,
    .statistics = wfi_gpu_statistics,
    .collective_step = wfi_gpu_collective_step,
    .thread_enter = wfi_gpu_thread_enter,
    .library = wfi_cuda_libraries_text,
    .bf16_speed = wfi_gpu_bf16_speed,
};
