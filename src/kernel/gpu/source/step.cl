/* Kernels at the end of a step: sums of gradients, their norm, the update, statistics. */

/* A sum for each 1,024 of n[0] elements, in ascending order. */
KERNEL(squares) {
    long block = ELEMENT;
    if (block * 1024 < a.n[0]) {
        double sum = 0;
        for (long i = block * 1024; i < a.n[0] && i < (block + 1) * 1024; i++) {
            double g = F32(IN(0))[i];
            sum += g * g;
        }
        OPERAND(double, OUT(0))[block] = sum;
    }
}

/* The sum of n[1] ranks' elements over base/tree.h's tree. */
#define OF_RANK(k) (a.n[1] > k ? ((GLOBAL float *)(m##k + a.at[k]))[i] : 0)
DEVICE float tree_sum(const float *x, int n) {
    if (n == 1) return x[0];
    if (n == 2) return x[0] + x[1];
    if (n == 3) return (x[0] + x[1]) + x[2];
    if (n == 4) return (x[0] + x[1]) + (x[2] + x[3]);
    if (n == 5) return ((x[0] + x[1]) + x[2]) + (x[3] + x[4]);
    if (n == 6) return ((x[0] + x[1]) + x[2]) + ((x[3] + x[4]) + x[5]);
    if (n == 7) return ((x[0] + x[1]) + (x[2] + x[3])) + ((x[4] + x[5]) + x[6]);
    return ((x[0] + x[1]) + (x[2] + x[3])) + ((x[4] + x[5]) + (x[6] + x[7]));
}
KERNEL_OF_RANKS(sum_ranks) {
    FOR_ELEMENT(i) {
        float x[8] = {OF_RANK(0), OF_RANK(1), OF_RANK(2), OF_RANK(3),
                      OF_RANK(4), OF_RANK(5), OF_RANK(6), OF_RANK(7)};
        ((GLOBAL float *)(m8 + a.at[8]))[i] = tree_sum(x, (int)a.n[1]);
    }
}

/* ---- the update of parameters and their states, by formulas of optimizer/rules.cl, which follows
 * this file. A word reports a non-finite parameter, state or gradient. ---- */

DEVICE bool is_finite(float x) {
    return x - x == 0;
}

#define NUMBER(k) ((float)a.f[k])
#define ROOT(x) sqrt(x)
#define RULE(name, n_states, formula)                                                              \
    KERNEL(name) {                                                                                 \
        FOR_ELEMENT(i) {                                                                           \
            float p = F32(OUT(0))[i], given = F32(IN(0))[i];                                       \
            float first = n_states > 0 ? F32(OUT(1))[i] : 0;                                       \
            float second = n_states > 1 ? F32(OUT(2))[i] : 0;                                      \
            formula;                                                                               \
            F32(OUT(0))[i] = p;                                                                    \
            if (n_states > 0) F32(OUT(1))[i] = first;                                              \
            if (n_states > 1) F32(OUT(2))[i] = second;                                             \
            if (!is_finite(p)) words[0] = 1;                                                       \
            if (!is_finite(second)) words[1] = 1;                                                  \
            if (!is_finite(given)) words[2] = 1;                                                   \
        }                                                                                          \
    }

/* The average of parameters; f: the weight of the new values. */
KERNEL(average) {
    FOR_ELEMENT(i) F32(OUT(0))[i] += (float)a.f[0] * (F32(IN(0))[i] - F32(OUT(0))[i]);
}

/* running = (1 - momentum) running + momentum batch; f: momentum, factor of the unbiased
 * variance */
KERNEL(statistics) {
    FOR_ELEMENT(i) {
        double m = a.f[0];
        float mean = (float)((1 - m) * F32(OUT(0))[i] + m * F32(IN(0))[i]);
        float var = (float)((1 - m) * F32(OUT(1))[i] + m * a.f[1] * F32(IN(1))[i]);
        F32(OUT(0))[i] = mean;
        F32(OUT(1))[i] = var;
        if (!i) ++*OPERAND(long, OUT(2));
        if (!is_finite(mean) || !is_finite(var)) words[0] = 1;
    }
}
