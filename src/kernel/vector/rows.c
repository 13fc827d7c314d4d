#include "kernel/vector/rows.h"

#include <math.h>

#define LANES WFI_ROW_LANES

typedef wfi_vector vector;

/* exp(x) for x <= 0, within 2 units of the last place; 0 where it would be denormal. NaN stays NaN.
 * Cephes' expf: a power of two, and a polynomial on half of ln 2 to both sides of 0. */
WFI_LOOP void exp_of(vector *x) {
    const float rounds = 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer */
    vector shifted = *x * 1.44269504f + rounds, k = shifted - rounds;
    vector r = *x - k * 0.693359375f - k * -2.12194440e-4f, p = r * 1.9875691500e-4f;
    p = p + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    vector y = p * r * r + r + 1;
    y = (vector)((wfi_words)y + ((wfi_words)shifted << 23));
    y = (vector)((wfi_mask)y & ~(*x < -87));
    *x = WFI_SELECT(*x == *x, y, *x); /* a NaN has any bits, and `shifted` is some of them */
}

static inline float sum_of(const vector *lanes) {
    float sum[LANES];
    memcpy(sum, lanes, sizeof sum);
    for (int half = LANES / 2; half; half /= 2)
        for (int l = 0; l < half; l++) sum[l] += sum[l + half];
    return sum[0];
}

static inline float largest_of(const vector *lanes) {
    float most = -INFINITY;
    for (int l = 0; l < LANES; l++) most = (*lanes)[l] > most ? (*lanes)[l] : most;
    return most;
}

WFI_LOOP void raise(const float *x, int64_t end, vector *max) {
    for (int64_t j = 0; j < end; j += LANES) {
        vector now;
        wfi_vector_load(x, j, false, &now);
        *max = WFI_SELECT(now > *max, now, *max);
    }
}

/* exp(x - most) of elements from `first` to `end`, which it stores or not; adds them to `sum`. */
WFI_LOOP void exponentials(float *x, int64_t first, int64_t end, float most, bool stores,
                           vector *sum) {
    for (int64_t j = first; j < end; j += LANES) {
        vector p;
        wfi_vector_load(x, j, false, &p);
        p -= most;
        exp_of(&p);
        if (stores) wfi_vector_store(x, j, false, &p);
        *sum += p;
    }
}

/* The columns before the window and up to the next whole number of lanes count nothing. */
static inline int64_t hide(const wfi_rows *a, float *s, int64_t n_seen, float value) {
    int64_t end = (n_seen + LANES - 1) / LANES * LANES;
    for (int64_t j = 0; j < n_seen - a->window; j++) s[j] = value;
    for (int64_t j = n_seen; j < end; j++) s[j] = value;
    return end;
}

static inline void clear(float *s, int64_t begin, int64_t end) {
    for (int64_t j = begin; j < end; j++) s[j] = 0;
}

WFI_LOOP void attend(const wfi_rows *a) {
    float *sums = a->s + a->n * a->step;
    for (int64_t i = 0; i < a->n; i++) {
        float *s = a->s + i * a->step;
        int64_t end = hide(a, s, a->n_seen + i * a->more, -INFINITY);
        vector max = (vector){0} - INFINITY, sum = {0};
        raise(s, end, &max);
        float most = largest_of(&max);
        exponentials(s, 0, end, most, true, &sum);
        clear(s, end, a->n_columns);
        sums[i] = sum_of(&sum);
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

WFI_LOOP float dot(const float *a, const float *b, int64_t n) {
    vector lane = {0}, x, y;
    int64_t e = 0;
    for (; e + LANES <= n; e += LANES) {
        wfi_vector_load(a, e, false, &x);
        wfi_vector_load(b, e, false, &y);
        lane += x * y;
    }
    for (int l = 0; e < n; e++, l++) lane[l] += a[e] * b[e];
    return sum_of(&lane);
}

WFI_LOOP void attend_backward(const wfi_rows *a) {
    for (int64_t i = 0; i < a->n; i++) {
        float *s = a->s + i * a->step, *ds = a->ds + i * a->step, log_sum = a->log_sum[i];
        float sum = dot(a->y + i * a->y_step, a->dy + i * a->y_step, a->d);
        int64_t n_seen = a->n_seen + i * a->more, end = hide(a, s, n_seen, -INFINITY);
        hide(a, ds, n_seen, 0);
        for (int64_t j = 0; j < end; j += LANES) {
            vector p, dp;
            wfi_vector_load(s, j, false, &p);
            wfi_vector_load(ds, j, false, &dp);
            p -= log_sum;
            exp_of(&p);
            dp = p * (dp - sum);
            wfi_vector_store(s, j, false, &p);
            wfi_vector_store(ds, j, false, &dp);
        }
        clear(s, end, a->n_columns);
        clear(ds, end, a->n_columns);
    }
}

/* ---- logits ---- */

/* Fills max and sum. The tail is padded with -infinity, which adds nothing, to a whole number of
 * lanes. */
WFI_LOOP void sum_classes(wfi_class_row *row, bool stores) {
    enum { N_AT_ONCE = 1024 };
    float *x = row->x, tail[LANES];
    int64_t end = row->n / LANES * LANES;
    for (int64_t l = 0; l < LANES; l++) tail[l] = end + l < row->n ? x[end + l] : -INFINITY;
    vector max = (vector){0} - INFINITY, part = {0};
    raise(x, end, &max);
    raise(tail, LANES, &max);
    row->max = largest_of(&max);
    exponentials(tail, 0, LANES, row->max, true, &part);
    row->sum = (double)sum_of(&part);
    for (int64_t first = 0; first < end; first += N_AT_ONCE) {
        part = (vector){0};
        exponentials(x, first, end - first < N_AT_ONCE ? end : first + N_AT_ONCE, row->max, stores,
                     &part);
        row->sum += (double)sum_of(&part);
    }
    for (int64_t j = end; j < row->n && stores; j++) x[j] = tail[j - end];
}

typedef struct class_row_call {
    wfi_class_row *row;
} class_row_call;

WFI_LOOP void class_sum(const class_row_call *c) {
    sum_classes(c->row, false);
}

WFI_LOOP void class_softmax(const class_row_call *c) {
    sum_classes(c->row, true);
    float *restrict x = c->row->x, factor = (float)(c->row->factor / c->row->sum);
    for (int64_t j = 0, n = c->row->n; j < n; j++) x[j] *= factor;
}

WFI_VARIANTS(run_class_sum, class_row_call, class_sum)
WFI_VARIANTS(run_class_softmax, class_row_call, class_softmax)

void wfi_class_row_sum(wfi_variant variant, wfi_class_row *row) {
    run_class_sum(variant, &(class_row_call){row});
}

void wfi_class_row_softmax(wfi_variant variant, wfi_class_row *row) {
    run_class_softmax(variant, &(class_row_call){row});
}

WFI_PUBLIC_VARIANTS(wfi_rows_attend, wfi_rows, attend)
WFI_PUBLIC_VARIANTS(wfi_rows_divide, wfi_rows, divide)
WFI_PUBLIC_VARIANTS(wfi_rows_attend_backward, wfi_rows, attend_backward)
