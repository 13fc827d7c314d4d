/* Gradients of biases, into the second output. */

/* The sum of a channel: op/batch_norm.cl says which numbers there are. */
KERNEL(channel_sum) {
    LOCAL double part[GROUP];
    double sum = 0;
    FOR_PIXEL(i) sum += GET(IN(0), PIXEL(IN(0), i));
    sum = group_sum(part, sum);
    if (!THREAD) PUT(OUT(1), GROUP_INDEX, (float)sum);
}

/* A linear layer's: n[0] sums of n[1] rows. */
KERNEL(column_sum) {
    FOR_ELEMENT(i) {
        double sum = 0;
        for (long j = 0; j < a.n[1]; j++) sum += GET(IN(0), j * a.n[0] + i);
        PUT(OUT(1), i, (float)sum);
    }
}
