#include "base/random.h"

#include "base/hash.h"
#include "base/race.h"
#include "base/variants.h"

#include <math.h>
#include <string.h>

uint64_t wfi_random_name(const char *name) {
    return wfi_hash_add(WFI_HASH_INIT, name, strlen(name));
}

typedef uint64_t ulong;
typedef uint32_t uint;
#define DEVICE WFI_LOOP
#include "base/random.cl"

void wfi_random_words(wfi_random_key key, uint64_t high, uint64_t low, uint32_t words_out[4]) {
    philox(fold_key(key.seed, key.name), high, low, words_out);
}

float wfi_random_uniform(wfi_random_key key, uint64_t high, uint64_t index) {
    return draw_uniform(key.seed, key.name, high, index);
}

typedef struct drawing {
    uint64_t folded, high, low;
    int64_t n_blocks; /* of four */
    float *out;
} drawing;

WFI_LOOP void draw_loop(const drawing *d) {
    const drawing a = *d; /* a copy, which the stores below cannot alias */
    float *restrict out = a.out;
    for (int64_t b = 0; b < a.n_blocks; b++) {
        uint32_t words[4];
        philox(a.folded, a.high, a.low + (uint64_t)b, words);
        for (int k = 0; k < 4; k++) out[4 * b + k] = (float)(int32_t)(words[k] >> 8) * 0x1p-24f;
    }
}

WFI_VARIANTS(draw, drawing, draw_loop)

void wfi_random_draw_uniform(wfi_variant variant, wfi_random_key key, uint64_t high, uint64_t first,
                             int64_t n, float *out) {
    int64_t at = 0;
    wfi_touches(out, (size_t)n * sizeof *out, true);
    for (; at < n && (first + (uint64_t)at) & 3; at++)
        out[at] = wfi_random_uniform(key, high, first + (uint64_t)at);
    int64_t n_blocks = (n - at) / 4;
    draw(variant, &(drawing){fold_key(key.seed, key.name), high, (first + (uint64_t)at) >> 2,
                             n_blocks, out + at});
    for (at += 4 * n_blocks; at < n; at++)
        out[at] = wfi_random_uniform(key, high, first + (uint64_t)at);
}

void wfi_random_fill_uniform(wfi_random_key key, uint64_t high, uint64_t first, int64_t n,
                             float *out) {
    wfi_random_draw_uniform(wfi_best_variant(), key, high, first, n, out);
}

/* Two words give two normals. */
static void box_muller(const uint32_t pair[2], float out[2]) {
    float radius = sqrtf(-2 * logf(((float)pair[0] + 0.5f) * 0x1p-32f));
    float angle = 6.2831853f * ((float)pair[1] * 0x1p-32f);
    out[0] = radius * cosf(angle);
    out[1] = radius * sinf(angle);
}

static void four_normals(wfi_random_key key, uint64_t high, uint64_t block, float out[4]) {
    uint32_t words[4];
    wfi_random_words(key, high, block, words);
    box_muller(words, out);
    box_muller(words + 2, out + 2);
}

float wfi_random_normal(wfi_random_key key, uint64_t high, uint64_t index) {
    float four[4];
    four_normals(key, high, index >> 2, four);
    return four[index & 3];
}

void wfi_random_fill_normal(wfi_random_key key, uint64_t high, uint64_t first, float scale,
                            int64_t n, float *out) {
    float four[4];
    wfi_touches(out, (size_t)n * sizeof *out, true);
    for (int64_t i = 0; i < n; i++) {
        uint64_t index = first + (uint64_t)i;
        if (i == 0 || (index & 3) == 0) four_normals(key, high, index >> 2, four);
        out[i] = four[index & 3] * scale;
    }
}

/* The logarithm of a gamma variate (Marsaglia and Tsang, 2000), because the variate may underflow
 * in every type. *index counts draws of four words. */
static double log_gamma(wfi_random_key key, uint64_t high, double alpha, uint64_t *index) {
    double d = (alpha < 1 ? alpha + 1 : alpha) - 1.0 / 3, c = 1 / sqrt(9 * d);
    for (;;) {
        uint32_t words[4];
        float normal[2];
        wfi_random_words(key, high, (*index)++, words);
        box_muller(words, normal);
        double x = normal[0], v = 1 + c * x, u = ((double)words[2] + 0.5) * 0x1p-32;
        if (v <= 0) continue;
        v = v * v * v;
        if (log(u) >= x * x / 2 + d * (1 - v + log(v))) continue;
        double small = alpha < 1 ? log(((double)words[3] + 0.5) * 0x1p-32) / alpha : 0;
        return log(d * v) + small;
    }
}

double wfi_random_beta(wfi_random_key key, uint64_t high, double alpha) {
    uint64_t index = 0;
    double first = log_gamma(key, high, alpha, &index);
    return 1 / (1 + exp(log_gamma(key, high, alpha, &index) - first));
}

void wfi_random_shuffle(wfi_random_key key, uint64_t high, int64_t n, int64_t *order_out) {
    for (int64_t i = 0; i < n; i++) order_out[i] = i;
    for (int64_t i = n - 1; i > 0; i--) {
        uint32_t words[4];
        wfi_random_words(key, high, (uint64_t)i, words);
        uint64_t wide = (uint64_t)words[0] << 32 | words[1];
        /* The high half of a 64 x 64 bit product: a bias below 2^-32. */
        int64_t j = (int64_t)((unsigned __int128)wide * (uint64_t)(i + 1) >> 64);
        int64_t kept = order_out[i];
        order_out[i] = order_out[j];
        order_out[j] = kept;
    }
}
