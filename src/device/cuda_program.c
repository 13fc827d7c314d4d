#include "device/cuda_program.h"

#include <stdio.h>
#include <stdlib.h>

/* Finds the GPU's own architecture, or else the newest older one. */
static wf_status find_target(wf_context *ctx, wfi_cuda_machine *all, wfi_cuda_gpu *gpu) {
    wfi_nvrtc *nvrtc = &all->nvrtc;
    int n = 0, own = gpu->major * 10 + gpu->minor, best = 0;
    WF_TRY(wfi_nvrtc_load(ctx, all->version, nvrtc));
    bool failed =
        nvrtc->Version(&all->nvrtc_major, &all->nvrtc_minor) || nvrtc->GetNumSupportedArchs(&n);
    int *known = calloc((size_t)n + 1, sizeof *known);
    failed |= !known || nvrtc->GetSupportedArchs(known);
    for (int i = 0; i < n && !failed; i++)
        if (known[i] <= own && known[i] > best) best = known[i];
    free(known);
    if (!best)
        return wfi_fail(ctx, WF_UNSUPPORTED,
                        "cuda: the compiler of CUDA %d.%d cannot compile for %s (sm_%d); install "
                        "an older NVRTC",
                        all->nvrtc_major, all->nvrtc_minor, gpu->unit.name, own);
    gpu->wants_ptx = best != own;
    snprintf(gpu->target, sizeof gpu->target, "--gpu-architecture=%s_%d",
             gpu->wants_ptx ? "compute" : "sm", best);
    return WF_OK;
}

wf_status wfi_cuda_target(const wfi_device *device, char text[WFI_TARGET_BYTES]) {
    wfi_cuda_gpu *gpu = device->state;
    wfi_cuda_machine *all = (void *)gpu->unit.machine;
    if (!*gpu->target) WF_TRY(find_target(device->owner.ctx, all, gpu));
    snprintf(text, WFI_TARGET_BYTES, "%s, CUDA %d.%d", gpu->target, all->nvrtc_major,
             all->nvrtc_minor);
    return WF_OK;
}

wf_status wfi_cuda_load_module(const wfi_device *device, const char *kernel, unsigned char *image,
                               size_t bytes, void **module_out) {
    CUmodule module = NULL;
    (void)bytes;
    wf_status status =
        wfi_cuda_check(device, kernel, wfi_cuda_driver(device)->ModuleLoadData(&module, image));
    *module_out = module;
    return status;
}

static wf_status fail_compile(const wfi_device *device, const char *kernel, nvrtcProgram program) {
    const wfi_cuda_machine *all = wfi_cuda_machine_of(device);
    const wfi_cuda_gpu *gpu = wfi_cuda_gpu_of(device);
    size_t bytes = 0;
    char *log = all->nvrtc.GetProgramLogSize(program, &bytes) ? NULL : calloc(1, bytes + 1);
    if (log && all->nvrtc.GetProgramLog(program, log)) *log = '\0';
    wf_status status =
        wfi_fail(device->owner.ctx, WF_DEVICE,
                 "cuda: weft's kernel %s does not compile for %s (CUDA %d.%d, %s): %.700s", kernel,
                 gpu->unit.name, all->nvrtc_major, all->nvrtc_minor, gpu->target, log ? log : "");
    free(log);
    return status;
}

/* Products and sums are fused only if the source says fma, so that bits do not depend on the
 * compiler. */
static wf_status compile(const wfi_device *device, const char *kernel, nvrtcProgram program,
                         unsigned char **image_out, size_t *bytes_out) {
    const wfi_cuda_gpu *gpu = wfi_cuda_gpu_of(device);
    const wfi_nvrtc *nvrtc = &wfi_cuda_machine_of(device)->nvrtc;
    const char *options[] = {gpu->target, "--fmad=false"};
    bool failed = nvrtc->CompileProgram(program, WFI_COUNT(options), options);
    if (!failed)
        failed = (gpu->wants_ptx ? nvrtc->GetPTXSize : nvrtc->GetCUBINSize)(program, bytes_out);
    if (failed) return fail_compile(device, kernel, program);
    *image_out = malloc(*bytes_out);
    if (!*image_out) return wfi_no_memory(device->owner.ctx, *bytes_out, "kernels");
    failed = (gpu->wants_ptx ? nvrtc->GetPTX : nvrtc->GetCUBIN)(program, (char *)*image_out);
    return failed ? fail_compile(device, kernel, program) : WF_OK;
}

wf_status wfi_cuda_build(const wfi_device *device, const char *kernel, const char *text,
                         void **module_out, unsigned char **image_out, size_t *bytes_out) {
    const wfi_cuda_machine *all = wfi_cuda_machine_of(device);
    nvrtcProgram program;
    if (all->nvrtc.CreateProgram(&program, text, "weft.cu", 0, NULL, NULL))
        return wfi_fail(device->owner.ctx, WF_DEVICE,
                        "cuda: the compiler of CUDA %d.%d does not start", all->nvrtc_major,
                        all->nvrtc_minor);
    wf_status status = compile(device, kernel, program, image_out, bytes_out);
    all->nvrtc.DestroyProgram(&program);
    WF_TRY(status);
    return wfi_cuda_load_module(device, kernel, *image_out, *bytes_out, module_out);
}
