/* The mean of a term of a prediction x and its target y over samples of n[1] elements, and its
 * gradient. */

#define PAIR_LOSS(name, term)                                                                      \
    KERNEL(name) {                                                                                 \
        LOCAL double part[GROUP];                                                                  \
        double sum = 0;                                                                            \
        FOR_COLUMN(i) {                                                                            \
            double x = GET(IN(0), ROW + i), y = GET(IN(1), ROW + i);                               \
            sum += (term);                                                                         \
        }                                                                                          \
        sum = group_sum(part, sum);                                                                \
        if (!THREAD) PUT(OUT(0), GROUP_INDEX, (float)(sum / (double)a.n[1]));                      \
    }
#define PAIR_SLOPE(name, slope)                                                                    \
    KERNEL(name) {                                                                                 \
        FOR_ELEMENT(i) {                                                                           \
            double x = GET(IN(0), i), y = GET(IN(1), i);                                           \
            PUT(OUT(0), i, (float)((slope) * GET(IN(2), i / a.n[1]) / (double)a.n[1]));            \
        }                                                                                          \
    }

PAIR_LOSS(mse, (x - y) * (x - y))
PAIR_SLOPE(mse_backward, 2 * (x - y))

/* Huber's with delta 1 */
PAIR_LOSS(smooth_l1, fabs(x - y) < 1 ? (x - y) * (x - y) / 2 : fabs(x - y) - 0.5)
PAIR_SLOPE(smooth_l1_backward, x - y < -1 ? -1 : x - y > 1 ? 1 : x - y)

/* max(x, 0) - x y + log(1 + exp(-|x|)) does not overflow; a NaN stays one. */
PAIR_LOSS(binary_cross_entropy, (x <= 0 ? 0 : x) - x * y + log1p(exp(-fabs(x))))
PAIR_SLOPE(binary_cross_entropy_backward, 1 / (1 + exp(-x)) - y)
