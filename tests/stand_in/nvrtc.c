/* The stand-in for NVRTC: a program is the name of its target. */
#include "stand_in.h"

#include <stdio.h>
#include <string.h>

struct _nvrtcProgram {
    char target[64], image[96];
    unsigned narrow; /* which operands are BF16: the kernels of the host ask for it as they run */
    bool is_compiled;
};

enum { FINE, INVALID_INPUT = 3, INVALID_OPTION = 5, COMPILATION = 6 };

static const int targets[] = {80, 90, 100};
static const char text_of_failure[] = "weft.cu(1): error: as STAND_IN_COMPILE orders";

#define EXPORT(name, parameters)                                                                   \
    STAND_IN_API wfi_cuda_enum name parameters;                                                    \
    wfi_cuda_enum name parameters

EXPORT(nvrtcVersion, (int *major, int *minor)) {
    *major = 13;
    *minor = 99; /* no real one's, whose programs are kept beside these */
    return FINE;
}

EXPORT(nvrtcGetNumSupportedArchs, (int *n)) {
    *n = (int)WFI_COUNT(targets);
    return FINE;
}

EXPORT(nvrtcGetSupportedArchs, (int *out)) {
    memcpy(out, targets, sizeof targets);
    return FINE;
}

EXPORT(nvrtcCreateProgram, (nvrtcProgram * out, const char *text, const char *name, int n,
                            const char *const *headers, const char *const *names)) {
    (void)name, (void)headers, (void)names;
    if (n || !strstr(text, "KERNEL(")) return INVALID_INPUT;
    *out = calloc(1, sizeof **out);
    (void)sscanf(text, "#define NARROW %x", &(*out)->narrow);
    return FINE;
}

EXPORT(nvrtcDestroyProgram, (nvrtcProgram * program)) {
    free(*program);
    *program = NULL;
    return FINE;
}

EXPORT(nvrtcCompileProgram, (nvrtcProgram program, int n, const char *const *options)) {
    static const char begin[] = "--gpu-architecture=";
    for (int i = 0; i < n; i++) {
        if (!strncmp(options[i], begin, strlen(begin)))
            snprintf(program->target, sizeof program->target, "%s", options[i] + strlen(begin));
        else if (strcmp(options[i], "--fmad=false") != 0)
            return INVALID_OPTION;
    }
    bool is_known = false;
    for (size_t i = 0; i < WFI_COUNT(targets) && *program->target; i++)
        is_known |= atoi(strchr(program->target, '_') + 1) == targets[i];
    if (!is_known) return INVALID_OPTION;
    if (!stand_in_variable("STAND_IN_COMPILE", 1)) return COMPILATION;
    snprintf(program->image, sizeof program->image, "stand-in %s %x", program->target,
             program->narrow);
    program->is_compiled = true;
    return FINE;
}

EXPORT(nvrtcGetProgramLogSize, (nvrtcProgram program, size_t *bytes)) {
    *bytes = program->is_compiled ? 1 : sizeof text_of_failure;
    return FINE;
}

EXPORT(nvrtcGetProgramLog, (nvrtcProgram program, char *log)) {
    strcpy(log, program->is_compiled ? "" : text_of_failure);
    return FINE;
}

static wfi_cuda_enum tell(nvrtcProgram program, const char *kind, size_t *bytes, char *image) {
    if (!program->is_compiled || strncmp(program->target, kind, strlen(kind)) != 0)
        return INVALID_INPUT;
    if (bytes) *bytes = sizeof program->image;
    if (image) memcpy(image, program->image, sizeof program->image);
    return FINE;
}

EXPORT(nvrtcGetCUBINSize, (nvrtcProgram program, size_t *bytes)) {
    return tell(program, "sm_", bytes, NULL);
}

EXPORT(nvrtcGetCUBIN, (nvrtcProgram program, char *image)) {
    return tell(program, "sm_", NULL, image);
}

EXPORT(nvrtcGetPTXSize, (nvrtcProgram program, size_t *bytes)) {
    return tell(program, "compute_", bytes, NULL);
}

EXPORT(nvrtcGetPTX, (nvrtcProgram program, char *image)) {
    return tell(program, "compute_", NULL, image);
}
