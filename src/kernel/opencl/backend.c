/* OpenCL's backend: CLBlast's products of matrices where that library is, weft's own kernels for
 * all else. */
#include "kernel/opencl/library.h"
#include "kernel/opencl/product.h"

static const wfi_kernel_impl *const implementations[] = {&wfi_kernel_clblast, &wfi_kernel_gpu};

const wfi_backend wfi_backend_opencl = {
    .device = &wfi_device_opencl,
    .implementations = implementations,
    .n_implementations = WFI_COUNT(implementations),
    .library = wfi_clblast_text,
    WFI_GPU_BACKEND,
};
