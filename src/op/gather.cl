/* Takes one element of each row of n[1]. */

KERNEL(gather) {
    FOR_ELEMENT(i) {
        int index = I32(IN(1))[i];
        PUT(OUT(0), i, index >= 0 && index < a.n[1] ? GET(IN(0), i * a.n[1] + index) : 0);
    }
}

/* The rest is zero. */
KERNEL(gather_backward) {
    FOR_ELEMENT(i) {
        int index = I32(IN(1))[i];
        if (index >= 0 && index < a.n[1]) PUT(OUT(0), i * a.n[1] + index, GET(IN(0), i));
    }
}
