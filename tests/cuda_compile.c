/* The kernels of GPUs compile for NVIDIA's, by NVRTC, which needs no GPU.
 *
 * label: once
 */
#include "device/cuda_library.h"
#include "kernel/gpu/gpu.h"
#include "test.h"

#include <limits.h>

#define SKIPPED 77

static wf_context *ctx;
static wfi_nvrtc nvrtc;

/* Every kernel is there. */
TEST_CASE(compiles) {
    static const char *const targets[] = {
        "--gpu-architecture=compute_80", "--gpu-architecture=compute_90",
        "--gpu-architecture=compute_100", "--gpu-architecture=compute_90"};
    for (size_t i = 0; i < WFI_COUNT(targets); i++) {
        /* The last time with operands of BF16. */
        const char *options[] = {targets[i], "--fmad=false",
                                 i + 1 < WFI_COUNT(targets) ? "-DNARROW=0u" : "-DNARROW=0xffffu"};
        nvrtcProgram p;
        size_t bytes;
        char entry[128];
        assert_int_equal(nvrtc.CreateProgram(&p, wfi_gpu_source.text, "weft.cu", 0, NULL, NULL), 0);
        if (nvrtc.CompileProgram(p, 3, options)) {
            assert_int_equal(nvrtc.GetProgramLogSize(p, &bytes), 0);
            char *log = malloc(bytes + 1);
            assert_int_equal(nvrtc.GetProgramLog(p, log), 0);
            fail_msg("%s: %.2000s", targets[i], log);
        }
        assert_int_equal(nvrtc.GetPTXSize(p, &bytes), 0);
        char *text = malloc(bytes + 1);
        assert_int_equal(nvrtc.GetPTX(p, text), 0);
        for (int k = 0; k < wfi_gpu_source.n_entries; k++) {
            snprintf(entry, sizeof entry, ".entry %s(", wfi_gpu_source.entries[k]);
            if (!strstr(text, entry)) fail_msg("%s: no kernel %s", targets[i], entry);
        }
        free(text);
        nvrtc.DestroyProgram(&p);
    }
}

int main(void) {
    ctx = test_context();
    if (wfi_nvrtc_load(ctx, INT_MAX, &nvrtc) != WF_OK) {
        printf("skipped: %s\n", wf_context_error(ctx));
        wf_context_destroy(ctx);
        return SKIPPED;
    }
    int n_failed = test_run(NULL, NULL);
    wf_context_destroy(ctx);
    return n_failed;
}
