/* Rows of n[1] elements; n[2]: of the logarithm. */

KERNEL(softmax) {
    LOCAL double part[GROUP];
    double max = largest_of(part, PASSED, ROW, a.n[1]);
    double sum = sum_exponentials(part, PASSED, ROW, a.n[1], max), logarithm = log(sum);
    FOR_COLUMN(i) {
        double x = GET(IN(0), ROW + i) - max;
        PUT(OUT(0), ROW + i, a.n[2] ? (float)(x - logarithm) : (float)(exp(x) / sum));
    }
}

/* dx = y (dy - sum(dy y)), or dy - exp(y) sum(dy) */
KERNEL(softmax_backward) {
    LOCAL double part[GROUP];
    double sum = 0;
    FOR_COLUMN(i) {
        double dy = GET(IN(0), ROW + i);
        sum += a.n[2] ? dy : dy * GET(IN(1), ROW + i);
    }
    sum = group_sum(part, sum);
    FOR_COLUMN(i) {
        float dy = GET(IN(0), ROW + i), y = GET(IN(1), ROW + i);
        PUT(OUT(0), ROW + i, a.n[2] ? (float)(dy - exp((double)y) * sum) : (float)(y * (dy - sum)));
    }
}
