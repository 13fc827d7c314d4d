#include "device/cuda_library.h"

#include "base/library.h"

#include <stdio.h>

/* CUDA 11.2: the oldest supported version, and the first with a compiler that lists its GPUs. */
#define OLDEST_VERSION 11020

#define SYMBOL(name, symbol, parameters) #symbol,

const char *wfi_cuda_error(const wfi_cuda *driver, wfi_cuda_enum error,
                           char text[WFI_CUDA_ERROR_TEXT]) {
    const char *name, *means;
    if (driver->GetErrorName(error, &name) || driver->GetErrorString(error, &means))
        snprintf(text, WFI_CUDA_ERROR_TEXT, "error %u", error);
    else
        snprintf(text, WFI_CUDA_ERROR_TEXT, "%s: %s", name, means);
    return text;
}

static const char *const driver_files[] = {"libcuda.so.1", NULL};

wf_status wfi_cuda_graphs_load(wf_context *ctx, wfi_cuda_graphs *graphs_out) {
    static const char *const symbols[] = {WFI_CUDA_GRAPH_FUNCTIONS(SYMBOL) NULL};
    static const wfi_library library = {"cuda", driver_files, symbols, "", "it has no graphs"};
    return wfi_library_load(ctx, &library, graphs_out);
}

wf_status wfi_cuda_load(wf_context *ctx, wfi_cuda *driver_out, int *version_out) {
    static const char *const symbols[] = {WFI_CUDA_FUNCTIONS(SYMBOL) NULL};
    static const wfi_library library = {
        "cuda", driver_files, symbols, "install the driver of its NVIDIA GPU",
        "it is not a driver of CUDA 11.2 or newer; reinstall the GPU's driver"};
    char text[WFI_CUDA_ERROR_TEXT];
    *version_out = 0;
    WF_TRY(wfi_library_load(ctx, &library, driver_out));
    wfi_cuda_enum error = driver_out->DriverGetVersion(version_out);
    if (!error && *version_out < OLDEST_VERSION)
        return wfi_fail(ctx, WF_UNSUPPORTED,
                        "cuda: the driver supports CUDA %d.%d, and weft needs 11.2 or newer; "
                        "install a newer driver",
                        *version_out / 1000, *version_out % 1000 / 10);
    if (!error) error = driver_out->Init(0);
    if (!error) return WF_OK;
    return wfi_fail(ctx, WF_UNSUPPORTED,
                    error == WFI_CUDA_NO_DEVICE
                        ? "cuda: the driver is installed, but finds no GPU (%s); see nvidia-smi "
                          "and CUDA_VISIBLE_DEVICES"
                        : "cuda: the driver does not start (%s); see nvidia-smi",
                    wfi_cuda_error(driver_out, error, text));
}

wf_status wfi_nvrtc_load(wf_context *ctx, int driver_version, wfi_nvrtc *compiler_out) {
    static const char *const files[] = {"libnvrtc.so.13",
                                        "/usr/local/cuda/lib64/libnvrtc.so.13",
                                        "libnvrtc.so.12",
                                        "/usr/local/cuda/lib64/libnvrtc.so.12",
                                        "libnvrtc.so.11.2",
                                        "/usr/local/cuda/lib64/libnvrtc.so.11.2",
                                        NULL};
    static const char *const symbols[] = {WFI_NVRTC_FUNCTIONS(SYMBOL) NULL};
    int newest = driver_version / 1000;
    wfi_library library = {"cuda", files, symbols,
                           "install CUDA's compiler, NVRTC, of the driver's version or an older "
                           "one (package libnvrtc12, or cuda-nvrtc of NVIDIA's)",
                           "it is not a compiler of CUDA 11.2 or newer"};
    /* An older driver does not load programs of a newer compiler. */
    if (newest < 13) library.files += newest < 12 ? 4 : 2;
    return wfi_library_load(ctx, &library, compiler_out);
}
