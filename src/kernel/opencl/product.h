/* Nodes whose products are CLBlast's: product.c, conv.c. Private to kernel/opencl. */
#ifndef WFI_CLBLAST_PRODUCT_H
#define WFI_CLBLAST_PRODUCT_H

#include "kernel/gpu/node.h"

extern const wfi_kernel_impl wfi_kernel_clblast;
/* Convolutions, in the place of kernel/gpu's. */
extern const wfi_gpu_row wfi_clblast_convs[];
/* Adds the node's bias, where it has one, to what it has made: of each channel, to so many elements
 * that follow one another. */
void wfi_clblast_add_bias(wfi_gpu_node *l, int64_t n_channels, int64_t n_each);

#endif
