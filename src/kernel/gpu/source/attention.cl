/* Self attention of n[3] heads: qkv [n, n[1], 3 c], c = n[2], heads of n[4] elements, n[5]: causal. A
 * group for each token, head and sample; it goes through the others GROUP at a time, a thread each,
 * and then has a thread for some elements of a head. Nothing but the logarithm of each row's sum is
 * kept. */

#define MOST_ELEMENTS 4 /* GROUP each: heads of at most 256 */

#define TOKEN (GROUP_INDEX % a.n[1])
#define HEAD (GROUP_INDEX / a.n[1] % a.n[3])
#define FIRST_TOKEN (GROUP_INDEX / a.n[1] / a.n[3] * a.n[1])
/* The rows of token i of this sample. */
#define ROW3(base, i, which) ((base) + (FIRST_TOKEN + (i)) * 3 * a.n[2] + (which) * a.n[2] + HEAD * a.n[4])
#define ROW1(base, i) ((base) + (FIRST_TOKEN + (i)) * a.n[2] + HEAD * a.n[4])
/* [n, heads, t] */
#define LOG_SUM(base, i) (base)[GROUP_INDEX - TOKEN + (i)]

DEVICE float dot_rows(GLOBAL const float *x, GLOBAL const float *y, long n) {
    float sum = 0;
    for (long i = 0; i < n; i++) sum = MULTIPLY_ADD(x[i], y[i], sum);
    return sum;
}

KERNEL(self_attention) {
    LOCAL double part[GROUP];
    LOCAL float weight[GROUP];
    GLOBAL float *qkv = F32(IN(0)), *q = ROW3(qkv, TOKEN, 0), *y = ROW1(F32(OUT(0)), TOKEN);
    long n_seen = a.n[5] ? TOKEN + 1 : a.n[1];
    double max = -M_INFINITY, total = 0, mixed[MOST_ELEMENTS] = {0, 0, 0, 0};
    for (long from = 0; from < n_seen; from += GROUP) {
        long j = from + THREAD;
        double score = j < n_seen ? dot_rows(q, ROW3(qkv, j, 1), a.n[4]) * a.f[0] : -M_INFINITY;
        double larger = group_max(part, score);
        if (larger < max) larger = max;
        double kept = exp(max - larger), p = j < n_seen ? exp(score - larger) : 0;
        total = total * kept + group_sum(part, p);
        weight[THREAD] = (float)p;
        BARRIER;
        for (int k = 0; k < MOST_ELEMENTS; k++) {
            long e = THREAD + k * GROUP;
            double sum = 0;
            for (long i = 0; i < GROUP && from + i < n_seen && e < a.n[4]; i++)
                sum += weight[i] * ROW3(qkv, from + i, 2)[e];
            mixed[k] = mixed[k] * kept + sum;
        }
        max = larger;
        BARRIER;
    }
    for (int k = 0; k < MOST_ELEMENTS; k++)
        if (THREAD + k * GROUP < a.n[4]) y[THREAD + k * GROUP] = (float)(mixed[k] / total);
    if (!THREAD) LOG_SUM(F32(OUT(1)), TOKEN) = (float)(max + log(total));
}

/* dy, qkv, y, L. The gradient of a token's queries: what it attends to. */
KERNEL(attention_backward_queries) {
    LOCAL float slope[GROUP];
    GLOBAL float *qkv = F32(IN(1)), *q = ROW3(qkv, TOKEN, 0), *dy = ROW1(F32(IN(0)), TOKEN);
    GLOBAL float *to = ROW3(F32(OUT(0)), TOKEN, 0);
    long n_seen = a.n[5] ? TOKEN + 1 : a.n[1];
    float log_sum = LOG_SUM(F32(IN(3)), TOKEN), own = dot_rows(dy, ROW1(F32(IN(2)), TOKEN), a.n[4]);
    double sum[MOST_ELEMENTS] = {0, 0, 0, 0};
    for (long from = 0; from < n_seen; from += GROUP) {
        long j = from + THREAD;
        if (j < n_seen) {
            double p = exp(dot_rows(q, ROW3(qkv, j, 1), a.n[4]) * a.f[0] - log_sum);
            slope[THREAD] = (float)(p * (dot_rows(dy, ROW3(qkv, j, 2), a.n[4]) - own));
        }
        BARRIER;
        for (int k = 0; k < MOST_ELEMENTS; k++)
            for (long i = 0, e = THREAD + k * GROUP; i < GROUP && from + i < n_seen && e < a.n[4]; i++)
                sum[k] += slope[i] * ROW3(qkv, from + i, 1)[e];
        BARRIER;
    }
    for (int k = 0; k < MOST_ELEMENTS; k++)
        if (THREAD + k * GROUP < a.n[4]) to[THREAD + k * GROUP] = (float)(sum[k] * a.f[0]);
}

/* Of its keys and values: who attends to it. */
KERNEL(attention_backward_values) {
    LOCAL float weight[GROUP], slope[GROUP];
    GLOBAL float *qkv = F32(IN(1)), *key = ROW3(qkv, TOKEN, 1), *value = ROW3(qkv, TOKEN, 2);
    GLOBAL float *dkey = ROW3(F32(OUT(0)), TOKEN, 1), *dvalue = ROW3(F32(OUT(0)), TOKEN, 2);
    double dk[MOST_ELEMENTS] = {0, 0, 0, 0}, dv[MOST_ELEMENTS] = {0, 0, 0, 0};
    for (long from = a.n[5] ? TOKEN : 0; from < a.n[1]; from += GROUP) {
        long i = from + THREAD;
        if (i < a.n[1]) {
            GLOBAL float *dy = ROW1(F32(IN(0)), i);
            float own = dot_rows(dy, ROW1(F32(IN(2)), i), a.n[4]);
            double p = exp(dot_rows(ROW3(qkv, i, 0), key, a.n[4]) * a.f[0] - LOG_SUM(F32(IN(3)), i));
            weight[THREAD] = (float)p;
            slope[THREAD] = (float)(p * (dot_rows(dy, value, a.n[4]) - own));
        }
        BARRIER;
        for (int k = 0; k < MOST_ELEMENTS; k++)
            for (long l = 0, e = THREAD + k * GROUP; l < GROUP && from + l < a.n[1] && e < a.n[4]; l++) {
                dk[k] += slope[l] * ROW3(qkv, from + l, 0)[e];
                dv[k] += weight[l] * ROW1(F32(IN(0)), from + l)[e];
            }
        BARRIER;
    }
    for (int k = 0; k < MOST_ELEMENTS; k++) {
        if (THREAD + k * GROUP >= a.n[4]) continue;
        dkey[THREAD + k * GROUP] = (float)(dk[k] * a.f[0]);
        dvalue[THREAD + k * GROUP] = (float)dv[k];
    }
}
