#include "data/resize.h"
#include "base/base.h"

#include <math.h>

#define FRACTION_BITS 22 /* of a weight; 8 are the pixel's, and 2 keep sums from overflowing */

/* The filter of a line: pixel i of `n` is a sum of n_taps[i] old pixels from first[i] on, with
 * weights at weight + i * stride. */
typedef struct filter {
    int64_t n, stride;
    int32_t *first, *n_taps, *weight;
} filter;

/* A triangle filter over the old pixels, around the new pixel's center. */
static int32_t weigh(double center, double width, int64_t first, int64_t n, int32_t *weight) {
    double sum = 0;
    for (int64_t k = 0; k < n; k++)
        sum += fmax(0, 1 - fabs(((double)(first + k) - center + 0.5) * (1 / width)));
    for (int64_t k = 0; k < n; k++) {
        double w = fmax(0, 1 - fabs(((double)(first + k) - center + 0.5) * (1 / width)));
        weight[k] = (int32_t)(0.5 + (sum != 0 ? w / sum : w) * (1 << FRACTION_BITS));
    }
    return (int32_t)n;
}

/* Makes the filter for n new pixels from `from` on, of a line resized from n_old to n_new
 * pixels. */
static wf_status filter_create(wfi_pool *pool, int64_t n_old, int64_t n_new, int64_t from,
                               int64_t n, filter *f) {
    double scale = (double)n_old / (double)n_new, width = fmax(scale, 1);
    *f = (filter){.n = n, .stride = (int64_t)ceil(width) * 2 + 1};
    f->first = wfi_pool_alloc(pool, (size_t)n, sizeof *f->first);
    f->n_taps = wfi_pool_alloc(pool, (size_t)n, sizeof *f->n_taps);
    f->weight = wfi_pool_alloc(pool, (size_t)(n * f->stride), sizeof *f->weight);
    WF_TRY(wfi_pool_status(pool));
    for (int64_t i = 0; i < n; i++) {
        double center = ((double)(from + i) + 0.5) * scale;
        int64_t low = wfi_max_i64((int64_t)(center - width + 0.5), 0);
        int64_t high = wfi_min_i64((int64_t)(center + width + 0.5), n_old);
        f->first[i] = (int32_t)low;
        f->n_taps[i] = weigh(center, width, low, high - low, f->weight + i * f->stride);
    }
    return WF_OK;
}

static inline uint8_t to_byte(int32_t sum) {
    int32_t value = sum >> FRACTION_BITS;
    return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
}

static void filter_row(const filter *f, const uint8_t *src, uint8_t *dst) {
    for (int64_t i = 0; i < f->n; i++, dst += 3) {
        const int32_t *weight = f->weight + i * f->stride;
        const uint8_t *from = src + f->first[i] * 3;
        int32_t r = 1 << (FRACTION_BITS - 1), g = r, b = r;
        for (int32_t k = 0; k < f->n_taps[i]; k++, from += 3) {
            r += from[0] * weight[k];
            g += from[1] * weight[k];
            b += from[2] * weight[k];
        }
        dst[0] = to_byte(r);
        dst[1] = to_byte(g);
        dst[2] = to_byte(b);
    }
}

/* `rows` are those from `first` on, n bytes each. */
static void filter_columns(const filter *f, const uint8_t *rows, int64_t first, int64_t n,
                           int32_t *sum, uint8_t *dst) {
    for (int64_t i = 0; i < f->n; i++, dst += n) {
        const uint8_t *row = rows + (f->first[i] - first) * n;
        for (int64_t x = 0; x < n; x++) sum[x] = 1 << (FRACTION_BITS - 1);
        for (int32_t k = 0; k < f->n_taps[i]; k++, row += n) {
            int32_t weight = f->weight[i * f->stride + k];
            for (int64_t x = 0; x < n; x++) sum[x] += row[x] * weight;
        }
        for (int64_t x = 0; x < n; x++) dst[x] = to_byte(sum[x]);
    }
}

static wf_status resize(wf_context *ctx, const wfi_picture *picture, wfi_box part,
                        const filter *across, const filter *down, uint8_t *dst) {
    int64_t n = across->n * 3, first = down->first[0], last = down->n - 1;
    int64_t n_rows = down->first[last] + down->n_taps[last] - first;
    uint8_t *rows = wfi_alloc(ctx, (size_t)n_rows, (size_t)n, "a picture");
    int32_t *sum = wfi_alloc(ctx, (size_t)n, sizeof *sum, "a picture");
    const uint8_t *src = picture->rgb + ((part.y + first) * picture->width + part.x) * 3;
    for (int64_t y = 0; rows && sum && y < n_rows; y++)
        filter_row(across, src + y * picture->width * 3, rows + y * n);
    if (rows && sum) filter_columns(down, rows, first, n, sum, dst);
    bool good = rows && sum;
    wfi_free(ctx, rows);
    wfi_free(ctx, sum);
    return good ? WF_OK : WF_NO_MEMORY;
}

wf_status wfi_picture_resize(wf_context *ctx, const wfi_picture *picture, wfi_box part,
                             int64_t to_width, int64_t to_height, wfi_box window, uint8_t *dst) {
    filter across, down;
    wfi_pool pool = {.ctx = ctx};
    wf_status status = filter_create(&pool, part.width, to_width, window.x, window.width, &across);
    if (status == WF_OK)
        status = filter_create(&pool, part.height, to_height, window.y, window.height, &down);
    if (status == WF_OK) status = resize(ctx, picture, part, &across, &down, dst);
    wfi_pool_release(&pool);
    return status;
}
