/* Element by element: n[0] of them, by formulas of op/elements.cl, which stands behind this, and of
 * this file: what the plain C kernels compute, but for exponentials with the same bits. */

#define UNARY(name, value)                                                                         \
    KERNEL(name) {                                                                                 \
        FOR_ELEMENT(i) {                                                                           \
            float x = GET(IN(0), i);                                                               \
            PUT(OUT(0), i, (value));                                                               \
        }                                                                                          \
    }
#define BINARY(name, value)                                                                        \
    KERNEL(name) {                                                                                 \
        FOR_ELEMENT(i) {                                                                           \
            float x = GET(IN(0), i), y = GET(IN(1), i);                                            \
            PUT(OUT(0), i, (value));                                                               \
        }                                                                                          \
    }

#define FACTOR ((float)a.f[0])
#define IS_TANH ((int)a.n[1])

UNARY(copy, x)

/* b has n[1] elements, of which each is added to n[2] that follow one another. */
KERNEL(add_broadcast) {
    FOR_ELEMENT(i) PUT(OUT(0), i, GET(IN(0), i) + GET(IN(1), i / a.n[2] % a.n[1]));
}

KERNEL(zero) {
    FOR_ELEMENT(i) PUT(OUT(0), i, 0);
}

/* sum += summand */
KERNEL(accumulate) {
    FOR_ELEMENT(i) F32(OUT(0))[i] += GET(IN(0), i);
}

KERNEL(loss_gradient) {
    FOR_ELEMENT(i) PUT(OUT(0), i, (float)LOSS_SCALE);
}

/* From [.., n[1], n[2]], places n[3] on along n[1], to [.., n[4], n[2]], places n[5] on; n[6] of
 * them. */
KERNEL(copy_along) {
    FOR_ELEMENT(i) {
        long inner = i % a.n[2], place = i / a.n[2] % a.n[6], outer = i / a.n[2] / a.n[6];
        PUT(OUT(0), (outer * a.n[4] + a.n[5] + place) * a.n[2] + inner,
            GET(IN(0), (outer * a.n[1] + a.n[3] + place) * a.n[2] + inner));
    }
}

/* y [.., n[1], n[2], n[3], n[4]] of x [.., n[3], n[2], n[1], n[4]] */
KERNEL(transpose) {
    FOR_ELEMENT(i) {
        long e = i % a.n[4], third = i / a.n[4], third_at = third % a.n[3];
        long second = third / a.n[3], second_at = second % a.n[2];
        long first = second / a.n[2], first_at = first % a.n[1], outer = first / a.n[1];
        PUT(OUT(0), i, GET(IN(0), (((outer * a.n[3] + third_at) * a.n[2] + second_at) * a.n[1] +
                                   first_at) * a.n[4] + e));
    }
}

/* ---- random numbers: Philox4x32-10, as base/random.c has it ---- */

DEVICE float uniform(ulong seed, ulong name, ulong high, ulong index) {
    ulong folded = seed + name * 0x9E3779B97F4A7C15UL;
    folded ^= folded >> 31;
    ulong low = index >> 2;
    uint k0 = (uint)folded, k1 = (uint)(folded >> 32);
    uint c0 = (uint)low, c1 = (uint)(low >> 32), c2 = (uint)high, c3 = (uint)(high >> 32);
    for (int round = 0; round < 10; round++) {
        ulong p0 = (ulong)0xD2511F53u * c0, p1 = (ulong)0xCD9E8D57u * c2;
        uint n0 = (uint)(p1 >> 32) ^ c1 ^ k0, n2 = (uint)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint)p1;
        c3 = (uint)p0;
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    uint word = (index & 3) == 0 ? c0 : (index & 3) == 1 ? c1 : (index & 3) == 2 ? c2 : c3;
    return (float)(word >> 8) * 5.9604644775390625e-8f;
}

/* Runs of n[1] elements, which the whole has at n[2] of each n[3]; samples of n[4]; the name n[5]. */
KERNEL(dropout) {
    FOR_ELEMENT(i) {
        ulong index = (ulong)(FIRST_SAMPLE * a.n[4] + a.n[2] + i / a.n[1] * a.n[3] + i % a.n[1]);
        float drawn = uniform((ulong)SEED, (ulong)a.n[5], (ulong)STEP, index);
        PUT(OUT(0), i, drawn >= a.f[0] ? (float)(GET(IN(0), i) * (1 / (1 - a.f[0]))) : 0);
    }
}
