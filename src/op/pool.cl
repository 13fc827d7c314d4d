/* A group for each channel of each sample. Windows of n[5] pixels square, n[6] apart, n[7] of them
 * outside; x [.., n[1], n[2]], y [.., n[3], n[4]]. */

#define X_PIXELS (a.n[1] * a.n[2])
#define Y_PIXELS (a.n[3] * a.n[4])

/* Where an operand's channel of so many pixels begins, and how far these are apart: plain C has
 * other layouts, too, and divides nothing. */
#ifndef PLANE
#define PLANE(operand, n_pixels) (GROUP_INDEX * (n_pixels))
#define APART(operand) 1
#define FOR_PLANE(row, col, height, width)                                                         \
    for (long row, col, o = THREAD;                                                                \
         o < (height) * (width) && (row = o / (width), col = o % (width), 1); o += GROUP)
#endif

/* The pixels that a window covers, and the windows that cover a pixel. */
#define FIRST_OF(place) ((place) * a.n[6] - a.n[7])
#define FOR_COVERED(i, first, size)                                                                \
    for (long i = (first) < 0 ? 0 : (first); i < (first) + a.n[5] && i < (size); i++)
#define FIRST_OVER(pixel) ((pixel) + a.n[7] < a.n[5] ? 0 : ((pixel) + a.n[7] - a.n[5]) / a.n[6] + 1)
#define LAST_OVER(pixel) (((pixel) + a.n[7]) / a.n[6])
#define FOR_COVERING(i, pixel, size)                                                               \
    for (long i = FIRST_OVER(pixel),                                                               \
              end_##i = LAST_OVER(pixel) < (size) ? LAST_OVER(pixel) + 1 : (size);                 \
         i < end_##i; i++)

KERNEL(max_pool) {
    long x_at = PLANE(IN(0), X_PIXELS), y_at = PLANE(OUT(0), Y_PIXELS), apart = APART(IN(0));
    FOR_PLANE(row, col, a.n[3], a.n[4]) {
        long to = y_at + (row * a.n[4] + col) * APART(OUT(0)), best = -1;
        float most = 0;
        FOR_COVERED(i, FIRST_OF(row), a.n[1]) {
            FOR_COVERED(j, FIRST_OF(col), a.n[2]) {
                float x = GET(IN(0), x_at + (i * a.n[2] + j) * apart);
                if (best >= 0 && !(x > most) && (x == x || most != most)) continue;
                best = i * a.n[2] + j;
                most = x;
            }
        }
        PUT(OUT(0), to, most);
        I32(OUT(1))[to] = (int)best;
    }
}

/* The gradient of a pixel: the sum over the windows that chose it, in ascending order. */
KERNEL(max_pool_backward) {
    long dx_at = PLANE(OUT(0), X_PIXELS), dy_at = PLANE(IN(0), Y_PIXELS), apart = APART(IN(0));
    FOR_PLANE(row, col, a.n[1], a.n[2]) {
        double sum = 0;
        FOR_COVERING(i, row, a.n[3]) {
            FOR_COVERING(j, col, a.n[4]) {
                long at = dy_at + (i * a.n[4] + j) * apart;
                if (I32(IN(1))[at] == row * a.n[2] + col) sum += GET(IN(0), at);
            }
        }
        PUT(OUT(0), dx_at + (row * a.n[2] + col) * APART(OUT(0)), (float)sum);
    }
}

KERNEL(avg_pool) {
    long x_at = PLANE(IN(0), X_PIXELS), y_at = PLANE(OUT(0), Y_PIXELS), apart = APART(IN(0));
    FOR_PLANE(row, col, a.n[3], a.n[4]) {
        double sum = 0;
        FOR_COVERED(i, FIRST_OF(row), a.n[1]) {
            FOR_COVERED(j, FIRST_OF(col), a.n[2]) sum += GET(IN(0), x_at + (i * a.n[2] + j) * apart);
        }
        PUT(OUT(0), y_at + (row * a.n[4] + col) * APART(OUT(0)),
            (float)(sum / (double)(a.n[5] * a.n[5])));
    }
}

KERNEL(avg_pool_backward) {
    long dx_at = PLANE(OUT(0), X_PIXELS), dy_at = PLANE(IN(0), Y_PIXELS), apart = APART(IN(0));
    FOR_PLANE(row, col, a.n[1], a.n[2]) {
        double sum = 0;
        FOR_COVERING(i, row, a.n[3]) {
            FOR_COVERING(j, col, a.n[4]) sum += GET(IN(0), dy_at + (i * a.n[4] + j) * apart);
        }
        PUT(OUT(0), dx_at + (row * a.n[2] + col) * APART(OUT(0)),
            (float)(sum / (double)(a.n[5] * a.n[5])));
    }
}

KERNEL(global_avg_pool) {
    LOCAL double part[GROUP];
    long x_at = PLANE(IN(0), X_PIXELS);
    double sum = 0;
    for (long o = THREAD; o < X_PIXELS; o += GROUP) sum += GET(IN(0), x_at + o * APART(IN(0)));
    sum = group_sum(part, sum);
    if (!THREAD) PUT(OUT(0), GROUP_INDEX, (float)(sum / (double)X_PIXELS));
}

KERNEL(global_avg_pool_backward) {
    long dx_at = PLANE(OUT(0), X_PIXELS);
    float value = GET(IN(0), GROUP_INDEX) / (float)X_PIXELS;
    for (long o = THREAD; o < X_PIXELS; o += GROUP) PUT(OUT(0), dx_at + o * APART(OUT(0)), value);
}
