/* Kernels of elements without a formula in op/elements.cl, which precedes this file. */

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
