/* Elements of files in the types of models, and back. */
#include "state/header.h"

#include <math.h>
#include <string.h>

/* Exact: a float can hold every half, and infinities and NaNs are preserved.
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

/* Rounds to the adjacent float with an odd last bit: rounding that to a shorter type gives the same
 * result as rounding the double. */
static float from_double_to_odd(const unsigned char *at) {
    double value;
    memcpy(&value, at, sizeof value);
    float nearest = (float)value;
    uint32_t bits;
    if (isnan(value) || (double)nearest == value) return nearest;
    memcpy(&bits, &nearest, sizeof bits);
    bits -= fabs((double)nearest) > fabs(value);
    bits |= 1;
    memcpy(&nearest, &bits, sizeof bits);
    return nearest;
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
    if (!strcmp(dtype_name, "F32")) memcpy(dst, src, n * sizeof *out);
    for (size_t k = 0; k < WFI_COUNT(to_float); k++)
        for (size_t i = 0; i < n && !strcmp(dtype_name, to_float[k].name); i++)
            out[i] = to_float[k].read((const unsigned char *)src + i * to_float[k].bytes);
}

void wfi_convert_to_odd(const void *src, size_t n, float *dst) {
    for (size_t i = 0; i < n; i++)
        dst[i] = from_double_to_odd((const unsigned char *)src + i * sizeof(double));
}

/* ---- back ---- */

/* Without so many of its last bits, to the nearest, ties to even. */
static uint32_t drop_bits(uint32_t value, uint32_t n) {
    if (n > 31) return 0;
    uint32_t dropped = value & ((UINT32_C(1) << n) - 1), half = UINT32_C(1) << (n - 1);
    value >>= n;
    return value + (dropped > half || (dropped == half && value & 1));
}

/* The half nearest to a finite magnitude. Halves are multiples of 2^-24 up to 2^-14; above, their
 * spacing grows. */
static uint32_t half_of(uint32_t size) {
    uint32_t exponent = size >> 23, fraction = (size & 0x7FFFFF) | 0x800000;
    if (exponent < 113) return drop_bits(fraction, 126 - exponent);
    return drop_bits(size - (112u << 23), 13);
}

static uint32_t bfloat_of(uint32_t size) {
    return drop_bits(size, 16);
}

static const struct {
    const char *name;
    uint32_t infinite, none; /* the latter: no number */
    uint32_t (*of)(uint32_t size);
} to_short[] = {{"F16", 0x7C00, 0x7E00, half_of}, {"BF16", 0x7F80, 0x7FC0, bfloat_of}};

size_t wfi_convert_to(const char *dtype_name, const float *src, size_t n, void *dst) {
    size_t k = 0, first = n;
    uint16_t *out = dst;
    while (k < WFI_COUNT(to_short) && strcmp(dtype_name, to_short[k].name) != 0) k++;
    if (k == WFI_COUNT(to_short)) {
        memcpy(dst, src, n * sizeof *src);
        return n;
    }
    for (size_t i = 0; i < n; i++) {
        uint32_t bits, size, is_finite, made;
        memcpy(&bits, &src[i], sizeof bits);
        size = bits & 0x7FFFFFFF;
        is_finite = size < 0x7F800000;
        made = is_finite            ? to_short[k].of(size)
               : size == 0x7F800000 ? to_short[k].infinite
                                    : to_short[k].none;
        if (is_finite && made >= to_short[k].infinite) {
            made = to_short[k].infinite;
            if (first == n) first = i;
        }
        out[i] = (uint16_t)(made | bits >> 31 << 15);
    }
    return first;
}
