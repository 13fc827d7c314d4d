/* Self attention without its matrix products: a group scales one row of scores [heads, t, t] by
 * f[0]; t = n[1]; n[5]: causal, above 1 the number of keys that a query sees at most. */

#define TOKEN (GROUP_INDEX % a.n[1])
#define N_SEEN (a.n[5] ? TOKEN + 1 : a.n[1])
#define FIRST_SEEN(n_seen) (a.n[5] > 1 && (n_seen) > a.n[5] ? (n_seen) - a.n[5] : 0)

/* The weights of the scores, and the logarithm of each row's sum. */
KERNEL(attention_weights) {
    LOCAL double part[GROUP];
    long first = FIRST_SEEN(N_SEEN);
    double max = largest_of(part, PASSED, ROW + first, N_SEEN - first), total = 0;
    for (long j = first + THREAD; j < N_SEEN; j += GROUP)
        total += exp((GET(IN(0), ROW + j) - max) * a.f[0]);
    total = group_sum(part, total);
    FOR_COLUMN(j) {
        double p = first <= j && j < N_SEEN ? exp((GET(IN(0), ROW + j) - max) * a.f[0]) / total : 0;
        PUT(OUT(0), ROW + j, (float)p);
    }
    if (!THREAD) PUT(OUT(1), GROUP_INDEX, (float)(max * a.f[0] + log(total)));
}

/* Scores, dP, dy and y [t, n[2]] of heads of n[4] elements, L: the weights again, and the scores'
 * gradients. */
KERNEL(attention_slopes) {
    LOCAL double part[GROUP];
    long at = TOKEN * a.n[2] + GROUP_INDEX / a.n[1] * a.n[4];
    double own = 0;
    for (long e = THREAD; e < a.n[4]; e += GROUP)
        own += (double)GET(IN(2), at + e) * GET(IN(3), at + e);
    own = group_sum(part, own);
    FOR_COLUMN(j) {
        double p = 0, slope = 0;
        if (FIRST_SEEN(N_SEEN) <= j && j < N_SEEN) {
            p = exp(GET(IN(0), ROW + j) * a.f[0] - GET(IN(4), GROUP_INDEX));
            slope = p * (GET(IN(1), ROW + j) - own) * a.f[0];
        }
        PUT(OUT(0), ROW + j, (float)p);
        PUT(OUT(1), ROW + j, (float)slope);
    }
}

/* Gradients of a head of keys and one of values: sums over the n[2] heads of queries that share
 * them, of IN(0) and IN(1) [n[2], n[0]], into tokens of n[1] elements, n[3] apart. */
KERNEL(attention_shared) {
    FOR_ELEMENT(i) {
        long to = i / a.n[1] * a.n[3] + i % a.n[1];
        double keys = 0, values = 0;
        for (long head = 0; head < a.n[2]; head++) {
            keys += GET(IN(0), head * a.n[0] + i);
            values += GET(IN(1), head * a.n[0] + i);
        }
        PUT(OUT(0), to, (float)keys);
        PUT(OUT(1), to, (float)values);
    }
}

/* n[0] tokens of one text, one after the other, at positions IN(1); qkv [n[0], n[7]] of n[3] heads of
 * queries and n[6] of keys and of values, and a cache of [n[1], 2 n[6] n[4]] for these. A group for
 * each head of keys, of n[4] elements: for each head of queries it goes through the rows GROUP at a
 * time, a thread each, and then has a thread for some elements of a head. */

#define MOST_ELEMENTS 4 /* GROUP each: heads of at most 256 */
#define FOR_OWN_ELEMENT(k, e)                                                                      \
    for (long k = 0, e = THREAD; k < MOST_ELEMENTS && e < a.n[4]; k++, e += GROUP)
#define CACHE_AT(row, which) ((((row) * 2 + (which)) * a.n[6] + GROUP_INDEX) * a.n[4])

KERNEL(cached_attention) {
    LOCAL double part[GROUP];
    LOCAL float weight[GROUP];
    long n_shared = a.n[3] / a.n[6];
    for (long token = 0; token < a.n[0]; token++) {
        long own = I32(IN(1))[token];
        int is_there = own >= 0 && own < a.n[1];
        long n_seen = is_there ? own + 1 : 0;
        GLOBAL_BARRIER;
        for (int which = 0; which < 2 && is_there; which++)
            FOR_OWN_ELEMENT(k, e)
            PUT(IN(2), CACHE_AT(own, which) + e,
                GET(IN(0), token * a.n[7] + (a.n[3] + which * a.n[6] + GROUP_INDEX) * a.n[4] + e));
        GLOBAL_BARRIER;
        for (long head = GROUP_INDEX * n_shared; head < (GROUP_INDEX + 1) * n_shared; head++) {
            long q = token * a.n[7] + head * a.n[4];
            double max = -M_INFINITY, total = 0, mixed[MOST_ELEMENTS] = {0, 0, 0, 0};
            for (long from = FIRST_SEEN(n_seen); from < n_seen; from += GROUP) {
                long j = from + THREAD;
                float product = 0;
                for (long e = 0; j < n_seen && e < a.n[4]; e++)
                    product =
                        MULTIPLY_ADD(GET(IN(0), q + e), GET(IN(2), CACHE_AT(j, 0) + e), product);
                double scaled = j < n_seen ? product * a.f[0] : -M_INFINITY;
                double larger = group_max(part, scaled);
                if (larger < max) larger = max;
                double kept = exp(max - larger), p = j < n_seen ? exp(scaled - larger) : 0;
                total = total * kept + group_sum(part, p);
                weight[THREAD] = (float)p;
                BARRIER;
                FOR_OWN_ELEMENT(k, e) {
                    double sum = 0;
                    for (long i = 0; i < GROUP && from + i < n_seen; i++)
                        sum += weight[i] * GET(IN(2), CACHE_AT(from + i, 1) + e);
                    mixed[k] = mixed[k] * kept + sum;
                }
                max = larger;
                BARRIER;
            }
            FOR_OWN_ELEMENT(k, e)
            PUT(OUT(0), token * a.n[2] + head * a.n[4] + e,
                is_there ? (float)(mixed[k] / total) : 0);
        }
    }
}
