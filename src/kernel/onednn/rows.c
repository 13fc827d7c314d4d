#include "kernel/onednn/rows.h"

#include <math.h>
#include <string.h>

#define LANES WFI_ROW_LANES

/* exp(x) for x <= 0, within 2 units of the last place; 0 where it would be denormal. NaN stays NaN.
 * Cephes' expf: a power of two, and a polynomial on half of ln 2 to both sides of 0. */
static inline float exp_of(float x) {
    const float rounds = 12582912.0f; /* 1.5 * 2^23: what is added to it becomes whole */
    float shifted = x * 1.44269504f + rounds, k = shifted - rounds;
    float r = x - k * 0.693359375f - k * -2.12194440e-4f, p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    float y = p * r * r + r + 1;
    uint32_t bits, power;
    memcpy(&bits, &y, sizeof bits);
    memcpy(&power, &shifted, sizeof power);
    bits += power << 23;
    memcpy(&y, &bits, sizeof y);
    y = x < -87 ? 0 : y;
    return x == x ? y : x; /* a NaN has any bits, and `power` is some of them */
}

static inline float sum_of(const float *lane) {
    float sum[LANES];
    memcpy(sum, lane, sizeof sum);
    for (int half = LANES / 2; half; half /= 2)
        for (int l = 0; l < half; l++) sum[l] += sum[l + half];
    return sum[0];
}

/* The columns up to the next whole number of lanes count nothing. */
static inline int64_t hide(float *s, int64_t n_seen, float value) {
    int64_t end = (n_seen + LANES - 1) / LANES * LANES;
    for (int64_t j = n_seen; j < end; j++) s[j] = value;
    return end;
}

static inline void clear(float *s, int64_t begin, int64_t end) {
    for (int64_t j = begin; j < end; j++) s[j] = 0;
}

WFI_LOOP void attend(const wfi_rows *a) {
    float *sums = a->s + a->n * a->step;
    for (int64_t i = 0; i < a->n; i++) {
        float *restrict s = a->s + i * a->step;
        int64_t end = hide(s, a->n_seen + i * a->more, -INFINITY);
        float max[LANES], sum[LANES] = {0}, most = -INFINITY;
        for (int l = 0; l < LANES; l++) max[l] = -INFINITY;
        for (int64_t j = 0; j < end; j += LANES)
            for (int l = 0; l < LANES; l++) max[l] = s[j + l] > max[l] ? s[j + l] : max[l];
        for (int l = 0; l < LANES; l++) most = max[l] > most ? max[l] : most;
        for (int64_t j = 0; j < end; j += LANES)
            for (int l = 0; l < LANES; l++) {
                float p = exp_of(s[j + l] - most);
                s[j + l] = p;
                sum[l] += p;
            }
        clear(s, end, a->n_columns);
        sums[i] = sum_of(sum);
        a->log_sum[i] = most + logf(sums[i]);
    }
}

WFI_LOOP void divide(const wfi_rows *a) {
    const float *sums = a->s + a->n * a->step;
    for (int64_t i = 0; i < a->n; i++) {
        float *restrict y = a->y + i * a->y_step, factor = 1 / sums[i];
        for (int64_t e = 0; e < a->d; e++) y[e] *= factor;
    }
}

static inline float dot(const float *a, const float *b, int64_t n) {
    float lane[LANES] = {0};
    int64_t e = 0;
    for (; e + LANES <= n; e += LANES)
        for (int l = 0; l < LANES; l++) lane[l] += a[e + l] * b[e + l];
    for (int l = 0; e < n; e++, l++) lane[l] += a[e] * b[e];
    return sum_of(lane);
}

WFI_LOOP void attend_backward(const wfi_rows *a) {
    for (int64_t i = 0; i < a->n; i++) {
        float *restrict s = a->s + i * a->step, *restrict ds = a->ds + i * a->step;
        float log_sum = a->log_sum[i];
        float sum = dot(a->y + i * a->y_step, a->dy + i * a->y_step, a->d);
        int64_t n_seen = a->n_seen + i * a->more, end = hide(s, n_seen, -INFINITY);
        hide(ds, n_seen, 0);
        for (int64_t j = 0; j < end; j++) {
            s[j] = exp_of(s[j] - log_sum);
            ds[j] = s[j] * (ds[j] - sum);
        }
        clear(s, end, a->n_columns);
        clear(ds, end, a->n_columns);
    }
}

WFI_VARIANTS(run_attend, wfi_rows, attend)
WFI_VARIANTS(run_divide, wfi_rows, divide)
WFI_VARIANTS(run_backward, wfi_rows, attend_backward)

void wfi_rows_attend(wfi_variant variant, const wfi_rows *rows) {
    run_attend(variant, rows);
}

void wfi_rows_divide(wfi_variant variant, const wfi_rows *rows) {
    run_divide(variant, rows);
}

void wfi_rows_attend_backward(wfi_variant variant, const wfi_rows *rows) {
    run_backward(variant, rows);
}
