/* formula.py in C, bit for bit: the weights and inputs of the golden networks.
 * README.md states the formula in words. Uses integers, and float operations that
 * are exact or rounded once, so no compiler option changes the result.
 */
#pragma once

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* FNV-1a of the name. */
static inline uint64_t golden_seed(const char *name) {
    uint64_t h = 0xCBF29CE484222325u;
    for (; *name; name++) h = (h ^ (unsigned char)*name) * 0x100000001B3u;
    return h;
}

/* The i-th number of splitmix64 started at `seed`. */
static inline uint64_t golden_hash(uint64_t seed, uint64_t i) {
    uint64_t z = seed + (i + 1) * 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

/* out[i] = base + scale * u, u uniform in [-1, 1) on a grid of 2^-23. */
static inline void golden_fill(const char *name, float scale, float base, float *out, size_t n) {
    uint64_t seed = golden_seed(name);
    for (size_t i = 0; i < n; i++) {
        int32_t k = (int32_t)(golden_hash(seed, i) >> 40) - (1 << 23);
        float x = (float)k * 0x1p-23f * scale;
        out[i] = base != 0 ? base + x : x;
    }
}

/* out[i] in [0, n_values): labels and token ids. */
static inline void golden_fill_integers(const char *name, uint32_t n_values, int32_t *out,
                                        size_t n) {
    uint64_t seed = golden_seed(name);
    for (size_t i = 0; i < n; i++) out[i] = (int32_t)((golden_hash(seed, i) >> 32) % n_values);
}

/* A parameter of ResNet-50 or GPT-2 by its name and shape. */
static inline void golden_fill_parameter(const char *name, const int64_t *shape, int n_dims,
                                         float *out) {
    size_t n = 1;
    for (int i = 0; i < n_dims; i++) n *= (size_t)shape[i];
    size_t length = strlen(name);
    int weight = length > 7 && !strcmp(name + length - 7, ".weight");
    float scale, base = 0;
    if (n_dims == 4) {
        scale = (float)sqrt(6.0 / (double)(shape[0] * shape[2] * shape[3]));
    } else if (!strcmp(name, "fc.weight")) {
        scale = (float)sqrt(6.0 / (double)shape[0]);
    } else if (strstr(name, "bn3.")) {
        scale = weight ? 0x1p-6f : 0.5f;
        base = weight ? 0.1f : 0;
    } else if (strstr(name, "bn") || strstr(name, "downsample.1.")) {
        scale = weight ? 0x1p-4f : 4;
        base = weight ? 1 : 0;
    } else if (strstr(name, "ln_") && weight) {
        scale = 0x1p-4f;
        base = 1;
    } else if (n_dims == 1) {
        scale = 0x1p-6f;
    } else {
        scale = strstr(name, "c_attn") ? 0x1p-2f : 0x1p-3f;
    }
    golden_fill(name, scale, base, out, n);
}

#define GOLDEN_N_SAMPLES 64

/* Of a tensor of n elements, golden_n_samples(n) are kept; the i-th is this one. */
static inline size_t golden_n_samples(size_t n) {
    return n < GOLDEN_N_SAMPLES ? n : GOLDEN_N_SAMPLES;
}
static inline size_t golden_sample_index(const char *name, size_t n, size_t i) {
    if (n <= GOLDEN_N_SAMPLES) return i;
    uint64_t h = 0xCBF29CE484222325u; /* golden_seed("sample:" + name) */
    for (const char *s = "sample:"; *s; s++) h = (h ^ (unsigned char)*s) * 0x100000001B3u;
    for (; *name; name++) h = (h ^ (unsigned char)*name) * 0x100000001B3u;
    return (size_t)((golden_hash(h, i) >> 32) % n);
}

/* Of the bits of x; the golden files hold it for every parameter and input. */
static inline uint64_t golden_checksum(const float *x, size_t n) {
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        sum += bits * (2 * (uint64_t)i + 1);
    }
    return sum;
}
