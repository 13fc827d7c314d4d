/* OpenCL's backend: weft's own kernels. */
#include "kernel/gpu/gpu.h"

static const char *library_text(wf_context *ctx) {
    (void)ctx;
    return "weft's kernels (OpenCL C)";
}

static const wfi_kernel_impl *const implementations[] = {&wfi_kernel_gpu};

const wfi_backend wfi_backend_opencl = {
    .device = &wfi_device_opencl,
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
    .library = library_text,
    .bf16_speed = wfi_gpu_bf16_speed,
};
