/* A group of threads for each row of n[1] elements, or for each channel; the last dim is the row. */

KERNEL(softmax) {
    LOCAL double part[GROUP];
    GLOBAL float *x = F32(IN(0)) + GROUP_INDEX * a.n[1], *y = F32(OUT(0)) + GROUP_INDEX * a.n[1];
    double max = -M_INFINITY, sum = 0;
    for (long i = THREAD; i < a.n[1]; i += GROUP)
        if (x[i] > max) max = x[i];
    max = group_max(part, max);
    for (long i = THREAD; i < a.n[1]; i += GROUP) sum += exp(x[i] - max);
    sum = group_sum(part, sum);
    for (long i = THREAD; i < a.n[1]; i += GROUP)
        y[i] = a.n[2] ? (float)(x[i] - max - log(sum)) : (float)(exp(x[i] - max) / sum);
}

/* n[2]: of the logarithm */
KERNEL(softmax_backward) {
    LOCAL double part[GROUP];
    GLOBAL float *dy = F32(IN(0)) + GROUP_INDEX * a.n[1], *y = F32(IN(1)) + GROUP_INDEX * a.n[1];
    GLOBAL float *dx = F32(OUT(0)) + GROUP_INDEX * a.n[1];
    double sum = 0;
    for (long i = THREAD; i < a.n[1]; i += GROUP)
        sum += a.n[2] ? (double)dy[i] : (double)dy[i] * y[i];
    sum = group_sum(part, sum);
    for (long i = THREAD; i < a.n[1]; i += GROUP)
        dx[i] = a.n[2] ? (float)(dy[i] - exp((double)y[i]) * sum) : (float)(y[i] * (dy[i] - sum));
}

/* The logits' maximum, the sum of exp(x - max), and the sum of max - x. */
typedef struct {
    double max, sum, gap;
} row_sums;

DEVICE row_sums sum_row(LOCAL_POINTER double *part, GLOBAL const float *x, long n) {
    row_sums row;
    row.max = x[0];
    row.sum = row.gap = 0;
    for (long i = THREAD; i < n; i += GROUP)
        if (x[i] > row.max) row.max = x[i];
    row.max = group_max(part, row.max);
    for (long i = THREAD; i < n; i += GROUP) {
        row.sum += exp(x[i] - row.max);
        row.gap += row.max - x[i];
    }
    row.sum = group_sum(part, row.sum);
    row.gap = group_sum(part, row.gap);
    return row;
}

/* A label that is too large makes the loss no number. */
KERNEL(cross_entropy) {
    LOCAL double part[GROUP];
    GLOBAL float *x = F32(IN(0)) + GROUP_INDEX * a.n[1];
    int label = I32(IN(1))[GROUP_INDEX];
    row_sums row = sum_row(part, x, a.n[1]);
    double first = (double)a.n[1]; /* the maximum's place */
    for (long i = THREAD; i < a.n[1] && first == (double)a.n[1]; i += GROUP)
        if (x[i] == row.max) first = (double)i;
    first = -group_max(part, -first);
    if (THREAD) return;
    double loss = log(row.sum) - (x[label >= 0 && label < a.n[1] ? label : 0] - row.max);
    if (a.f[0] != 0)
        loss += a.f[0] * (x[label >= 0 && label < a.n[1] ? label : 0] - row.max +
                          row.gap / (double)a.n[1]);
    I32(OUT(1))[GROUP_INDEX] = first == (double)label;
    F32(OUT(0))[GROUP_INDEX] = label < 0 ? 0 : label >= a.n[1] ? M_INFINITY - M_INFINITY : (float)loss;
}

KERNEL(cross_entropy_backward) {
    LOCAL double part[GROUP];
    GLOBAL float *x = F32(IN(0)) + GROUP_INDEX * a.n[1], *dx = F32(OUT(0)) + GROUP_INDEX * a.n[1];
    int label = I32(IN(1))[GROUP_INDEX];
    row_sums row = sum_row(part, x, a.n[1]);
    double factor = label >= a.n[1] ? M_INFINITY - M_INFINITY : F32(IN(2))[GROUP_INDEX];
    for (long i = THREAD; i < a.n[1]; i += GROUP) {
        double slope = exp(x[i] - row.max) / row.sum - (i == label);
        if (a.f[0] != 0) slope += a.f[0] * ((i == label) - 1 / (double)a.n[1]);
        dx[i] = label < 0 ? 0 : (float)(factor * slope);
    }
}

KERNEL(mse) {
    LOCAL double part[GROUP];
    GLOBAL float *x = F32(IN(0)) + GROUP_INDEX * a.n[1], *y = F32(IN(1)) + GROUP_INDEX * a.n[1];
    double sum = 0;
    for (long i = THREAD; i < a.n[1]; i += GROUP) sum += ((double)x[i] - y[i]) * ((double)x[i] - y[i]);
    sum = group_sum(part, sum);
    if (!THREAD) F32(OUT(0))[GROUP_INDEX] = (float)(sum / (double)a.n[1]);
}

/* The sum of n[1] losses, and how many rows were right. */
KERNEL(loss_record) {
    LOCAL double part[GROUP];
    double loss = 0, hits = 0;
    for (long i = THREAD; i < a.n[1]; i += GROUP) {
        loss += F32(IN(0))[i];
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
    GLOBAL float *x = F32(IN(0)) + GROUP_INDEX * a.n[1], *y = F32(OUT(0)) + GROUP_INDEX * a.n[1];
    double mean = 0, var = 0;
    for (long i = THREAD; i < a.n[1]; i += GROUP) mean += x[i];
    mean = group_sum(part, mean) / (double)a.n[1];
    for (long i = THREAD; i < a.n[1]; i += GROUP) var += (x[i] - mean) * (x[i] - mean);
    var = group_sum(part, var) / (double)a.n[1];
    if (!THREAD) {
        F32(OUT(1))[GROUP_INDEX] = (float)mean;
        F32(OUT(2))[GROUP_INDEX] = (float)var;
    }
    double inverse = 1 / sqrt(var + a.f[0]);
    for (long i = THREAD; i < a.n[1]; i += GROUP)
        y[i] = (float)((x[i] - mean) * inverse * F32(IN(1))[i] + F32(IN(2))[i]);
}

/* A thread for each of n[0] columns: sums over n[1] rows. */
KERNEL(layer_norm_backward_weight) {
    FOR_ELEMENT(i) {
        double sum = 0, sum_z = 0;
        for (long r = 0; r < a.n[1]; r++) {
            double dy = F32(IN(0))[r * a.n[0] + i];
            sum += dy;
            sum_z += dy * ((double)F32(IN(1))[r * a.n[0] + i] - F32(IN(2))[r]) /
                     sqrt(F32(IN(3))[r] + a.f[0]);
        }
        F32(OUT(1))[i] = (float)sum_z;
        F32(OUT(2))[i] = (float)sum;
    }
}

KERNEL(layer_norm_backward_data) {
    LOCAL double part[GROUP];
    GLOBAL float *dy = F32(IN(0)) + GROUP_INDEX * a.n[1], *x = F32(IN(1)) + GROUP_INDEX * a.n[1];
    GLOBAL float *scale = F32(IN(4)), *dx = F32(OUT(0)) + GROUP_INDEX * a.n[1];
    double mean = F32(IN(2))[GROUP_INDEX], inverse = 1 / sqrt(F32(IN(3))[GROUP_INDEX] + a.f[0]);
    double sum = 0, sum_z = 0;
    for (long i = THREAD; i < a.n[1]; i += GROUP) {
        double g = (double)dy[i] * scale[i];
        sum += g;
        sum_z += g * (x[i] - mean) * inverse;
    }
    sum = group_sum(part, sum);
    sum_z = group_sum(part, sum_z);
    for (long i = THREAD; i < a.n[1]; i += GROUP) {
        double z = (x[i] - mean) * inverse;
        dx[i] = (float)(inverse * ((double)dy[i] * scale[i] - (sum + z * sum_z) / (double)a.n[1]));
    }
}

/* ---- batch norm: a group for each of n[2] channels; n[1] samples of n[3] pixels ---- */

#define PIXEL(i) (((i) / a.n[3] * a.n[2] + GROUP_INDEX) * a.n[3] + (i) % a.n[3])
#define N_PIXELS (a.n[1] * a.n[3])

/* n[4]: a ReLU follows; a byte of each element says whether it has let it pass. Behind an addend y
 * says so, and backward gives the addend's gradient, too. */
KERNEL(batch_norm) {
    LOCAL double part[GROUP];
    GLOBAL float *x = F32(IN(0)), *y = F32(OUT(0));
    double mean = 0, var = 0;
    for (long i = THREAD; i < N_PIXELS; i += GROUP) mean += x[PIXEL(i)];
    mean = group_sum(part, mean) / (double)N_PIXELS;
    for (long i = THREAD; i < N_PIXELS; i += GROUP)
        var += (x[PIXEL(i)] - mean) * (x[PIXEL(i)] - mean);
    var = group_sum(part, var) / (double)N_PIXELS;
    if (!THREAD) {
        F32(OUT(1))[GROUP_INDEX] = (float)mean;
        F32(OUT(2))[GROUP_INDEX] = (float)var;
    }
    double factor = F32(IN(1))[GROUP_INDEX] / sqrt(var + a.f[0]);
    float shift = F32(IN(2))[GROUP_INDEX];
    for (long i = THREAD; i < N_PIXELS; i += GROUP) {
        double value = (x[PIXEL(i)] - mean) * factor + shift;
        if (HAS(IN(3))) value = (float)value + F32(IN(3))[PIXEL(i)];
        if (HAS(OUT(3))) OPERAND(uchar, OUT(3))[PIXEL(i)] = !(a.n[4] && value <= 0);
        y[PIXEL(i)] = a.n[4] && value <= 0 ? 0 : (float)value;
    }
}

KERNEL(batch_norm_inference) {
    double mean = F32(IN(3))[GROUP_INDEX];
    double factor = F32(IN(1))[GROUP_INDEX] / sqrt(F32(IN(4))[GROUP_INDEX] + a.f[0]);
    float shift = F32(IN(2))[GROUP_INDEX];
    for (long i = THREAD; i < N_PIXELS; i += GROUP) {
        double value = (F32(IN(0))[PIXEL(i)] - mean) * factor + shift;
        F32(OUT(0))[PIXEL(i)] = a.n[4] && value <= 0 ? 0 : (float)value;
    }
}

/* Whether the ReLU has stopped it; n[5]: there was an addend. */
#define STOPS(at)                                                                                  \
    (HAS(IN(5)) && (a.n[5] ? F32(IN(5))[at] <= 0 : !OPERAND(uchar, IN(5))[at]))

KERNEL(batch_norm_backward) {
    LOCAL double part[GROUP];
    GLOBAL float *dy = F32(IN(0)), *x = F32(IN(1)), *dx = F32(OUT(0));
    double mean = F32(IN(2))[GROUP_INDEX], inverse = 1 / sqrt(F32(IN(3))[GROUP_INDEX] + a.f[0]);
    double sum = 0, sum_z = 0;
    for (long i = THREAD; i < N_PIXELS; i += GROUP) {
        if (STOPS(PIXEL(i))) continue;
        sum += dy[PIXEL(i)];
        sum_z += dy[PIXEL(i)] * (x[PIXEL(i)] - mean) * inverse;
    }
    sum = group_sum(part, sum);
    sum_z = group_sum(part, sum_z);
    if (!THREAD) {
        F32(OUT(1))[GROUP_INDEX] = (float)sum_z;
        F32(OUT(2))[GROUP_INDEX] = (float)sum;
    }
    double scale = F32(IN(4))[GROUP_INDEX] * inverse;
    for (long i = THREAD; i < N_PIXELS; i += GROUP) {
        float slope = STOPS(PIXEL(i)) ? 0 : dy[PIXEL(i)];
        double z = (x[PIXEL(i)] - mean) * inverse;
        if (HAS(OUT(3))) F32(OUT(3))[PIXEL(i)] = slope;
        dx[PIXEL(i)] = (float)(scale * (slope - (sum + z * sum_z) / (double)N_PIXELS));
    }
}

/* A bias's gradient: the sum of a channel. */
KERNEL(channel_sum) {
    LOCAL double part[GROUP];
    double sum = 0;
    for (long i = THREAD; i < N_PIXELS; i += GROUP) sum += F32(IN(0))[PIXEL(i)];
    sum = group_sum(part, sum);
    if (!THREAD) F32(OUT(1))[GROUP_INDEX] = (float)sum;
}

/* ---- sums of few elements: a thread for each of n[0] results ---- */

/* x [.., n[1], n[2]] over n[1] */
KERNEL(reduce) {
    FOR_ELEMENT(i) {
        GLOBAL float *x = F32(IN(0)) + i / a.n[2] * a.n[1] * a.n[2] + i % a.n[2];
        double sum = 0;
        for (long j = 0; j < a.n[1]; j++) sum += x[j * a.n[2]];
        F32(OUT(0))[i] = (float)(sum * a.f[0]);
    }
}

/* The same into the second output: a linear layer's bias. */
KERNEL(column_sum) {
    FOR_ELEMENT(i) {
        double sum = 0;
        for (long j = 0; j < a.n[1]; j++) sum += F32(IN(0))[j * a.n[0] + i];
        F32(OUT(1))[i] = (float)sum;
    }
}
