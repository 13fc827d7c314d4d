/* n[0] rows of n[3] heads of queries and n[4] of keys and of values, each of n[2] elements; row r is
 * at position r modulo n[1], or at that of IN(3), if it is there; f[0]: the logarithm of theta. */

#define HALF         (a.n[2] / 2)
#define QUERIES      (a.n[3] * a.n[2])
#define KEYS         (a.n[4] * a.n[2])
#define QUERIES_EACH (a.n[3] / a.n[4]) /* that share a head of keys */

DEVICE double angle_of(ARGUMENTS, double position, long e) {
    return position * exp((double)(-2 * (e % HALF)) / (double)a.n[2] * a.f[0]);
}

/* Element e of a rotated head, whose first element is `own` elements before. */
DEVICE double rotated(double angle, double x, double other, long e, long n_half) {
    return x * cos(angle) + (e < n_half ? -other : other) * sin(angle);
}

/* A thread for each element of the output. */
KERNEL(rotary) {
    long i = ELEMENT, row = i / (3 * QUERIES), column = i % (3 * QUERIES);
    if (i >= a.n[0] * 3 * QUERIES) return;
    long what = column / QUERIES, head = column % QUERIES / a.n[2], e = column % a.n[2];
    long first = what ? row * KEYS + head / QUERIES_EACH * a.n[2] : row * QUERIES + head * a.n[2];
    if (what == 2) {
        PUT(OUT(0), i, GET(IN(2), first + e));
        return;
    }
    double position = a.n[5] ? (double)I32(IN(3))[row] : (double)(row % a.n[1]);
    double x = what ? GET(IN(1), first + e) : GET(IN(0), first + e);
    long at = first + (e + HALF) % a.n[2];
    double other = what ? GET(IN(1), at) : GET(IN(0), at);
    PUT(OUT(0), i, (float)rotated(angle_of(PASSED, position, e), x, other, e, HALF));
}

/* The sum over the queries' heads that share element e of a head of keys or values. */
DEVICE double sum_shared(ARGUMENTS, long first, long e) {
    double sum = 0;
    for (long k = 0; k < QUERIES_EACH; k++) sum += GET(IN(0), first + k * a.n[2] + e);
    return sum;
}

/* A thread for each element of the three outputs of a row: rotated back, and summed. */
KERNEL(rotary_backward) {
    long own = QUERIES + 2 * KEYS, i = ELEMENT, row = i / own, column = i % own;
    if (i >= a.n[0] * own) return;
    long what = column < QUERIES ? 0 : column < QUERIES + KEYS ? 1 : 2;
    long place = column - (what ? QUERIES + (what - 1) * KEYS : 0), e = place % a.n[2];
    long head = place / a.n[2] * (what ? QUERIES_EACH : 1), at = (e + HALF) % a.n[2];
    long first = row * 3 * QUERIES + what * QUERIES + head * a.n[2];
    double x = what ? sum_shared(PASSED, first, e) : GET(IN(0), first + e);
    if (what == 2) {
        PUT(OUT(2), row * KEYS + place, (float)x);
        return;
    }
    double other = what ? sum_shared(PASSED, first, at) : GET(IN(0), first + at);
    double y = rotated(-angle_of(PASSED, (double)(row % a.n[1]), e), x, other, e, HALF);
    if (what)
        PUT(OUT(1), row * KEYS + place, (float)y);
    else
        PUT(OUT(0), row * QUERIES + place, (float)y);
}
