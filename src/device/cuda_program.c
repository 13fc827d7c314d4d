#include "device/cuda_program.h"

#include "device/program_cache.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct compiler {
    wf_context *ctx;
    const wfi_cuda_gpu *gpu;
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
    wf_status status = wfi_fail(
        c->ctx, WF_DEVICE, "cuda: weft's kernels do not compile for %s (CUDA %d.%d, %s): %.700s",
        c->gpu->name, c->major, c->minor, c->target, log ? log : "");
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

static wf_status find_functions(wf_context *ctx, const wfi_cuda *driver, const wfi_cuda_gpu *gpu,
                                const wfi_launch_source *source, wfi_cuda_program *program) {
    program->functions = calloc((size_t)source->n_entries, sizeof *program->functions);
    if (!program->functions)
        return wfi_no_memory(ctx, sizeof *program->functions, "a GPU's kernels");
    for (int i = 0; i < source->n_entries; i++)
        WF_TRY(wfi_cuda_check(ctx, driver, gpu, source->entries[i],
                              driver->ModuleGetFunction(&program->functions[i], program->module,
                                                        source->entries[i])));
    return WF_OK;
}

wf_status wfi_cuda_compile(wf_context *ctx, const wfi_cuda *driver, int driver_version,
                           const wfi_cuda_gpu *gpu, const wfi_launch_source *source,
                           wfi_cuda_program *program_out) {
    compiler c = {.ctx = ctx, .gpu = gpu};
    wfi_cuda_program program = {NULL, NULL};
    char version[32];
    size_t bytes;
    WF_TRY(wfi_nvrtc_load(ctx, driver_version, &c.nvrtc));
    WF_TRY(find_target(&c));
    snprintf(version, sizeof version, "%d.%d", c.major, c.minor);
    const char *const parts[] = {source->text, c.target, version};
    wfi_program_cache cache = wfi_program_cache_find("cuda", parts, WFI_COUNT(parts));
    unsigned char *image = wfi_program_cache_read(&cache, &bytes);
    bool is_new = !image;
    if (is_new) WF_TRY(compile(&c, source->text, &image, &bytes));
    wf_status status = wfi_cuda_check(ctx, driver, gpu, "loading weft's kernels",
                                      driver->ModuleLoadData(&program.module, image));
    if (status == WF_OK && is_new) wfi_program_cache_write(&cache, image, bytes);
    free(image);
    if (status == WF_OK) status = find_functions(ctx, driver, gpu, source, &program);
    if (status != WF_OK) wfi_cuda_program_destroy(driver, &program);
    *program_out = program;
    return status;
}

void wfi_cuda_program_destroy(const wfi_cuda *driver, wfi_cuda_program *program) {
    if (program->module) driver->ModuleUnload(program->module);
    free(program->functions);
    *program = (wfi_cuda_program){NULL, NULL};
}
