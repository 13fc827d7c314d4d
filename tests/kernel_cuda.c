/* Kernels of CUDA devices against the plain C ones, through the stand-ins for the driver, cuBLASLt
 * and cuDNN.
 *
 * label: serial stand_in
 */
#include "kernel_gpu.h"

int main(void) {
    int status = check_kernels(&wfi_backend_cuda, WF_DEVICE,
                               "cuda: a copy on GPU 0, Stand-in 0: CUDA_ERROR_INVALID_VALUE");
    /* All that the libraries offer, but for what differs each time or takes too much. */
    printf("%d ways of libraries, %d kernels that add\n", n_ways, n_adding);
    return status || n_ways < 180 || n_adding < 8;
}
