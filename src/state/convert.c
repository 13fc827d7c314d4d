/* Elements of files in the types of models. */
#include "state/header.h"

#include <math.h>
#include <string.h>

/* Exact: a float has every half's value, and infinities and what is no number stay what they are.
 */
static float from_half(const unsigned char *at) {
    uint16_t half;
    memcpy(&half, at, sizeof half);
    int exponent = half >> 10 & 31, fraction = half & 1023;
    float size = exponent == 31 ? (fraction ? NAN : INFINITY)
                 : exponent     ? ldexpf((float)(fraction + 1024), exponent - 25)
                                : ldexpf((float)fraction, -24);
    return half >> 15 ? -size : size;
}

static float from_bfloat(const unsigned char *at) {
    uint16_t upper;
    memcpy(&upper, at, sizeof upper);
    uint32_t bits = (uint32_t)upper << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static float from_double(const unsigned char *at) {
    double value;
    memcpy(&value, at, sizeof value);
    return (float)value; /* to the nearest, ties to even */
}

static const struct {
    const char *name;
    size_t bytes;
    float (*read)(const unsigned char *at);
} to_float[] = {{"F16", 2, from_half}, {"BF16", 2, from_bfloat}, {"F64", 8, from_double}};

size_t wfi_convert_bytes(const char *dtype_name, wf_dtype dtype) {
    for (size_t k = 0; k < WFI_COUNT(to_float); k++)
        if (dtype == WF_F32 && !strcmp(dtype_name, to_float[k].name)) return to_float[k].bytes;
    return 0;
}

void wfi_convert(const char *dtype_name, const void *src, size_t n, void *dst) {
    float *out = dst;
    for (size_t k = 0; k < WFI_COUNT(to_float); k++)
        for (size_t i = 0; i < n && !strcmp(dtype_name, to_float[k].name); i++)
            out[i] = to_float[k].read((const unsigned char *)src + i * to_float[k].bytes);
}
