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
    .library = library_text,
    WFI_GPU_BACKEND,
};
