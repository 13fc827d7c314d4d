/* n[0] rows of n[3] heads of queries and n[4] of keys and of values, each of n[2] elements; row r is
 * at position r modulo n[1], or, if n[5], at that of IN(3); f[0]: the logarithm of theta. Scaling is
 * by f[1] where the frequency times f[2] is f[3] at most, by 1 where it is 1 more; f[1] 1: none. A
 * thread has elements e and e + n[2] / 2 of all heads of a row: one angle. */

#define HALF         (a.n[2] / 2)
#define QUERIES      (a.n[3] * a.n[2])
#define KEYS         (a.n[4] * a.n[2])
#define ALL_HEADS    (QUERIES + 2 * KEYS)
#define PAIR_ROW     (ELEMENT / HALF)
#define PAIR         (ELEMENT % HALF)

DEVICE double angle_of(ARGUMENTS, double position, long e) {
    double frequency = exp((double)(-2 * e) / (double)a.n[2] * a.f[0]);
    if (a.f[1] != 1) {
        double kept = frequency * a.f[2] - a.f[3];
        kept = kept < 0 ? 0 : kept > 1 ? 1 : kept;
        frequency *= kept + (1 - kept) * a.f[1];
    }
    return position * frequency;
}

KERNEL(rotary) {
    long row = PAIR_ROW, e = PAIR;
    if (row >= a.n[0]) return;
    double angle = angle_of(PASSED, a.n[5] ? (double)I32(IN(3))[row] : (double)(row % a.n[1]), e);
    double c = cos(angle), s = sin(angle);
    for (long head = 0; head < a.n[3]; head++) {
        long q = row * QUERIES + head * a.n[2] + e, to = row * ALL_HEADS + head * a.n[2] + e;
        double x = GET(IN(0), q), y = GET(IN(0), q + HALF);
        PUT(OUT(0), to, (float)(x * c - y * s));
        PUT(OUT(0), to + HALF, (float)(y * c + x * s));
    }
    for (long head = 0; head < a.n[4]; head++) {
        long k = row * KEYS + head * a.n[2] + e, to = row * ALL_HEADS + QUERIES + head * a.n[2] + e;
        double x = GET(IN(1), k), y = GET(IN(1), k + HALF);
        PUT(OUT(0), to, (float)(x * c - y * s));
        PUT(OUT(0), to + HALF, (float)(y * c + x * s));
        PUT(OUT(0), to + KEYS, GET(IN(2), k));
        PUT(OUT(0), to + KEYS + HALF, GET(IN(2), k + HALF));
    }
}

/* Turns back. */
KERNEL(rotary_backward) {
    long row = PAIR_ROW, e = PAIR;
    if (row >= a.n[0]) return;
    double angle = angle_of(PASSED, (double)(row % a.n[1]), e), c = cos(angle), s = sin(angle);
    for (long head = 0; head < a.n[3]; head++) {
        long from = row * ALL_HEADS + head * a.n[2] + e, q = row * QUERIES + head * a.n[2] + e;
        double x = GET(IN(0), from), y = GET(IN(0), from + HALF);
        PUT(OUT(0), q, (float)(x * c + y * s));
        PUT(OUT(0), q + HALF, (float)(y * c - x * s));
    }
    for (long head = 0; head < a.n[4]; head++) {
        long k = row * KEYS + head * a.n[2] + e, from = row * ALL_HEADS + QUERIES + head * a.n[2] + e;
        double x = GET(IN(0), from), y = GET(IN(0), from + HALF);
        PUT(OUT(1), k, (float)(x * c + y * s));
        PUT(OUT(1), k + HALF, (float)(y * c - x * s));
        PUT(OUT(2), k, GET(IN(0), from + KEYS));
        PUT(OUT(2), k + HALF, GET(IN(0), from + KEYS + HALF));
    }
}
