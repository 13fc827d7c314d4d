#include "device/opencl_library.h"

#include "base/library.h"

#include <stdio.h>

wf_status wfi_opencl_load(wf_context *ctx, wfi_opencl *library_out) {
#define SYMBOL(name, result, parameters) "cl" #name,
    static const char *const files[] = {"libOpenCL.so.1", NULL};
    static const char *const symbols[] = {WFI_OPENCL_LIST(SYMBOL) NULL};
    static const wfi_library library = {
        "opencl", files, symbols,
        "install the driver of its GPU, or packages ocl-icd-libopencl1 and pocl-opencl-icd for its "
        "CPU",
        "it is older than 1.2"};
    return wfi_library_load(ctx, &library, library_out);
}

const char *wfi_opencl_error(cl_int error, char text[64]) {
    static const struct {
        cl_int error;
        const char *name;
    } names[] = {{-1, "it has none"},
                 {-2, "device not available"},
                 {-4, "out of device memory"},
                 {-5, "out of resources"},
                 {-6, "out of host memory"},
                 {-11, "the build failed"},
                 {-14, "work waited for failed"},
                 {-30, "invalid value"},
                 {-36, "invalid queue"},
                 {-38, "invalid memory object"},
                 {-46, "no such kernel"},
                 {-52, "arguments are missing"},
                 {-54, "invalid group size"},
                 {-59, "invalid operation"},
                 {-61, "invalid size of buffer"},
                 {-1001, "no platform is installed"}};
    const char *name = "error";
    for (size_t i = 0; i < WFI_COUNT(names); i++)
        if (names[i].error == error) name = names[i].name;
    snprintf(text, 64, "%s (%d)", name, (int)error);
    return text;
}
