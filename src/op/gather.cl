/* Of each row of n[1] elements one. */

KERNEL(gather) {
    FOR_ELEMENT(i) {
        int index = I32(IN(1))[i];
        PUT(OUT(0), i, index >= 0 && index < a.n[1] ? GET(IN(0), i * a.n[1] + index) : 0);
    }
}

KERNEL(gather_backward) {
    int index = I32(IN(1))[GROUP_INDEX];
    FOR_COLUMN(i) PUT(OUT(0), ROW + i, index == i ? GET(IN(0), GROUP_INDEX) : 0);
}
