/* Self attention of n[3] heads: qkv [n, n[1], 3 c], c = n[2], heads of n[4] elements, n[5]: causal. A
 * group for each token, head and sample; it goes through the others GROUP at a time, a thread each,
 * and then has a thread for some elements of a head. Nothing but the logarithm of each row's sum is
 * kept. */

#define MOST_ELEMENTS 4 /* GROUP each: heads of at most 256 */
#define FOR_OWN_ELEMENT(k, e)                                                                      \
    for (long k = 0, e = THREAD; k < MOST_ELEMENTS && e < a.n[4]; k++, e += GROUP)

#define TOKEN (GROUP_INDEX % a.n[1])
#define HEAD (GROUP_INDEX / a.n[1] % a.n[3])
#define FIRST_TOKEN (GROUP_INDEX / a.n[1] / a.n[3] * a.n[1])
/* Where in qkv, and in y, the head's elements of token i of this sample begin. */
#define QKV_AT(i, which) ((FIRST_TOKEN + (i)) * 3 * a.n[2] + (which) * a.n[2] + HEAD * a.n[4])
#define Y_AT(i) ((FIRST_TOKEN + (i)) * a.n[2] + HEAD * a.n[4])
/* [n, heads, t] */
#define LOG_SUM(k, i) GET(k, GROUP_INDEX - TOKEN + (i))

/* Of so many elements of operands p and q, from those on. */
#define DOT(p, from_p, q, from_q, n, to)                                                           \
    do {                                                                                           \
        long at_p = (from_p), at_q = (from_q);                                                     \
        (to) = 0;                                                                                  \
        for (long e = 0; e < (n); e++) (to) = MULTIPLY_ADD(GET(p, at_p + e), GET(q, at_q + e), to); \
    } while (0)

/* One who attends to the first n_seen of others: their scores, and their elements' weighed sum. */
#define ATTEND(score, element)                                                                     \
    do {                                                                                           \
        max = -M_INFINITY;                                                                         \
        total = 0;                                                                                 \
        for (int k = 0; k < MOST_ELEMENTS; k++) mixed[k] = 0;                                      \
        for (long from = 0; from < n_seen; from += GROUP) {                                        \
            long j = from + THREAD;                                                                \
            float product = 0;                                                                     \
            if (j < n_seen) score;                                                                 \
            double scaled = j < n_seen ? product * a.f[0] : -M_INFINITY;                           \
            double larger = group_max(part, scaled);                                               \
            if (larger < max) larger = max;                                                        \
            double kept = exp(max - larger), p = j < n_seen ? exp(scaled - larger) : 0;            \
            total = total * kept + group_sum(part, p);                                             \
            weight[THREAD] = (float)p;                                                             \
            BARRIER;                                                                               \
            FOR_OWN_ELEMENT(k, e) {                                                                \
                double sum = 0;                                                                    \
                for (long i = 0; i < GROUP && from + i < n_seen; i++) sum += weight[i] * (element); \
                mixed[k] = mixed[k] * kept + sum;                                                  \
            }                                                                                      \
            max = larger;                                                                          \
            BARRIER;                                                                               \
        }                                                                                          \
    } while (0)

KERNEL(self_attention) {
    LOCAL double part[GROUP];
    LOCAL float weight[GROUP];
    long n_seen = a.n[5] ? TOKEN + 1 : a.n[1];
    double max, total, mixed[MOST_ELEMENTS];
    ATTEND(DOT(IN(0), QKV_AT(TOKEN, 0), IN(0), QKV_AT(j, 1), a.n[4], product),
           GET(IN(0), QKV_AT(from + i, 2) + e));
    FOR_OWN_ELEMENT(k, e) PUT(OUT(0), Y_AT(TOKEN) + e, (float)(mixed[k] / total));
    if (!THREAD) PUT(OUT(1), GROUP_INDEX, (float)(max + log(total)));
}

/* dy, qkv, y, L. The gradient of a token's queries: what it attends to. */
KERNEL(attention_backward_queries) {
    LOCAL float slope[GROUP];
    long n_seen = a.n[5] ? TOKEN + 1 : a.n[1];
    float log_sum = LOG_SUM(IN(3), TOKEN), own, score, value;
    double sum[MOST_ELEMENTS] = {0, 0, 0, 0};
    DOT(IN(0), Y_AT(TOKEN), IN(2), Y_AT(TOKEN), a.n[4], own);
    for (long from = 0; from < n_seen; from += GROUP) {
        long j = from + THREAD;
        if (j < n_seen) {
            DOT(IN(1), QKV_AT(TOKEN, 0), IN(1), QKV_AT(j, 1), a.n[4], score);
            DOT(IN(0), Y_AT(TOKEN), IN(1), QKV_AT(j, 2), a.n[4], value);
            slope[THREAD] = (float)(exp(score * a.f[0] - log_sum) * (value - own));
        }
        BARRIER;
        FOR_OWN_ELEMENT(k, e)
        for (long i = 0; i < GROUP && from + i < n_seen; i++)
            sum[k] += slope[i] * GET(IN(1), QKV_AT(from + i, 1) + e);
        BARRIER;
    }
    FOR_OWN_ELEMENT(k, e) PUT(OUT(0), QKV_AT(TOKEN, 0) + e, (float)(sum[k] * a.f[0]));
}

/* Of its keys and values: who attends to it. */
KERNEL(attention_backward_values) {
    LOCAL float weight[GROUP], slope[GROUP];
    float own, score, value;
    double dk[MOST_ELEMENTS] = {0, 0, 0, 0}, dv[MOST_ELEMENTS] = {0, 0, 0, 0};
    for (long from = a.n[5] ? TOKEN : 0; from < a.n[1]; from += GROUP) {
        long i = from + THREAD;
        if (i < a.n[1]) {
            DOT(IN(0), Y_AT(i), IN(2), Y_AT(i), a.n[4], own);
            DOT(IN(1), QKV_AT(i, 0), IN(1), QKV_AT(TOKEN, 1), a.n[4], score);
            DOT(IN(0), Y_AT(i), IN(1), QKV_AT(TOKEN, 2), a.n[4], value);
            double p = exp(score * a.f[0] - LOG_SUM(IN(3), i));
            weight[THREAD] = (float)p;
            slope[THREAD] = (float)(p * (value - own));
        }
        BARRIER;
        FOR_OWN_ELEMENT(k, e)
        for (long l = 0; l < GROUP && from + l < a.n[1]; l++) {
            dk[k] += slope[l] * GET(IN(1), QKV_AT(from + l, 0) + e);
            dv[k] += weight[l] * GET(IN(0), Y_AT(from + l) + e);
        }
        BARRIER;
    }
    FOR_OWN_ELEMENT(k, e) {
        PUT(OUT(0), QKV_AT(TOKEN, 1) + e, (float)(dk[k] * a.f[0]));
        PUT(OUT(0), QKV_AT(TOKEN, 2) + e, (float)dv[k]);
    }
}

/* n[0] tokens of one text, one after the other, at positions IN(1); qkv [n[0], 3 c], a cache of
 * [n[1], 2 c] for keys and values. A group for each head. */
#define CACHE_AT(row, which) (((row) * 2 + (which)) * a.n[2] + GROUP_INDEX * a.n[4])
KERNEL(cached_attention) {
    LOCAL double part[GROUP];
    LOCAL float weight[GROUP];
    double max, total, mixed[MOST_ELEMENTS];
    for (long token = 0; token < a.n[0]; token++) {
        long own = I32(IN(1))[token], q = token * 3 * a.n[2] + GROUP_INDEX * a.n[4];
        int is_there = own >= 0 && own < a.n[1];
        long n_seen = is_there ? own + 1 : 0;
        GLOBAL_BARRIER;
        for (int which = 0; which < 2 && is_there; which++)
            FOR_OWN_ELEMENT(k, e)
            PUT(IN(2), CACHE_AT(own, which) + e, GET(IN(0), q + (1 + which) * a.n[2] + e));
        GLOBAL_BARRIER;
        ATTEND(DOT(IN(0), q, IN(2), CACHE_AT(j, 0), a.n[4], product),
               GET(IN(2), CACHE_AT(from + i, 1) + e));
        FOR_OWN_ELEMENT(k, e)
        PUT(OUT(0), token * a.n[2] + GROUP_INDEX * a.n[4] + e,
            is_there ? (float)(mixed[k] / total) : 0);
    }
}
