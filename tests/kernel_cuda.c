/* Kernels of CUDA devices against the plain C ones, through the stand-in for the driver.
 *
 * label: stand_in
 */
#include "kernel_gpu.h"

int main(void) {
    return check_kernels(&wfi_backend_cuda, WF_DEVICE,
                         "cuda: a copy on GPU 0, Stand-in 0: CUDA_ERROR_INVALID_VALUE");
}
