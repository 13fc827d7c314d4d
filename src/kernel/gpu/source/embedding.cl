/* Rows of a table: n[1] of n[2] elements, from number n[3] on; n[0] ids, or elements of them. */

KERNEL(embedding) {
    FOR_ELEMENT(i) {
        long row = (long)I32(IN(0))[i / a.n[2]] - a.n[3];
        PUT(OUT(0), i, row >= 0 && row < a.n[1] ? GET(IN(1), row * a.n[2] + i % a.n[2]) : 0);
    }
}

/* The table is zero. A group for each of n[0] tokens; the one that names a row first adds what all
 * bring, in their order. */
KERNEL(embedding_backward) {
    LOCAL int is_later;
    GLOBAL int *id = I32(IN(1));
    long row = (long)id[GROUP_INDEX] - a.n[3];
    if (!THREAD) is_later = 0;
    BARRIER;
    for (long i = THREAD; i < GROUP_INDEX; i += GROUP)
        if (id[i] == id[GROUP_INDEX]) is_later = 1;
    BARRIER;
    if (is_later || row < 0 || row >= a.n[1]) return;
    for (long first = THREAD; first < a.n[2]; first += GROUP * 4) {
        float sum[4] = {0, 0, 0, 0};
        for (long i = GROUP_INDEX; i < a.n[0]; i++)
            if (id[i] == id[GROUP_INDEX])
                for (int k = 0; k < 4; k++)
                    if (first + k * GROUP < a.n[2]) sum[k] += GET(IN(0), i * a.n[2] + first + k * GROUP);
        for (int k = 0; k < 4; k++)
            if (first + k * GROUP < a.n[2]) PUT(OUT(0), row * a.n[2] + first + k * GROUP, sum[k]);
    }
}
