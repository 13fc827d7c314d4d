#include "kernel/vector/channels.h"

#include "kernel/vector/vector.h"

#include <math.h>

#define LANES WFI_BLOCK_CHANNELS

/* Sums in F32 are of so many pixels at most, and are added in double: the first cache holds these
 * pixels while their mean is found, and then their variance. */
#define PIXELS_AT_ONCE 256
/* An addition may begin before the one before has ended. */
#define N_SUMS 4

/* A number of each channel. */
typedef wfi_vector vector;

/* Sets `passed` to 0 where `value` is not positive; a NaN lets it pass. */
WFI_LOOP void stop(vector *passed, const vector *value) {
    *passed = (vector)((wfi_mask)*passed & ~(*value <= 0));
}

/* ---- pixels summed at once: part of an image, or a few images ---- */

typedef struct part {
    int64_t n_images, n_pixels;
    int64_t at; /* the first element */
    int64_t n;  /* pixels of all these images */
} part;

/* Moves `p` to the next part, or, if its n is 0, to the first. False: there is none. */
WFI_LOOP bool next_part(const wfi_channels *c, int64_t *image, int64_t *pixel, part *p) {
    if (*image >= c->n) return false;
    p->n_images = c->n_pixels < PIXELS_AT_ONCE ? PIXELS_AT_ONCE / c->n_pixels : 1;
    if (p->n_images > c->n - *image) p->n_images = c->n - *image;
    p->n_pixels = c->n_pixels - *pixel;
    if (p->n_pixels > PIXELS_AT_ONCE) p->n_pixels = PIXELS_AT_ONCE;
    p->at = *image * c->step + *pixel * LANES;
    p->n = p->n_images * p->n_pixels;
    *pixel += p->n_pixels;
    if (*pixel < c->n_pixels) return true;
    *pixel = 0;
    *image += p->n_images;
    return true;
}

WFI_LOOP void add_up(const vector *sums, vector *out) {
    *out = (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

/* ---- forward ---- */

WFI_LOOP void sum_part(const wfi_channels *c, const part *p, bool is_narrow, vector *out) {
    vector sum[N_SUMS] = {{0}}, x;
    for (int64_t i = 0; i < p->n_images; i++) {
        int64_t at = p->at + i * c->step, end = at + p->n_pixels * LANES;
        for (; at + N_SUMS * LANES <= end; at += N_SUMS * LANES)
            for (int k = 0; k < N_SUMS; k++) {
                wfi_vector_load(c->x, at + k * LANES, is_narrow, &x);
                sum[k] += x;
            }
        for (; at < end; at += LANES) {
            wfi_vector_load(c->x, at, is_narrow, &x);
            sum[0] += x;
        }
    }
    add_up(sum, out);
}

WFI_LOOP void sum_squares(const wfi_channels *c, const part *p, bool is_narrow, const vector *mean,
                          vector *out) {
    vector sum[N_SUMS] = {{0}}, x;
    for (int64_t i = 0; i < p->n_images; i++) {
        int64_t at = p->at + i * c->step, end = at + p->n_pixels * LANES;
        for (; at + N_SUMS * LANES <= end; at += N_SUMS * LANES)
            for (int k = 0; k < N_SUMS; k++) {
                wfi_vector_load(c->x, at + k * LANES, is_narrow, &x);
                x -= *mean;
                sum[k] += x * x;
            }
        for (; at < end; at += LANES) {
            wfi_vector_load(c->x, at, is_narrow, &x);
            x -= *mean;
            sum[0] += x * x;
        }
    }
    add_up(sum, out);
}

/* Parts are joined as Chan, Golub and LeVeque do (1979). */
WFI_LOOP void find_statistics(const wfi_channels *c, bool is_narrow) {
    double mean[LANES] = {0}, squares[LANES] = {0};
    int64_t n_before = 0, image = 0, pixel = 0;
    for (part p; next_part(c, &image, &pixel, &p); n_before += p.n) {
        vector sum, own;
        sum_part(c, &p, is_narrow, &sum);
        sum *= 1 / (float)p.n;
        sum_squares(c, &p, is_narrow, &sum, &own);
        double share = (double)p.n / (double)(n_before + p.n), weight = share * (double)n_before;
        for (int l = 0; l < LANES; l++) {
            double more = (double)sum[l] - mean[l];
            mean[l] += more * share;
            squares[l] += (double)own[l] + more * more * weight;
        }
    }
    for (int l = 0; l < LANES; l++) {
        c->mean[l] = (float)mean[l];
        c->var[l] = (float)(squares[l] / (double)n_before);
    }
}

/* The backward recomputes the output with the same expression, so with the same bits. */
typedef struct transform {
    vector mean, factor, shift;
    double inverse[LANES]; /* of the standard deviation */
} transform;

WFI_LOOP void prepare(const wfi_channels *c, transform *t) {
    for (int l = 0; l < LANES; l++) {
        double inverse = 1 / sqrt((double)c->var[l] + c->eps);
        t->inverse[l] = inverse;
        t->mean[l] = c->mean[l];
        t->factor[l] = (float)(c->scale[l] * inverse);
        t->shift[l] = c->shift ? c->shift[l] : 0;
    }
}

WFI_LOOP void normalize_as(const wfi_channels *c, bool is_narrow, bool adds) {
    transform t;
    find_statistics(c, is_narrow);
    prepare(c, &t);
    const vector mean = t.mean, factor = t.factor, shift = t.shift;
    bool relu = c->relu;
    for (int64_t i = 0; i < c->n; i++)
        for (int64_t at = i * c->step, end = at + c->n_pixels * LANES; at < end; at += LANES) {
            vector y, more;
            wfi_vector_load(c->x, at, is_narrow, &y);
            y = (y - mean) * factor + shift;
            if (adds) {
                wfi_vector_load(c->addend, at, is_narrow, &more);
                y += more;
            }
            more = y;
            if (relu) stop(&y, &more);
            wfi_vector_store(c->y, at, is_narrow, &y);
        }
}

/* ---- backward ---- */

typedef enum mask { ALL_PASS, BY_X, BY_Y } mask;

/* Loads the gradient of the ReLU's input, and x minus its mean. */
WFI_LOOP void load_both(const wfi_channels *c, const transform *t, int64_t at, bool is_narrow,
                        mask by, vector *slope, vector *x) {
    wfi_vector_load(c->dy, at, is_narrow, slope);
    wfi_vector_load(c->x, at, is_narrow, x);
    *x -= t->mean;
    if (by == ALL_PASS) return;
    vector y = *x * t->factor + t->shift;
    if (by == BY_Y) wfi_vector_load(c->y, at, is_narrow, &y);
    stop(slope, &y);
    if (by == BY_Y) wfi_vector_store(c->daddend, at, is_narrow, slope);
}

WFI_LOOP void sum_both(const wfi_channels *c, const part *p, const transform *t, bool is_narrow,
                       mask by, vector *sum_out, vector *sum_x_out) {
    vector sum[N_SUMS] = {{0}}, sum_x[N_SUMS] = {{0}}, slope, x;
    for (int64_t i = 0; i < p->n_images; i++) {
        int64_t at = p->at + i * c->step, end = at + p->n_pixels * LANES;
        for (; at + N_SUMS * LANES <= end; at += N_SUMS * LANES)
            for (int k = 0; k < N_SUMS; k++) {
                load_both(c, t, at + k * LANES, is_narrow, by, &slope, &x);
                sum[k] += slope;
                sum_x[k] += slope * x;
            }
        for (; at < end; at += LANES) {
            load_both(c, t, at, is_narrow, by, &slope, &x);
            sum[0] += slope;
            sum_x[0] += slope * x;
        }
    }
    add_up(sum, sum_out);
    add_up(sum_x, sum_x_out);
}

/* With z = (x - mean) / sqrt(var + eps), over m elements:
 * dx = scale / sqrt(var + eps) (dy - sum(dy) / m - z sum(dy z) / m). */
WFI_LOOP void differentiate_as(const wfi_channels *c, bool is_narrow, mask by) {
    double sum[LANES] = {0}, sum_x[LANES] = {0};
    int64_t image = 0, pixel = 0;
    transform t;
    prepare(c, &t);
    for (part p; next_part(c, &image, &pixel, &p);) {
        vector own, own_x;
        sum_both(c, &p, &t, is_narrow, by, &own, &own_x);
        for (int l = 0; l < LANES; l++) {
            sum[l] += (double)own[l];
            sum_x[l] += (double)own_x[l];
        }
    }
    vector mean_slope, mean_x, slope, x;
    double m = (double)(c->n * c->n_pixels);
    for (int l = 0; l < LANES; l++) {
        double inverse = t.inverse[l];
        c->dshift[l] = (float)sum[l];
        c->dscale[l] = (float)(sum_x[l] * inverse);
        mean_slope[l] = (float)(sum[l] / m);
        mean_x[l] = (float)(sum_x[l] * inverse * inverse / m);
    }
    for (int64_t i = 0; i < c->n; i++)
        for (int64_t at = i * c->step, end = at + c->n_pixels * LANES; at < end; at += LANES) {
            if (by == BY_Y) {
                wfi_vector_load(c->daddend, at, is_narrow, &slope);
                wfi_vector_load(c->x, at, is_narrow, &x);
                x -= t.mean;
            } else {
                load_both(c, &t, at, is_narrow, by, &slope, &x);
            }
            slope = ((slope - mean_slope) - x * mean_x) * t.factor;
            wfi_vector_store(c->dx, at, is_narrow, &slope);
        }
}

/* ---- a loop for each way ---- */

WFI_LOOP void normalize(const wfi_channels *c) {
    if (c->is_narrow)
        c->addend ? normalize_as(c, true, true) : normalize_as(c, true, false);
    else
        c->addend ? normalize_as(c, false, true) : normalize_as(c, false, false);
}

WFI_LOOP void differentiate(const wfi_channels *c) {
    mask by = c->daddend ? BY_Y : c->relu ? BY_X : ALL_PASS;
    if (c->is_narrow)
        by == BY_Y   ? differentiate_as(c, true, BY_Y)
        : by == BY_X ? differentiate_as(c, true, BY_X)
                     : differentiate_as(c, true, ALL_PASS);
    else
        by == BY_Y   ? differentiate_as(c, false, BY_Y)
        : by == BY_X ? differentiate_as(c, false, BY_X)
                     : differentiate_as(c, false, ALL_PASS);
}

WFI_PUBLIC_VARIANTS(wfi_channels_normalize, wfi_channels, normalize)
WFI_PUBLIC_VARIANTS(wfi_channels_differentiate, wfi_channels, differentiate)
