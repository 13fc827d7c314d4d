/* The kernels of GPUs compile for NVIDIA's, by NVRTC, which needs no GPU.
 *
 * label: once
 */
#include "kernel/gpu/gpu.h"
#include "test.h"

#include <dlfcn.h>
#include <stdlib.h>

#define SKIPPED 77

typedef void *program;
static struct {
    int (*create)(program *, const char *text, const char *name, int n, const char *const *headers,
                  const char *const *names);
    int (*compile)(program, int n, const char *const *options);
    int (*log_size)(program, size_t *);
    int (*log)(program, char *);
    int (*size)(program, size_t *);
    int (*text)(program, char *);
    int (*destroy)(program *);
} nvrtc;

static bool find(void) {
    static const char *const files[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so",
                                        "/usr/local/cuda/lib64/libnvrtc.so"};
    static const struct {
        const char *name;
        void *function;
    } symbols[] = {{"nvrtcCreateProgram", &nvrtc.create},
                   {"nvrtcCompileProgram", &nvrtc.compile},
                   {"nvrtcGetProgramLogSize", &nvrtc.log_size},
                   {"nvrtcGetProgramLog", &nvrtc.log},
                   {"nvrtcGetPTXSize", &nvrtc.size},
                   {"nvrtcGetPTX", &nvrtc.text},
                   {"nvrtcDestroyProgram", &nvrtc.destroy}};
    void *library = NULL;
    for (size_t i = 0; i < WFI_COUNT(files) && !library; i++) library = dlopen(files[i], RTLD_NOW);
    for (size_t i = 0; i < WFI_COUNT(symbols) && library; i++) {
        void *symbol = dlsym(library, symbols[i].name);
        if (!symbol) return false;
        memcpy(symbols[i].function, &symbol, sizeof symbol);
    }
    return library;
}

/* Every kernel is there. */
static void compiles(void **state) {
    (void)state;
    static const char *const targets[] = {"--gpu-architecture=compute_80",
                                          "--gpu-architecture=compute_90",
                                          "--gpu-architecture=compute_100"};
    for (size_t i = 0; i < WFI_COUNT(targets); i++) {
        const char *options[] = {targets[i], "--fmad=false"};
        program p;
        size_t bytes;
        char entry[128];
        assert_int_equal(nvrtc.create(&p, wfi_gpu_source.text, "weft.cu", 0, NULL, NULL), 0);
        if (nvrtc.compile(p, 2, options)) {
            assert_int_equal(nvrtc.log_size(p, &bytes), 0);
            char *log = malloc(bytes + 1);
            assert_int_equal(nvrtc.log(p, log), 0);
            fail_msg("%s: %.2000s", targets[i], log);
        }
        assert_int_equal(nvrtc.size(p, &bytes), 0);
        char *text = malloc(bytes + 1);
        assert_int_equal(nvrtc.text(p, text), 0);
        for (int k = 0; k < wfi_gpu_source.n_entries; k++) {
            snprintf(entry, sizeof entry, ".entry %s(", wfi_gpu_source.entries[k]);
            if (!strstr(text, entry)) fail_msg("%s: no kernel %s", targets[i], entry);
        }
        free(text);
        nvrtc.destroy(&p);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(compiles)};
    if (!find()) {
        printf("skipped: there is no NVRTC (libnvrtc.so)\n");
        return SKIPPED;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
