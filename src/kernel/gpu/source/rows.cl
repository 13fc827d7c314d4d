/* A group of threads for each row of n[1] elements, or for each channel; the last dim is the row. */

#define ROW (GROUP_INDEX * a.n[1])
#define FOR_COLUMN(i) for (long i = THREAD; i < a.n[1]; i += GROUP)

KERNEL(softmax) {
    LOCAL double part[GROUP];
    double max = -M_INFINITY, sum = 0;
    FOR_COLUMN(i) {
        float x = GET(IN(0), ROW + i);
        if (x > max) max = x;
    }
    max = group_max(part, max);
    FOR_COLUMN(i) sum += exp(GET(IN(0), ROW + i) - max);
    sum = group_sum(part, sum);
    FOR_COLUMN(i) {
        double x = GET(IN(0), ROW + i) - max;
        PUT(OUT(0), ROW + i, a.n[2] ? (float)(x - log(sum)) : (float)(exp(x) / sum));
    }
}

/* n[2]: of the logarithm */
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

/* The logits' maximum, the sum of exp(x - max), and the sum of max - x. */
typedef struct {
    double max, sum, gap;
} row_sums;

/* Of n elements of IN(0) from `first` on. */
DEVICE row_sums sum_row(LOCAL_POINTER double *part, GLOBAL char *memory, const arguments a,
                        long first, long n) {
    row_sums row;
    row.max = GET(IN(0), first);
    row.sum = row.gap = 0;
    for (long i = THREAD; i < n; i += GROUP) {
        float x = GET(IN(0), first + i);
        if (x > row.max) row.max = x;
    }
    row.max = group_max(part, row.max);
    for (long i = THREAD; i < n; i += GROUP) {
        float x = GET(IN(0), first + i);
        row.sum += exp(x - row.max);
        row.gap += row.max - x;
    }
    row.sum = group_sum(part, row.sum);
    row.gap = group_sum(part, row.gap);
    return row;
}

/* The first of these that is the maximum; n: none, as of what is no number. */
DEVICE double find_max(LOCAL_POINTER double *part, GLOBAL char *memory, const arguments a,
                       long first, long n, double max) {
    double found = (double)n;
    for (long i = THREAD; i < n && found == (double)n; i += GROUP)
        if (GET(IN(0), first + i) == max) found = (double)i;
    return -group_max(part, -found);
}

/* A label that is too large makes the loss no number. */
KERNEL(cross_entropy) {
    LOCAL double part[GROUP];
    int label = I32(IN(1))[GROUP_INDEX];
    row_sums row = sum_row(part, memory, a, ROW, a.n[1]);
    double first = find_max(part, memory, a, ROW, a.n[1], row.max);
    if (THREAD) return;
    double own = GET(IN(0), ROW + (label >= 0 && label < a.n[1] ? label : 0)) - row.max;
    double loss = log(row.sum) - own;
    if (a.f[0] != 0) loss += a.f[0] * (own + row.gap / (double)a.n[1]);
    I32(OUT(1))[GROUP_INDEX] = first == (double)label;
    PUT(OUT(0), GROUP_INDEX,
        label < 0 ? 0 : label >= a.n[1] ? M_INFINITY - M_INFINITY : (float)loss);
}

KERNEL(cross_entropy_backward) {
    LOCAL double part[GROUP];
    int label = I32(IN(1))[GROUP_INDEX];
    row_sums row = sum_row(part, memory, a, ROW, a.n[1]);
    double factor = label >= a.n[1] ? M_INFINITY - M_INFINITY : GET(IN(2), GROUP_INDEX);
    FOR_COLUMN(i) {
        double slope = exp(GET(IN(0), ROW + i) - row.max) / row.sum - (i == label);
        if (a.f[0] != 0) slope += a.f[0] * ((i == label) - 1 / (double)a.n[1]);
        PUT(OUT(0), ROW + i, label < 0 ? 0 : (float)(factor * slope));
    }
}

/* The mean over a row of a prediction x and its target y. */
#define PAIR_LOSS(name, each)                                                                      \
    KERNEL(name) {                                                                                 \
        LOCAL double part[GROUP];                                                                  \
        double sum = 0;                                                                            \
        FOR_COLUMN(i) {                                                                            \
            double x = GET(IN(0), ROW + i), y = GET(IN(1), ROW + i);                               \
            sum += (each);                                                                         \
        }                                                                                          \
        sum = group_sum(part, sum);                                                                \
        if (!THREAD) PUT(OUT(0), GROUP_INDEX, (float)(sum / (double)a.n[1]));                      \
    }

PAIR_LOSS(mse, (x - y) * (x - y))
PAIR_LOSS(smooth_l1, fabs(x - y) < 1 ? (x - y) * (x - y) / 2 : fabs(x - y) - 0.5)
PAIR_LOSS(binary_cross_entropy, (x <= 0 ? 0 : x) - x * y + log1p(exp(-fabs(x))))

/* The sum of n[1] losses, and how many rows were right. */
KERNEL(loss_record) {
    LOCAL double part[GROUP];
    double loss = 0, hits = 0;
    for (long i = THREAD; i < a.n[1]; i += GROUP) {
        loss += GET(IN(0), i);
        if (HAS(IN(1))) hits += I32(IN(1))[i];
    }
    loss = group_sum(part, loss);
    hits = group_sum(part, hits);
    if (THREAD) return;
    OPERAND(double, OUT(0))[0] = loss;
    OPERAND(double, OUT(0))[1] = hits;
}

/* ---- layer norm ---- */

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

/* A thread for each of n[0] columns: sums over n[1] rows. */
KERNEL(layer_norm_backward_weight) {
    FOR_ELEMENT(i) {
        double sum = 0, sum_z = 0;
        for (long r = 0; r < a.n[1]; r++) {
            double dy = GET(IN(0), r * a.n[0] + i);
            sum += dy;
            sum_z += dy * ((double)GET(IN(1), r * a.n[0] + i) - GET(IN(2), r)) /
                     sqrt(GET(IN(3), r) + a.f[0]);
        }
        PUT(OUT(1), i, (float)sum_z);
        PUT(OUT(2), i, (float)sum);
    }
}

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

/* ---- batch norm: a group for each of n[2] channels; n[1] samples of n[3] pixels ---- */

#define PIXEL(i) (((i) / a.n[3] * a.n[2] + GROUP_INDEX) * a.n[3] + (i) % a.n[3])
#define N_PIXELS (a.n[1] * a.n[3])
#define FOR_PIXEL(i) for (long i = THREAD; i < N_PIXELS; i += GROUP)

/* n[4]: a ReLU follows; a byte of each element says whether it has let it pass. Behind an addend y
 * says so, and backward gives the addend's gradient, too. */
KERNEL(batch_norm) {
    LOCAL double part[GROUP];
    double mean = 0, var = 0;
    FOR_PIXEL(i) mean += GET(IN(0), PIXEL(i));
    mean = group_sum(part, mean) / (double)N_PIXELS;
    FOR_PIXEL(i) {
        double off = GET(IN(0), PIXEL(i)) - mean;
        var += off * off;
    }
    var = group_sum(part, var) / (double)N_PIXELS;
    if (!THREAD) {
        PUT(OUT(1), GROUP_INDEX, (float)mean);
        PUT(OUT(2), GROUP_INDEX, (float)var);
    }
    double factor = GET(IN(1), GROUP_INDEX) / sqrt(var + a.f[0]);
    float shift = GET(IN(2), GROUP_INDEX);
    FOR_PIXEL(i) {
        double value = (GET(IN(0), PIXEL(i)) - mean) * factor + shift;
        if (HAS(IN(3))) value = (float)value + GET(IN(3), PIXEL(i));
        if (HAS(OUT(3))) OPERAND(uchar, OUT(3))[PIXEL(i)] = !(a.n[4] && value <= 0);
        PUT(OUT(0), PIXEL(i), a.n[4] && value <= 0 ? 0 : (float)value);
    }
}

KERNEL(batch_norm_inference) {
    double mean = GET(IN(3), GROUP_INDEX);
    double factor = GET(IN(1), GROUP_INDEX) / sqrt(GET(IN(4), GROUP_INDEX) + a.f[0]);
    float shift = GET(IN(2), GROUP_INDEX);
    FOR_PIXEL(i) {
        double value = (GET(IN(0), PIXEL(i)) - mean) * factor + shift;
        PUT(OUT(0), PIXEL(i), a.n[4] && value <= 0 ? 0 : (float)value);
    }
}

/* Whether the ReLU has stopped it; n[5]: there was an addend. */
#define STOPS(at)                                                                                  \
    (HAS(IN(5)) && (a.n[5] ? GET(IN(5), at) <= 0 : !OPERAND(uchar, IN(5))[at]))

KERNEL(batch_norm_backward) {
    LOCAL double part[GROUP];
    double mean = GET(IN(2), GROUP_INDEX), inverse = 1 / sqrt(GET(IN(3), GROUP_INDEX) + a.f[0]);
    double sum = 0, sum_z = 0;
    FOR_PIXEL(i) {
        if (STOPS(PIXEL(i))) continue;
        float dy = GET(IN(0), PIXEL(i));
        sum += dy;
        sum_z += dy * (GET(IN(1), PIXEL(i)) - mean) * inverse;
    }
    sum = group_sum(part, sum);
    sum_z = group_sum(part, sum_z);
    if (!THREAD) {
        PUT(OUT(1), GROUP_INDEX, (float)sum_z);
        PUT(OUT(2), GROUP_INDEX, (float)sum);
    }
    double scale = GET(IN(4), GROUP_INDEX) * inverse;
    FOR_PIXEL(i) {
        float slope = STOPS(PIXEL(i)) ? 0 : GET(IN(0), PIXEL(i));
        double z = (GET(IN(1), PIXEL(i)) - mean) * inverse;
        if (HAS(OUT(3))) PUT(OUT(3), PIXEL(i), slope);
        PUT(OUT(0), PIXEL(i), (float)(scale * (slope - (sum + z * sum_z) / (double)N_PIXELS)));
    }
}

/* A bias's gradient: the sum of a channel. */
KERNEL(channel_sum) {
    LOCAL double part[GROUP];
    double sum = 0;
    FOR_PIXEL(i) sum += GET(IN(0), PIXEL(i));
    sum = group_sum(part, sum);
    if (!THREAD) PUT(OUT(1), GROUP_INDEX, (float)sum);
}

/* ---- sums of few elements: a thread for each of n[0] results ---- */

/* x [.., n[1], n[2]] over n[1] */
KERNEL(reduce) {
    FOR_ELEMENT(i) {
        long first = i / a.n[2] * a.n[1] * a.n[2] + i % a.n[2];
        double sum = 0;
        for (long j = 0; j < a.n[1]; j++) sum += GET(IN(0), first + j * a.n[2]);
        PUT(OUT(0), i, (float)(sum * a.f[0]));
    }
}

/* The same into the second output: a linear layer's bias. */
KERNEL(column_sum) {
    FOR_ELEMENT(i) {
        double sum = 0;
        for (long j = 0; j < a.n[1]; j++) sum += GET(IN(0), j * a.n[0] + i);
        PUT(OUT(1), i, (float)sum);
    }
}

/* ---- cross entropy by blocks of classes: op/class_sums.c says which numbers there are ---- */

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
    row_sums row = sum_row(part, memory, a, BLOCK_LOGITS, N_LOGITS);
    double largest = find_max(part, memory, a, BLOCK_LOGITS, N_LOGITS, row.max);
    long own = I32(IN(1))[BLOCK_ROW] - FIRST_CLASS(BLOCK);
    if (THREAD) return;
    PUT(OUT(0), SUMS_AT + LARGEST, (float)row.max);
    PUT(OUT(0), SUMS_AT + LOGARITHM, (float)log(row.sum));
    if (a.n[5] > GAPS) PUT(OUT(0), SUMS_AT + GAPS, (float)row.gap);
    if (own < 0 || own >= N_LOGITS) return;
    PUT(OUT(0), SUMS_AT + LABEL, (float)(GET(IN(0), BLOCK_LOGITS + own) - row.max));
    PUT(OUT(0), SUMS_AT + HIT, largest == (double)own ? 2 : 1);
}

KERNEL(class_sums_backward) {
    LOCAL double part[GROUP];
    row_sums row = sum_row(part, memory, a, BLOCK_LOGITS, N_LOGITS);
    long own = I32(IN(1))[BLOCK_ROW] - FIRST_CLASS(BLOCK);
    float by_gap = a.n[5] > GAPS ? GET(IN(2), SUMS_AT + GAPS) : 0;
    for (long i = THREAD; i < N_LOGITS; i += GROUP)
        PUT(OUT(0), BLOCK_LOGITS + i,
            (float)(GET(IN(2), SUMS_AT + LOGARITHM) *
                        (exp(GET(IN(0), BLOCK_LOGITS + i) - row.max) / row.sum) -
                    by_gap + (i == own ? GET(IN(2), SUMS_AT + LABEL) : 0)));
}

/* Of n[0] rows of n[3] blocks' sums. */
typedef struct {
    double largest, sum;
    long own; /* the block with the label; -1: none */
} block_sums;

#define NUMBER(block, which) GET(IN(0), ((block) * a.n[0] + row) * a.n[5] + (which))
#define EXPONENTIALS(block) exp(NUMBER(block, LARGEST) - sums.largest + NUMBER(block, LOGARITHM))

DEVICE block_sums sum_blocks(GLOBAL char *memory, const arguments a, long row) {
    block_sums sums;
    sums.largest = NUMBER(0, LARGEST);
    sums.sum = 0;
    sums.own = -1;
    for (long k = 1; k < a.n[3]; k++)
        if (NUMBER(k, LARGEST) > sums.largest) sums.largest = NUMBER(k, LARGEST);
    for (long k = a.n[3] - 1; k >= 0; k--)
        if (NUMBER(k, HIT) > 0) sums.own = k;
    for (long k = 0; k < a.n[3]; k++) sums.sum += EXPONENTIALS(k);
    return sums;
}

KERNEL(cross_entropy_of_sums) {
    FOR_ELEMENT(row) {
        block_sums sums = sum_blocks(memory, a, row);
        int label = I32(IN(1))[row], is_hit = sums.own >= 0 && NUMBER(sums.own, HIT) > 1;
        double gap = 0, loss = M_INFINITY - M_INFINITY;
        for (long k = 0; k < a.n[3] && is_hit; k++)
            is_hit = k < sums.own ? NUMBER(k, LARGEST) < NUMBER(sums.own, LARGEST)
                                  : !(NUMBER(k, LARGEST) > NUMBER(sums.own, LARGEST));
        if (sums.own >= 0) {
            loss = sums.largest - NUMBER(sums.own, LARGEST) - NUMBER(sums.own, LABEL);
            for (long k = 0; k < a.n[3] && a.f[0] > 0; k++)
                gap += NUMBER(k, GAPS) + (double)(FIRST_CLASS(k + 1) - FIRST_CLASS(k)) *
                                             (sums.largest - NUMBER(k, LARGEST));
            if (a.f[0] > 0) loss += a.f[0] * (gap / (double)a.n[2] - loss);
            loss += log(sums.sum);
        }
        I32(OUT(1))[row] = is_hit;
        PUT(OUT(0), row, label < 0 ? 0 : (float)loss);
    }
}

KERNEL(cross_entropy_of_sums_backward) {
    FOR_ELEMENT(row) {
        block_sums sums = sum_blocks(memory, a, row);
        float factor = I32(IN(1))[row] < 0 ? 0
                       : sums.own < 0      ? M_INFINITY - M_INFINITY
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
