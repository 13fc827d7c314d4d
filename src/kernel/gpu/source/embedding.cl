/* Adds to the zeroed gradient of a table (op/embedding.cl). Each of n[0] tokens has a group; the
 * first group of a row adds the gradients of all its tokens, in their order. */
KERNEL(embedding_backward) {
    LOCAL int is_later;
    GLOBAL int *id = I32(IN(1));
    long row = TABLE_ROW(id[GROUP_INDEX]);
    if (!THREAD) is_later = 0;
    BARRIER;
    for (long i = THREAD; i < GROUP_INDEX; i += GROUP)
        if (id[i] == id[GROUP_INDEX]) is_later = 1;
    BARRIER;
    if (is_later || !IS_IN_TABLE(row)) return;
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
