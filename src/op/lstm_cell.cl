/* A group for each sample: a token, n[1] units of n[2], from n[3] on, which are from n[4] on in a c
 * of n[5]; token n[7] of n[6]. Gates are i, f, g, o. */

#define UNIT_AT(k) (GROUP_INDEX * 4 * a.n[1] + (k) * a.n[1] + j)
#define CELL_AT (GROUP_INDEX * a.n[5] + a.n[4] + j)

DEVICE float sigmoid_of(float x) {
    return 1 / (1 + expf(-x));
}

/* x, r, c; h, which is zero but for the units, next, gates. */
KERNEL(lstm_cell) {
    long x = (GROUP_INDEX * a.n[6] + a.n[7]) * 4 * a.n[1];
    FOR_COLUMN(j) {
        float gate[4];
        for (int k = 0; k < 4; k++) {
            float sum = GET(IN(0), x + k * a.n[1] + j) + GET(IN(1), UNIT_AT(k));
            gate[k] = k == 2 ? tanhf(sum) : sigmoid_of(sum);
            if (HAS(OUT(2))) PUT(OUT(2), UNIT_AT(k), gate[k]);
        }
        float next = gate[1] * GET(IN(2), CELL_AT) + gate[0] * gate[2];
        PUT(OUT(1), ROW + j, next);
        PUT(OUT(0), GROUP_INDEX * a.n[2] + a.n[3] + j, gate[3] * tanhf(next));
    }
}

/* Puts the gradients of the gates in, f, g and o with TO, from dh, the cell's slope, the c before,
 * and `bent`, the cell's tanh. */
#define GATE_SLOPES(TO, before)                                                                    \
    do {                                                                                           \
        TO(0, cell * g * in * (1 - in));                                                           \
        TO(1, cell * (before) * f * (1 - f));                                                      \
        TO(2, cell * in * (1 - g * g));                                                            \
        TO(3, dh * bent * o * (1 - o));                                                            \
    } while (0)
#define TO_UNIT(k, slope) PUT(OUT(0), UNIT_AT(k), slope)

/* dh, gates, c, next, dnext?; dr, dc. */
KERNEL(lstm_cell_backward) {
    FOR_COLUMN(j) {
        float dh = GET(IN(0), GROUP_INDEX * a.n[2] + a.n[3] + j), bent = tanhf(GET(IN(3), ROW + j));
        float in = GET(IN(1), UNIT_AT(0)), f = GET(IN(1), UNIT_AT(1)), g = GET(IN(1), UNIT_AT(2));
        float o = GET(IN(1), UNIT_AT(3));
        float cell = dh * o * (1 - bent * bent) + (HAS(IN(4)) ? GET(IN(4), ROW + j) : 0);
        GATE_SLOPES(TO_UNIT, GET(IN(2), CELL_AT));
        PUT(OUT(1), ROW + j, cell * f);
    }
}
