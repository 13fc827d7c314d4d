/* Kernels of OpenCL devices against the plain C ones.
 *
 * label: once
 */
#include "kernel_gpu.h"

int main(void) {
    return check_kernels(&wfi_backend_opencl, WF_BUG, "in no device's memory");
}
