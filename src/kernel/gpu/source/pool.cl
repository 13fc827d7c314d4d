/* Windows of n[5] pixels square, n[6] apart, n[7] of them outside; x [.., n[1], n[2]], y [.., n[3],
 * n[4]]. A thread for each of n[0] results. */

#define FIRST_OF(place) ((place) * a.n[6] - a.n[7])
/* The windows that cover a pixel. */
#define FIRST_OVER(pixel) ((pixel) + a.n[7] < a.n[5] ? 0 : ((pixel) + a.n[7] - a.n[5]) / a.n[6] + 1)
#define END_OVER(pixel, n_out) (((pixel) + a.n[7]) / a.n[6] + 1 < (n_out) ? ((pixel) + a.n[7]) / a.n[6] + 1 : (n_out))

KERNEL(max_pool) {
    FOR_ELEMENT(o) {
        long row = FIRST_OF(o / a.n[4] % a.n[3]), col = FIRST_OF(o % a.n[4]), best = -1;
        float most = 0;
        long plane = o / a.n[4] / a.n[3] * a.n[1] * a.n[2];
        for (long i = row < 0 ? 0 : row; i < row + a.n[5] && i < a.n[1]; i++)
            for (long j = col < 0 ? 0 : col; j < col + a.n[5] && j < a.n[2]; j++) {
                float x = GET(IN(0), plane + i * a.n[2] + j);
                if (best >= 0 && !(x > most) && (x == x || most != most)) continue;
                best = i * a.n[2] + j;
                most = x;
            }
        PUT(OUT(0), o, most);
        I32(OUT(1))[o] = (int)best;
    }
}

KERNEL(max_pool_backward) {
    FOR_ELEMENT(o) {
        long row = o / a.n[2] % a.n[1], col = o % a.n[2], plane = o / a.n[2] / a.n[1];
        double sum = 0;
        for (long i = FIRST_OVER(row); i < END_OVER(row, a.n[3]); i++)
            for (long j = FIRST_OVER(col); j < END_OVER(col, a.n[4]); j++) {
                long at = (plane * a.n[3] + i) * a.n[4] + j;
                if (I32(IN(1))[at] == row * a.n[2] + col) sum += GET(IN(0), at);
            }
        PUT(OUT(0), o, (float)sum);
    }
}

KERNEL(avg_pool) {
    FOR_ELEMENT(o) {
        long row = FIRST_OF(o / a.n[4] % a.n[3]), col = FIRST_OF(o % a.n[4]);
        long plane = o / a.n[4] / a.n[3] * a.n[1] * a.n[2];
        double sum = 0;
        for (long i = row < 0 ? 0 : row; i < row + a.n[5] && i < a.n[1]; i++)
            for (long j = col < 0 ? 0 : col; j < col + a.n[5] && j < a.n[2]; j++)
                sum += GET(IN(0), plane + i * a.n[2] + j);
        PUT(OUT(0), o, (float)(sum / (double)(a.n[5] * a.n[5])));
    }
}

KERNEL(avg_pool_backward) {
    FOR_ELEMENT(o) {
        long row = o / a.n[2] % a.n[1], col = o % a.n[2], plane = o / a.n[2] / a.n[1];
        double sum = 0;
        for (long i = FIRST_OVER(row); i < END_OVER(row, a.n[3]); i++)
            for (long j = FIRST_OVER(col); j < END_OVER(col, a.n[4]); j++)
                sum += GET(IN(0), (plane * a.n[3] + i) * a.n[4] + j);
        PUT(OUT(0), o, (float)(sum / (double)(a.n[5] * a.n[5])));
    }
}
