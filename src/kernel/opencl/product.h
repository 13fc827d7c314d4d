/* Nodes with products by CLBlast: product.c, conv.c. Private to kernel/opencl. */
#pragma once

#include "kernel/gpu/node.h"

extern const wfi_kernel_impl wfi_kernel_clblast;
/* Convolutions, in the place of kernel/gpu's. */
extern const wfi_gpu_row wfi_clblast_convs[];
/* Adds the node's bias, if it has one, to its output: each channel's to `n_each` consecutive
 * elements. */
void wfi_clblast_add_bias(wfi_gpu_node *l, int64_t n_channels, int64_t n_each);
