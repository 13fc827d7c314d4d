/* The gradient of a convolution's bias, the second output: the sum of a channel. op/batch_norm.cl says
 * which numbers there are. */
KERNEL(channel_sum) {
    LOCAL double part[GROUP];
    double sum = 0;
    FOR_PIXEL(i) sum += GET(IN(0), PIXEL(IN(0), i));
    sum = group_sum(part, sum);
    if (!THREAD) PUT(OUT(1), GROUP_INDEX, (float)sum);
}
