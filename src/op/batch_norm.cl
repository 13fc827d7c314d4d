/* A group for each of n[2] channels of n[1] samples of n[3] pixels; n[4]: a ReLU follows; f[0]: eps.
 */

/* Where pixel i of the channel is, counted through all samples: plain C has other layouts, too. */
#ifndef PIXEL
#define PIXEL(operand, i) (((i) / a.n[3] * a.n[2] + GROUP_INDEX) * a.n[3] + (i) % a.n[3])
#endif
#define N_PIXELS (a.n[1] * a.n[3])
#define FOR_PIXEL(i) for (long i = THREAD; i < N_PIXELS; i += GROUP)

/* The ReLU's mask has a byte per element. With an addend, y serves as the mask, and the backward
 * gives the addend's gradient, too. */
#define PUT_Y(i)                                                                                   \
    do {                                                                                           \
        if (HAS(IN(3))) value = (float)value + GET(IN(3), PIXEL(IN(3), i));                        \
        if (HAS(OUT(3))) OPERAND(uchar, OUT(3))[PIXEL(OUT(0), i)] = !(a.n[4] && value <= 0);       \
        PUT(OUT(0), PIXEL(OUT(0), i), a.n[4] && value <= 0 ? 0 : (float)value);                    \
    } while (0)

KERNEL(batch_norm) {
    LOCAL double part[GROUP];
    double mean = 0, var = 0;
    FOR_PIXEL(i) mean += GET(IN(0), PIXEL(IN(0), i));
    mean = group_sum(part, mean) / (double)N_PIXELS;
    FOR_PIXEL(i) {
        double off = GET(IN(0), PIXEL(IN(0), i)) - mean;
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
        double value = (GET(IN(0), PIXEL(IN(0), i)) - mean) * factor + shift;
        PUT_Y(i);
    }
}

KERNEL(batch_norm_inference) {
    double mean = GET(IN(3), GROUP_INDEX);
    double factor = GET(IN(1), GROUP_INDEX) / sqrt(GET(IN(4), GROUP_INDEX) + a.f[0]);
    float shift = GET(IN(2), GROUP_INDEX);
    FOR_PIXEL(i) {
        double value = (GET(IN(0), PIXEL(IN(0), i)) - mean) * factor + shift;
        PUT(OUT(0), PIXEL(OUT(0), i), a.n[4] && value <= 0 ? 0 : (float)value);
    }
}

/* The gradient of the ReLU's input; n[5]: there was an addend. */
#define SLOPE(i) (STOPS(i) ? 0 : GET(IN(0), PIXEL(IN(0), i)))
#define STOPS(i)                                                                                   \
    (HAS(IN(5)) && (a.n[5] ? GET(IN(5), PIXEL(IN(5), i)) <= 0                                      \
                           : !OPERAND(uchar, IN(5))[PIXEL(IN(1), i)]))

/* With z = (x - mean) / sqrt(var + eps), over m elements:
 * dx = scale / sqrt(var + eps) (dy - sum(dy) / m - z sum(dy z) / m). */
KERNEL(batch_norm_backward) {
    LOCAL double part[GROUP];
    float mean = GET(IN(2), GROUP_INDEX);
    double inverse = 1 / sqrt(GET(IN(3), GROUP_INDEX) + a.f[0]), sum = 0, sum_z = 0;
    FOR_PIXEL(i) {
        double slope = SLOPE(i);
        sum += slope;
        sum_z += slope * (GET(IN(1), PIXEL(IN(1), i)) - mean) * inverse;
    }
    sum = group_sum(part, sum);
    sum_z = group_sum(part, sum_z);
    if (!THREAD) {
        PUT(OUT(1), GROUP_INDEX, (float)sum_z);
        PUT(OUT(2), GROUP_INDEX, (float)sum);
    }
    double scale = GET(IN(4), GROUP_INDEX) * inverse;
    FOR_PIXEL(i) {
        float slope = SLOPE(i);
        double z = (GET(IN(1), PIXEL(IN(1), i)) - mean) * inverse;
        if (HAS(OUT(3))) PUT(OUT(3), PIXEL(OUT(3), i), slope);
        PUT(OUT(0), PIXEL(OUT(0), i),
            (float)(scale * (slope - (sum + z * sum_z) / (double)N_PIXELS)));
    }
}
