/* Kernels for a CUDA GPU, compiled by NVRTC. Private to src/device. */
#pragma once

#include "device/cuda.h"

/* Functions of wfi_separate_class, called with the GPU's context current. */
wf_status wfi_cuda_target(const wfi_device *device, char text[WFI_TARGET_BYTES]);
wf_status wfi_cuda_load_module(const wfi_device *device, const char *kernel, unsigned char *image,
                               size_t bytes, void **module_out);
wf_status wfi_cuda_build(const wfi_device *device, const char *kernel, const char *text,
                         void **module_out, unsigned char **image_out, size_t *bytes_out);
