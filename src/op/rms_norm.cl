/* n[0] rows of n[1] elements; f[0]: eps. */

KERNEL(rms_norm) {
    LOCAL double part[GROUP];
    double sum = 0;
    FOR_COLUMN(i) sum += (double)GET(IN(0), ROW + i) * GET(IN(0), ROW + i);
    double square = group_sum(part, sum) / (double)a.n[1];
    if (!THREAD) PUT(OUT(1), GROUP_INDEX, (float)square);
    double inverse = 1 / sqrt(square + a.f[0]);
    FOR_COLUMN(i) PUT(OUT(0), ROW + i, (float)(GET(IN(0), ROW + i) * inverse * GET(IN(1), i)));
}

/* A thread for each column: sums over rows. */
KERNEL(rms_norm_backward_weight) {
    long i = ELEMENT;
    double sum = 0;
    if (i >= a.n[1]) return;
    for (long r = 0; r < a.n[0]; r++)
        sum += (double)GET(IN(0), r * a.n[1] + i) * GET(IN(1), r * a.n[1] + i) /
               sqrt(GET(IN(2), r) + a.f[0]);
    PUT(OUT(1), i, (float)sum);
}

/* With z = x / sqrt(square + eps) and g = dy scale, over a row's n elements: dx = (g - z sum(g z) /
 * n) / sqrt(square + eps). Runs after the other: dx may overwrite dy. */
KERNEL(rms_norm_backward_data) {
    LOCAL double part[GROUP];
    double inverse = 1 / sqrt(GET(IN(2), GROUP_INDEX) + a.f[0]), sum = 0;
    FOR_COLUMN(i)
    sum += (double)GET(IN(0), ROW + i) * GET(IN(3), i) * GET(IN(1), ROW + i) * inverse;
    sum = group_sum(part, sum);
    FOR_COLUMN(i) {
        double z = GET(IN(1), ROW + i) * inverse, g = (double)GET(IN(0), ROW + i) * GET(IN(3), i);
        PUT(OUT(0), ROW + i, (float)(inverse * (g - z * sum / (double)a.n[1])));
    }
}
