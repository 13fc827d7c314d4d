#include "device/cuda_program.h"

#include "device/program_cache.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct compiler {
    wf_context *ctx;
    const wfi_cuda_gpu *gpu;
    const char *kernel;
    wfi_nvrtc nvrtc;
    int major, minor; /* its version */
    bool is_older;    /* than the GPU, whose driver has the last word: PTX */
    char target[64];  /* the option that names the GPU */
} compiler;

/* The GPU's own architecture, or else the newest before it. */
static wf_status find_target(compiler *c) {
    int n = 0, own = c->gpu->major * 10 + c->gpu->minor, best = 0;
    bool failed = c->nvrtc.Version(&c->major, &c->minor) || c->nvrtc.GetNumSupportedArchs(&n);
    int *known = calloc((size_t)n + 1, sizeof *known);
    failed |= !known || c->nvrtc.GetSupportedArchs(known);
    for (int i = 0; i < n && !failed; i++)
        if (known[i] <= own && known[i] > best) best = known[i];
    free(known);
    if (!best)
        return wfi_fail(c->ctx, WF_UNSUPPORTED,
                        "cuda: the compiler of CUDA %d.%d makes no kernels for %s (sm_%d); install "
                        "an older NVRTC",
                        c->major, c->minor, c->gpu->name, own);
    c->is_older = best != own;
    snprintf(c->target, sizeof c->target, "--gpu-architecture=%s_%d",
             c->is_older ? "compute" : "sm", best);
    return WF_OK;
}

static wf_status fail_compile(const compiler *c, nvrtcProgram program) {
    size_t bytes = 0;
    char *log = c->nvrtc.GetProgramLogSize(program, &bytes) ? NULL : calloc(1, bytes + 1);
    if (log && c->nvrtc.GetProgramLog(program, log)) *log = '\0';
    wf_status status =
        wfi_fail(c->ctx, WF_DEVICE,
                 "cuda: weft's kernel %s does not compile for %s (CUDA %d.%d, %s): %.700s",
                 c->kernel, c->gpu->name, c->major, c->minor, c->target, log ? log : "");
    free(log);
    return status;
}

/* No products and sums are made one but those that say so: bits do not depend on the compiler's
 * taste. */
static wf_status compile(const compiler *c, const char *text, unsigned char **image_out,
                         size_t *bytes_out) {
    const char *options[] = {c->target, "--fmad=false"};
    const wfi_nvrtc *nvrtc = &c->nvrtc;
    nvrtcProgram program;
    wf_status status = WF_OK;
    *image_out = NULL;
    if (nvrtc->CreateProgram(&program, text, "weft.cu", 0, NULL, NULL))
        return wfi_fail(c->ctx, WF_DEVICE, "cuda: the compiler of CUDA %d.%d does not begin",
                        c->major, c->minor);
    bool failed = nvrtc->CompileProgram(program, WFI_COUNT(options), options);
    if (!failed)
        failed = (c->is_older ? nvrtc->GetPTXSize : nvrtc->GetCUBINSize)(program, bytes_out);
    if (!failed) *image_out = malloc(*bytes_out);
    if (!failed && !*image_out) status = wfi_no_memory(c->ctx, *bytes_out, "kernels");
    if (*image_out)
        failed = (c->is_older ? nvrtc->GetPTX : nvrtc->GetCUBIN)(program, (char *)*image_out);
    if (failed) status = fail_compile(c, program);
    nvrtc->DestroyProgram(&program);
    if (status == WF_OK) return WF_OK;
    free(*image_out);
    *image_out = NULL;
    return status;
}

/* From what an earlier process has left, or compiled now. */
static wf_status load(const compiler *c, const wfi_cuda *driver, const char *text,
                      CUmodule *module_out) {
    char version[32];
    size_t bytes;
    snprintf(version, sizeof version, "%d.%d", c->major, c->minor);
    const char *const parts[] = {text, c->target, version};
    wfi_program_cache cache = wfi_program_cache_find("cuda", parts, WFI_COUNT(parts));
    unsigned char *image = wfi_program_cache_read(&cache, &bytes);
    bool is_new = !image;
    if (is_new) WF_TRY(compile(c, text, &image, &bytes));
    wf_status status = wfi_cuda_check(c->ctx, driver, c->gpu, c->kernel,
                                      driver->ModuleLoadData(module_out, image));
    if (status == WF_OK && is_new) wfi_program_cache_write(&cache, image, bytes);
    free(image);
    return status;
}

wf_status wfi_cuda_compile(wf_context *ctx, const wfi_cuda *driver, int driver_version,
                           const wfi_cuda_gpu *gpu, const wfi_kernel_launch *launch,
                           CUmodule *module_out) {
    const wfi_launch_source *source = launch->source;
    compiler c = {.ctx = ctx, .gpu = gpu, .kernel = source->entries[launch->entry]};
    WF_TRY(wfi_nvrtc_load(ctx, driver_version, &c.nvrtc));
    WF_TRY(find_target(&c));
    char *text = wfi_launch_text(source, launch->entry, launch->narrow);
    if (!text) return wfi_no_memory(ctx, strlen(source->text), "a program's text");
    wf_status status = load(&c, driver, text, module_out);
    free(text);
    return status;
}
