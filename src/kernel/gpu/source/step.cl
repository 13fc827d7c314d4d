/* What ends a step: sums of gradients, their norm, the update, statistics. */

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
DEVICE float tree_sum(const float *x, int n) {
    float sums[8];
    for (int i = 0; i < 8; i++) sums[i] = x[i < n ? i : 0];
    if (n == 1) return sums[0];
    if (n == 2) return sums[0] + sums[1];
    if (n == 3) return (sums[0] + sums[1]) + sums[2];
    if (n == 4) return (sums[0] + sums[1]) + (sums[2] + sums[3]);
    if (n == 5) return ((sums[0] + sums[1]) + sums[2]) + (sums[3] + sums[4]);
    if (n == 6) return ((sums[0] + sums[1]) + sums[2]) + ((sums[3] + sums[4]) + sums[5]);
    if (n == 7) return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + sums[6]);
    return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

#define OF_RANK(k) x[k] = a.n[1] > k ? ((GLOBAL float *)(m##k + a.at[k]))[i] : 0
KERNEL_OF_RANKS(sum_ranks) {
    FOR_ELEMENT(i) {
        float x[8];
        OF_RANK(0);
        OF_RANK(1);
        OF_RANK(2);
        OF_RANK(3);
        OF_RANK(4);
        OF_RANK(5);
        OF_RANK(6);
        OF_RANK(7);
        ((GLOBAL float *)(m8 + a.at[8]))[i] = tree_sum(x, (int)a.n[1]);
    }
}

/* ---- the update: optimizer/sgd.c and adam.c have the formulas. A word says
 * that something is not finite: a parameter, a state, a gradient. ---- */

DEVICE bool is_finite(float x) {
    return x - x == 0;
}
#define SEE(parameter, state, gradient)                                                            \
    if (!is_finite(parameter)) words[0] = 1;                                                       \
    if (!is_finite(state)) words[1] = 1;                                                           \
    if (!is_finite(gradient)) words[2] = 1

/* Gradient; parameter, momentum. f: rate, what gradients are multiplied by, decay, momentum; n[1]:
 * there is a momentum; n[2]: it is Nesterov's. */
KERNEL(sgd) {
    FOR_ELEMENT(i) {
        float lr = (float)a.f[0], factor = (float)a.f[1], decay = (float)a.f[2], mu = (float)a.f[3];
        float p = F32(OUT(0))[i], given = F32(IN(0))[i], g = given * factor + decay * p;
        if (a.n[1]) {
            float velocity = mu * F32(OUT(1))[i] + g;
            F32(OUT(1))[i] = velocity;
            g = a.n[2] ? g + mu * velocity : velocity;
        }
        p -= lr * g;
        F32(OUT(0))[i] = p;
        SEE(p, 0.0f, given);
    }
}

/* Gradient; parameter, moments. f as in optimizer/adam.c, and what gradients are multiplied by. */
KERNEL(adam) {
    FOR_ELEMENT(i) {
        float keep = (float)a.f[0], decay = (float)a.f[1], beta1 = (float)a.f[2];
        float weight1 = (float)a.f[3], beta2 = (float)a.f[4], weight2 = (float)a.f[5];
        float rate = (float)a.f[6], root = (float)a.f[7], epsilon = (float)a.f[8];
        float p = F32(OUT(0))[i] * keep, given = F32(IN(0))[i];
        float g = given * (float)a.f[9] + decay * p;
        float first = beta1 * F32(OUT(1))[i] + weight1 * g;
        float second = beta2 * F32(OUT(2))[i] + weight2 * g * g;
        p = p - rate * first / (sqrt(second) / root + epsilon);
        F32(OUT(1))[i] = first;
        F32(OUT(2))[i] = second;
        F32(OUT(0))[i] = p;
        SEE(p, second, given);
    }
}

/* Of parameters; f: the weight of what is new. */
KERNEL(average) {
    FOR_ELEMENT(i) F32(OUT(0))[i] += (float)a.f[0] * (F32(IN(0))[i] - F32(OUT(0))[i]);
}

/* running = (1 - momentum) running + momentum batch; f: momentum, what makes the variance unbiased */
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
