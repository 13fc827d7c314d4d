/* n[0] rows of n[1] elements; f[0]: eps. */

KERNEL(layer_norm) {
    LOCAL double part[GROUP];
    double mean = 0, var = 0;
    FOR_COLUMN(i) mean += GET(IN(0), ROW + i);
    mean = group_sum(part, mean) / (double)a.n[1];
    FOR_COLUMN(i) {
        double off = GET(IN(0), ROW + i) - mean;
        var += off * off;
    }
    var = group_sum(part, var) / (double)a.n[1];
    if (!THREAD) {
        PUT(OUT(1), GROUP_INDEX, (float)mean);
        PUT(OUT(2), GROUP_INDEX, (float)var);
    }
    double inverse = 1 / sqrt(var + a.f[0]);
    FOR_COLUMN(i)
    PUT(OUT(0), ROW + i,
        (float)((GET(IN(0), ROW + i) - mean) * inverse * GET(IN(1), i) + GET(IN(2), i)));
}

/* A thread for each column: sums over rows. */
KERNEL(layer_norm_backward_weight) {
    long i = ELEMENT;
    double sum = 0, sum_z = 0;
    if (i >= a.n[1]) return;
    for (long r = 0; r < a.n[0]; r++) {
        double dy = GET(IN(0), r * a.n[1] + i);
        sum += dy;
        sum_z += dy * ((double)GET(IN(1), r * a.n[1] + i) - GET(IN(2), r)) /
                 sqrt(GET(IN(3), r) + a.f[0]);
    }
    PUT(OUT(1), i, (float)sum_z);
    PUT(OUT(2), i, (float)sum);
}

/* With z = (x - mean) / sqrt(var + eps) and g = dy scale, over a row's n elements: dx = (g - sum(g)
 * / n - z sum(g z) / n) / sqrt(var + eps). Runs after the other: dx may overwrite dy. */
KERNEL(layer_norm_backward_data) {
    LOCAL double part[GROUP];
    double mean = GET(IN(2), GROUP_INDEX), inverse = 1 / sqrt(GET(IN(3), GROUP_INDEX) + a.f[0]);
    double sum = 0, sum_z = 0;
    FOR_COLUMN(i) {
        double g = (double)GET(IN(0), ROW + i) * GET(IN(4), i);
        sum += g;
        sum_z += g * (GET(IN(1), ROW + i) - mean) * inverse;
    }
    sum = group_sum(part, sum);
    sum_z = group_sum(part, sum_z);
    FOR_COLUMN(i) {
        double z = (GET(IN(1), ROW + i) - mean) * inverse;
        double g = (double)GET(IN(0), ROW + i) * GET(IN(4), i);
        PUT(OUT(0), ROW + i, (float)(inverse * (g - (sum + z * sum_z) / (double)a.n[1])));
    }
}
