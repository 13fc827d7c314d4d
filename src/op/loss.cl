/* Rows of n[1] logits; f[0]: how far labels are smoothed. */

/* Labels that are too large are refused where they are fed; one that comes here all the same makes
 * the loss NaN, and nothing is read out of bounds. */
KERNEL(cross_entropy) {
    LOCAL double part[GROUP];
    int label = I32(IN(1))[GROUP_INDEX];
    double max = largest_of(part, PASSED, ROW, a.n[1]);
    int is_hit = is_first_largest(part, PASSED, ROW, a.n[1], label, max);
    double sum = sum_exponentials(part, PASSED, ROW, a.n[1], max);
    double gap = a.f[0] != 0 ? sum_gaps(part, PASSED, ROW, a.n[1], max) : 0;
    if (THREAD) return;
    double own = GET(IN(0), ROW + (label >= 0 && label < a.n[1] ? label : 0)) - max;
    double loss = log(sum) - own;
    if (a.f[0] != 0) loss += a.f[0] * (own + gap / (double)a.n[1]);
    I32(OUT(1))[GROUP_INDEX] = is_hit;
    PUT(OUT(0), GROUP_INDEX,
        label < 0 ? 0 : label >= a.n[1] ? M_NAN : (float)loss);
}

/* dlogits = dloss (softmax(logits) - (1 - s) at the label - s / n) */
KERNEL(cross_entropy_backward) {
    LOCAL double part[GROUP];
    int label = I32(IN(1))[GROUP_INDEX];
    double max = largest_of(part, PASSED, ROW, a.n[1]);
    double sum = sum_exponentials(part, PASSED, ROW, a.n[1], max);
    double factor = label >= a.n[1] ? M_NAN : GET(IN(2), GROUP_INDEX);
    FOR_COLUMN(i) {
        double slope = exp(GET(IN(0), ROW + i) - max) / sum - (i == label);
        if (a.f[0] != 0) slope += a.f[0] * ((i == label) - 1 / (double)a.n[1]);
        PUT(OUT(0), ROW + i, label < 0 ? 0 : (float)(factor * slope));
    }
}

/* The sum of n[1] losses, and how many rows were right. */
KERNEL(loss_record) {
    LOCAL double part[GROUP];
    double loss = 0, hits = 0;
    FOR_COLUMN(i) {
        loss += GET(IN(0), ROW + i);
        if (HAS(IN(1))) hits += I32(IN(1))[ROW + i];
    }
    loss = group_sum(part, loss);
    hits = group_sum(part, hits);
    if (THREAD) return;
    OPERAND(double, OUT(0))[0] = loss;
    OPERAND(double, OUT(0))[1] = hits;
}
