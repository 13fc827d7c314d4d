/* Cross entropy by blocks of classes: class_sums.c says which numbers there are. */

#define LARGEST 0
#define LOGARITHM 1
#define LABEL 2
#define HIT 3
#define GAPS 4

/* n[0] rows of n[1] logits; n[2] classes in n[3] blocks, of which these are from n[4] on; n[5]
 * numbers of each. A group for each block and row. */
#define BLOCK (a.n[4] + GROUP_INDEX / a.n[0])
#define BLOCK_ROW (GROUP_INDEX % a.n[0])
#define FIRST_CLASS(block) (a.n[2] * (block) / a.n[3])
#define BLOCK_LOGITS (BLOCK_ROW * a.n[1] + FIRST_CLASS(BLOCK) - FIRST_CLASS(a.n[4]))
#define N_LOGITS (FIRST_CLASS(BLOCK + 1) - FIRST_CLASS(BLOCK))
#define SUMS_AT ((BLOCK * a.n[0] + BLOCK_ROW) * a.n[5])

KERNEL(class_sums) {
    LOCAL double part[GROUP];
    long from = BLOCK_LOGITS, n = N_LOGITS, at = SUMS_AT;
    double max = largest_of(part, PASSED, from, n);
    double sum = sum_exponentials(part, PASSED, from, n, max);
    double gap = a.n[5] > GAPS ? sum_gaps(part, PASSED, from, n, max) : 0;
    long own = I32(IN(1))[BLOCK_ROW] - FIRST_CLASS(BLOCK);
    int is_hit = is_first_largest(part, PASSED, from, n, own, max);
    if (THREAD) return;
    PUT(OUT(0), at + LARGEST, (float)max);
    PUT(OUT(0), at + LOGARITHM, (float)log(sum));
    if (a.n[5] > GAPS) PUT(OUT(0), at + GAPS, (float)gap);
    if (own < 0 || own >= n) return;
    PUT(OUT(0), at + LABEL, (float)(GET(IN(0), from + own) - max));
    PUT(OUT(0), at + HIT, is_hit ? 2 : 1);
}

KERNEL(class_sums_backward) {
    LOCAL double part[GROUP];
    long from = BLOCK_LOGITS, n = N_LOGITS, at = SUMS_AT;
    double max = largest_of(part, PASSED, from, n);
    double sum = sum_exponentials(part, PASSED, from, n, max);
    long own = I32(IN(1))[BLOCK_ROW] - FIRST_CLASS(BLOCK);
    float by_gap = a.n[5] > GAPS ? GET(IN(2), at + GAPS) : 0;
    FOR_ONE(i)
        PUT(OUT(0), from + i,
            (float)(GET(IN(2), at + LOGARITHM) *
                        (exp(GET(IN(0), from + i) - max) / sum) -
                    by_gap + (i == own ? GET(IN(2), at + LABEL) : 0)));
}

/* The combined sums of a row's n[3] blocks; there are n[0] rows. */
typedef struct {
    double largest, sum;
    long own; /* the block with the label; -1: none */
} block_sums;

#define SUM(block, which) GET(IN(0), ((block) * a.n[0] + row) * a.n[5] + (which))
#define EXPONENTIALS(block) exp(SUM(block, LARGEST) - sums.largest + SUM(block, LOGARITHM))

DEVICE block_sums sum_blocks(ARGUMENTS, long row) {
    block_sums sums;
    sums.largest = SUM(0, LARGEST);
    sums.sum = 0;
    sums.own = -1;
    for (long k = 1; k < a.n[3]; k++)
        if (SUM(k, LARGEST) > sums.largest) sums.largest = SUM(k, LARGEST);
    for (long k = a.n[3] - 1; k >= 0; k--)
        if (SUM(k, HIT) > 0) sums.own = k;
    for (long k = 0; k < a.n[3]; k++) sums.sum += EXPONENTIALS(k);
    return sums;
}

KERNEL(cross_entropy_of_sums) {
    FOR_ELEMENT(row) {
        block_sums sums = sum_blocks(PASSED, row);
        int label = I32(IN(1))[row], is_hit = sums.own >= 0 && SUM(sums.own, HIT) > 1;
        double gap = 0, loss = M_NAN;
        for (long k = 0; k < a.n[3] && is_hit; k++)
            is_hit = k < sums.own ? SUM(k, LARGEST) < SUM(sums.own, LARGEST)
                                  : !(SUM(k, LARGEST) > SUM(sums.own, LARGEST));
        if (sums.own >= 0) {
            loss = sums.largest - SUM(sums.own, LARGEST) - SUM(sums.own, LABEL);
            for (long k = 0; k < a.n[3] && a.f[0] > 0; k++)
                gap += SUM(k, GAPS) + (double)(FIRST_CLASS(k + 1) - FIRST_CLASS(k)) *
                                             (sums.largest - SUM(k, LARGEST));
            if (a.f[0] > 0) loss += a.f[0] * (gap / (double)a.n[2] - loss);
            loss += log(sums.sum);
        }
        I32(OUT(1))[row] = is_hit;
        PUT(OUT(0), row, label < 0 ? 0 : (float)loss);
    }
}

KERNEL(cross_entropy_of_sums_backward) {
    FOR_ELEMENT(row) {
        block_sums sums = sum_blocks(PASSED, row);
        float factor = I32(IN(1))[row] < 0 ? 0
                       : sums.own < 0      ? M_NAN
                                           : GET(IN(2), row);
        for (long k = 0; k < a.n[3]; k++) {
            long at = (k * a.n[0] + row) * a.n[5];
            PUT(OUT(0), at + LARGEST, 0);
            PUT(OUT(0), at + LOGARITHM, (float)(factor * (EXPONENTIALS(k) / sums.sum)));
            PUT(OUT(0), at + LABEL, k == sums.own ? (float)(-factor * (1 - a.f[0])) : 0);
            PUT(OUT(0), at + HIT, 0);
            if (a.n[5] > GAPS) PUT(OUT(0), at + GAPS, (float)(factor * a.f[0] / (double)a.n[2]));
        }
    }
}
