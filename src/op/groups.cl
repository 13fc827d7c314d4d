/* Definitions for kernels with one text for plain C and devices, the files *.cl of this folder. A
 * kernel is the work of a group of GROUP threads. Devices compile it (kernel/gpu/source/device.cl)
 * and run many groups at once; in plain C (plain.h) one group goes through all. GROUP fixes the
 * order of a group's sums. `a` holds the node's numbers n and f from its op (wfi_op.numbers). */

/* Operands: a node's inputs from IN(0) on, its outputs from OUT(0) on. */
#define IN(i) (i)
#define OUT(i) (8 + (i))
#define F32(i) OPERAND(float, i)
#define I32(i) OPERAND(int, i)

/* The element of a thread, where each has one. */
#define ELEMENT (GROUP_INDEX * GROUP + THREAD)
#define FOR_ELEMENT(i) long i = ELEMENT; if (i < a.n[0])

/* A group for each row of n[1] elements. */
#define ROW (GROUP_INDEX * a.n[1])
#define FOR_COLUMN(i) for (long i = THREAD; i < a.n[1]; i += GROUP)

/* ---- of n elements of IN(0) from `first` on ---- */

#define FOR_ONE(i) for (long i = THREAD; i < n; i += GROUP)

DEVICE double largest_of(LOCAL_POINTER double *part, ARGUMENTS, long first, long n) {
    float max = GET(IN(0), first);
    FOR_ONE(i) {
        float x = GET(IN(0), first + i);
        if (x > max) max = x;
    }
    return group_max(part, max);
}

DEVICE double sum_exponentials(LOCAL_POINTER double *part, ARGUMENTS, long first, long n, double max) {
    double sum = 0;
    FOR_ONE(i) sum += exp(GET(IN(0), first + i) - max);
    return group_sum(part, sum);
}

DEVICE double sum_gaps(LOCAL_POINTER double *part, ARGUMENTS, long first, long n, double max) {
    double sum = 0;
    FOR_ONE(i) sum += max - GET(IN(0), first + i);
    return group_sum(part, sum);
}

/* Whether `own` is the first that is the largest: one that is none of them is not. */
DEVICE int is_first_largest(LOCAL_POINTER double *part, ARGUMENTS, long first, long n, long own,
                            double max) {
    double others = 0;
    if (own < 0 || own >= n || GET(IN(0), first + own) != max) return 0;
    for (long i = THREAD; i < own && others == 0; i += GROUP)
        others = GET(IN(0), first + i) == max;
    return group_max(part, others) == 0;
}
