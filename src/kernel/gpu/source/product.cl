/* Products of matrices, and convolutions as products with a second matrix gathered from an image. A
 * group makes a tile of TILE x TILE elements, each of its threads 4 x 4; sums run in ascending
 * order. n[0] x n[1] elements, sums of n[2]; group by group along rows, then down, then matrix by
 * matrix. */

#define TILE 32
#define DEPTH 16

#define PRODUCT(name, prepare, value_a, value_b, store)                                            \
    KERNEL(name) {                                                                                 \
        LOCAL float tile_a[DEPTH][TILE + 1], tile_b[DEPTH][TILE + 1];                              \
        int m = (int)a.n[0], n = (int)a.n[1], n_tiles = (n + TILE - 1) / TILE;                     \
        int n_tile_rows = (m + TILE - 1) / TILE;                                                   \
        int tile_col = (int)(GROUP_INDEX % n_tiles) * TILE;                                        \
        int tile_row = (int)(GROUP_INDEX / n_tiles % n_tile_rows) * TILE;                          \
        long matrix = GROUP_INDEX / n_tiles / n_tile_rows;                                         \
        int own_row = THREAD / 8 * 4, own_col = THREAD % 8 * 4;                                    \
        float sum[4][4];                                                                           \
        for (int r = 0; r < 4; r++)                                                                \
            for (int c = 0; c < 4; c++) sum[r][c] = 0;                                             \
        prepare;                                                                                   \
        for (int from = 0; from < a.n[2]; from += DEPTH) {                                         \
            for (int e = THREAD; e < TILE * DEPTH; e += GROUP) {                                   \
                int i = tile_row + e / DEPTH, k = from + e % DEPTH;                                \
                tile_a[e % DEPTH][e / DEPTH] = i < m && k < a.n[2] ? (value_a) : 0;                \
            }                                                                                      \
            for (int e = THREAD; e < TILE * DEPTH; e += GROUP) {                                   \
                int j = tile_col + e % TILE, k = from + e / TILE;                                  \
                float value = 0;                                                                   \
                if (j < n && k < a.n[2]) { value_b; }                                              \
                tile_b[e / TILE][e % TILE] = value;                                                \
            }                                                                                      \
            BARRIER;                                                                               \
            for (int k = 0; k < DEPTH; k++)                                                        \
                for (int r = 0; r < 4; r++)                                                        \
                    for (int c = 0; c < 4; c++)                                                    \
                        sum[r][c] = MULTIPLY_ADD(tile_a[k][own_row + r], tile_b[k][own_col + c],   \
                                                 sum[r][c]);                                       \
            BARRIER;                                                                               \
        }                                                                                          \
        for (int r = 0; r < 4; r++)                                                                \
            for (int c = 0; c < 4; c++) {                                                          \
                int i = tile_row + own_row + r, j = tile_col + own_col + c;                        \
                float value = sum[r][c];                                                           \
                if (i < m && j < n) { store; }                                                     \
            }                                                                                      \
    }

/* a [n[3] i + n[4] k], b [n[5] k + n[6] j], y [n[10] i + j], of matrices n[7], n[8] and n[11] apart;
 * and a bias a column. */
PRODUCT(product,
        long left = matrix * a.n[7]; long right = matrix * a.n[8]; long to = matrix * a.n[11],
        GET(IN(0), left + i * a.n[3] + k * a.n[4]),
        value = GET(IN(1), right + k * a.n[5] + j * a.n[6]),
        PUT(OUT(0), to + i * a.n[10] + j, HAS(IN(2)) ? value + GET(IN(2), j) : value))

/* The gradient of an LSTM's recurrent weight: a product of the gates' gradients, a [n[2], n[3]],
 * and h before each of n[7] tokens. */
PRODUCT(lstm_weight, long tokens = a.n[7]; (void)matrix, GET(SCRATCH, (long)k * a.n[3] + i),
        value = k % tokens ? GET(IN(5), ((long)k - 1) * n + j) : GET(IN(4), k / tokens * 2 * n + j),
        PUT(OUT(2), (long)i * n + j, value))

/* ---- convolutions: x [N, n[3], n[4], n[5]], y [N, n[6], n[7], n[8]], windows n[9] x n[10], n[11]
 * apart, n[12] outside; a matrix for each group, of which there are f[0], their
 * elements f[1] apart ---- */

#define GROUPS (int)a.f[0]
#define KH (int)a.n[9]
#define KW (int)a.n[10]
#define STRIDE (int)a.n[11]
#define PAD (int)a.n[12]
#define DILATION (int)a.f[1]

/* Rows: a group's outputs; columns: pixels of y, sample by sample; sums over an output's weights. */
PRODUCT(conv2d, int h = (int)a.n[4]; int w = (int)a.n[5]; int ow = (int)a.n[8];
        int pixels = (int)(a.n[7] * a.n[8]); int own_in = (int)a.n[3] / GROUPS;
        long weight = matrix * m * a.n[2]; long x = matrix * own_in * h * w;
        long y = matrix * m * pixels,
        GET(IN(1), weight + (long)i * a.n[2] + k),
        int place = j % pixels; int row = place / ow * STRIDE - PAD + k / KW % KH * DILATION;
        int col = place % ow * STRIDE - PAD + k % KW * DILATION;
        if (row >= 0 && row < h && col >= 0 && col < w)
            value = GET(IN(0), x + ((j / pixels * a.n[3] + k / KW / KH) * h + row) * w + col),
        PUT(OUT(0), y + (j / pixels * a.n[6] + i) * pixels + j % pixels,
            HAS(IN(2)) ? value + GET(IN(2), matrix * m + i) : value))

/* Rows: a group's channels of x; columns: its pixels; sums over outputs and windows. */
PRODUCT(conv2d_backward_data, int oh = (int)a.n[7]; int ow = (int)a.n[8]; int w = (int)a.n[5];
        int pixels = (int)(a.n[4] * a.n[5]); int own_out = (int)a.n[6] / GROUPS;
        long weight = matrix * m * a.n[2]; long dy = matrix * own_out * oh * ow;
        long dx = matrix * m * pixels,
        GET(IN(1), weight + ((long)(k / KW / KH) * m + i) * (KH * KW) + k % (KH * KW)),
        int place = j % pixels; int row = place / w + PAD - k / KW % KH * DILATION;
        int col = place % w + PAD - k % KW * DILATION;
        if (row >= 0 && col >= 0 && row % STRIDE == 0 && col % STRIDE == 0 && row / STRIDE < oh &&
            col / STRIDE < ow)
            value = GET(IN(0), dy + ((j / pixels * a.n[6] + k / KW / KH) * oh + row / STRIDE) * ow +
                               col / STRIDE),
        PUT(OUT(0), dx + (j / pixels * a.n[3] + i) * pixels + j % pixels, value))

/* Rows: a group's outputs; columns: weights of one; sums over samples and pixels of y. */
PRODUCT(conv2d_backward_weight, int h = (int)a.n[4]; int w = (int)a.n[5]; int ow = (int)a.n[8];
        int pixels = (int)(a.n[7] * a.n[8]); long dy = matrix * m * pixels;
        long x = matrix * (a.n[3] / GROUPS) * h * w; long to = matrix * m * n,
        GET(IN(0), dy + (k / pixels * a.n[6] + i) * pixels + k % pixels),
        int place = k % pixels; int row = place / ow * STRIDE - PAD + j / KW % KH * DILATION;
        int col = place % ow * STRIDE - PAD + j % KW * DILATION;
        if (row >= 0 && row < h && col >= 0 && col < w)
            value = GET(IN(1), x + ((k / pixels * a.n[3] + j / KW / KH) * h + row) * w + col),
        PUT(OUT(0), to + (long)i * n + j, value))

/* The factor of the weights: a matrix with a row for each of an output's weights, and a column for
 * each pixel of y, sample by sample. n[0]: pixels of y, of each channel of x, of n[2] samples. */
KERNEL(columns) {
    FOR_ELEMENT(i) {
        int pixels = (int)(a.n[7] * a.n[8]), place = (int)(i % pixels), h = (int)a.n[4], w = (int)a.n[5];
        int sample = (int)(i / pixels / a.n[3]), c = (int)(i / pixels % a.n[3]);
        long from = i / pixels * h * w, row_size = a.n[2] * pixels;
        long to = c * KH * KW * row_size + (long)sample * pixels + place;
        int top = place / (int)a.n[8] * STRIDE - PAD, left = place % (int)a.n[8] * STRIDE - PAD;
        for (int row = top; row < top + KH * DILATION; row += DILATION)
            for (int col = left; col < left + KW * DILATION; col += DILATION, to += row_size) {
                bool is_inside = row >= 0 && row < h && col >= 0 && col < w;
                PUT(OUT(0), to, is_inside ? GET(IN(0), from + (long)row * w + col) : 0);
            }
    }
}

/* The other way: each of n[0] pixels of x is the sum of its places there, window by window. */
KERNEL(images) {
    FOR_ELEMENT(i) {
        int oh = (int)a.n[7], ow = (int)a.n[8], w = (int)a.n[5], place = (int)(i % (a.n[4] * w));
        long plane = i / (a.n[4] * w), row_size = a.n[2] * oh * ow;
        long from = plane % a.n[3] * KH * KW * row_size + plane / a.n[3] * oh * ow;
        float sum = 0;
        for (int kh = 0; kh < KH; kh++)
            for (int kw = 0; kw < KW; kw++, from += row_size) {
                int row = place / w + PAD - kh * DILATION, col = place % w + PAD - kw * DILATION;
                if (row >= 0 && col >= 0 && row % STRIDE == 0 && col % STRIDE == 0 &&
                    row / STRIDE < oh && col / STRIDE < ow)
                    sum += GET(IN(0), from + row / STRIDE * ow + col / STRIDE);
            }
        PUT(OUT(0), i, sum);
    }
}
