/* n[0] results; x [.., n[1], n[2]] over n[1]; f[0]: the factor of the sum. */

KERNEL(reduce) {
    FOR_ELEMENT(i) {
        long first = i / a.n[2] * a.n[1] * a.n[2] + i % a.n[2];
        double sum = 0;
        for (long j = 0; j < a.n[1]; j++) sum += GET(IN(0), first + j * a.n[2]);
        PUT(OUT(0), i, (float)(sum * a.f[0]));
    }
}

KERNEL(reduce_backward) {
    FOR_ELEMENT(i)
    PUT(OUT(0), i, (float)(GET(IN(0), i / a.n[2] / a.n[1] * a.n[2] + i % a.n[2]) * a.f[0]));
}
