/* The gradient of a convolution's bias, the second output: the sum of a channel. op/batch_norm.cl says
 * which numbers there are. */
KERNEL(channel_sum) {
    LOCAL double part[GROUP];
    double sum = 0;
    FOR_PIXEL(i) sum += GET(IN(0), PIXEL(IN(0), i));
    sum = group_sum(part, sum);
    if (!THREAD) PUT(OUT(1), GROUP_INDEX, (float)sum);
}

/* Kernels around a library's batch norm. By element: addend and ReLU after its forward and before
 * its backward. By channel: the variance from the library's inverse deviation, and the reverse. */
#undef PIXEL
#define PIXEL(operand, i) (i)

KERNEL(norm_relu) {
    FOR_ELEMENT(i) {
        float value = GET(IN(0), i);
        PUT_Y(i);
    }
}
KERNEL(norm_slope) {
    FOR_ELEMENT(i) PUT(OUT(0), i, SLOPE(i));
}

#define VARIANCE (1 / ((double)x * x) - a.f[0])
UNARY(norm_inverse, (float)(1 / sqrt(x + a.f[0])))
UNARY(norm_variance, VARIANCE < 0 ? 0 : (float)VARIANCE)
