/* Rows of a table: n[1] of n[2] elements, from number n[3] on; n[0] ids, a group for each. */

#define TABLE_ROW(id) ((long)(id) - a.n[3])
#define IS_IN_TABLE(row) ((row) >= 0 && (row) < a.n[1])

KERNEL(embedding) {
    long row = TABLE_ROW(I32(IN(0))[GROUP_INDEX]);
    for (long j = THREAD; j < a.n[2]; j += GROUP)
        PUT(OUT(0), GROUP_INDEX * a.n[2] + j, IS_IN_TABLE(row) ? GET(IN(1), row * a.n[2] + j) : 0);
}
