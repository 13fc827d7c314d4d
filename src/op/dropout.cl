/* Runs of n[1] elements, which the whole has at n[2] of each n[3]; samples of n[4]; the name n[5]; f[0]:
 * p. Plain C draws many at once (dropout.c). */
KERNEL(dropout) {
    FOR_ELEMENT(i) {
        ulong index = (ulong)(FIRST_SAMPLE * a.n[4] + a.n[2] + i / a.n[1] * a.n[3] + i % a.n[1]);
        float drawn = draw_uniform((ulong)SEED, (ulong)a.n[5], (ulong)STEP, index);
        PUT(OUT(0), i, drawn >= a.f[0] ? (float)(GET(IN(0), i) * (1 / (1 - a.f[0]))) : 0);
    }
}
