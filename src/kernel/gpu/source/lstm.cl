/* A layer of long short-term memory, all tokens: a group for each sample; n[1] hidden units, n[2]
 * features, n[3] tokens. Saved for the backward: each token's gates, i, f, g, o, and c. */

#define SAVED_AT(token, which) (((GROUP_INDEX * a.n[3] + (token)) * 5 + (which)) * a.n[1])

/* x, w_ih, w_hh, b_ih, b_hh, hidden; y, next, saved values. */
KERNEL(lstm) {
    long h = a.n[1];
    for (long t = 0; t < a.n[3]; t++) {
        long x = (GROUP_INDEX * a.n[3] + t) * a.n[2], y = (GROUP_INDEX * a.n[3] + t) * h;
        for (long j = THREAD; j < h; j += GROUP) {
            float gate[4];
            for (int k = 0; k < 4; k++) {
                long row = k * h + j;
                float sum = GET(IN(3), row) + GET(IN(4), row), recurrent = 0;
                for (long i = 0; i < a.n[2]; i++)
                    sum = MULTIPLY_ADD(GET(IN(1), row * a.n[2] + i), GET(IN(0), x + i), sum);
                for (long i = 0; i < h; i++)
                    recurrent = MULTIPLY_ADD(GET(IN(2), row * h + i),
                                             t ? GET(OUT(0), y - h + i)
                                               : GET(IN(5), 2 * GROUP_INDEX * h + i),
                                             recurrent);
                sum += recurrent;
                gate[k] = k == 2 ? tanh(sum) : sigmoid_of(sum);
                if (HAS(OUT(2))) F32(OUT(2))[SAVED_AT(t, k) + j] = gate[k];
            }
            long cell = (2 * GROUP_INDEX + 1) * h + j;
            float c = t ? GET(OUT(1), cell) : GET(IN(5), cell);
            c = gate[1] * c + gate[0] * gate[2];
            float value = gate[3] * tanh(c);
            PUT(OUT(1), cell, c);
            PUT(OUT(0), y + j, value);
            if (t + 1 == a.n[3]) PUT(OUT(1), cell - h, value);
            if (HAS(OUT(2))) F32(OUT(2))[SAVED_AT(t, 4) + j] = c;
        }
        GLOBAL_BARRIER;
    }
}

/* dy, x, w_ih, w_hh, hidden, y, next, saved values. Writes the gates' gradients [n[4] samples,
 * tokens, 4 h] to the scratch memory, then the gradient of c from the next token, [samples, h]. */
#define TO_SCRATCH(k, slope) F32(SCRATCH)[(token * 4 + (k)) * h + j] = slope
KERNEL(lstm_gates_backward) {
    long h = a.n[1], own_c = a.n[4] * a.n[3] * 4 * h + GROUP_INDEX * h;
    for (long t = a.n[3] - 1; t >= 0; t--) {
        long token = GROUP_INDEX * a.n[3] + t;
        for (long j = THREAD; j < h; j += GROUP) {
            float dh = 0, dc = 0;
            for (long row = 0; row < 4 * h && t + 1 < a.n[3]; row++)
                dh = MULTIPLY_ADD(F32(SCRATCH)[(token + 1) * 4 * h + row], GET(IN(3), row * h + j),
                                  dh);
            dh += GET(IN(0), token * h + j);
            if (t + 1 < a.n[3]) dc = F32(SCRATCH)[own_c + j];
            float in = F32(IN(7))[SAVED_AT(t, 0) + j], f = F32(IN(7))[SAVED_AT(t, 1) + j];
            float g = F32(IN(7))[SAVED_AT(t, 2) + j], o = F32(IN(7))[SAVED_AT(t, 3) + j];
            float before = t ? F32(IN(7))[SAVED_AT(t - 1, 4) + j]
                             : GET(IN(4), (2 * GROUP_INDEX + 1) * h + j);
            float bent = tanh(F32(IN(7))[SAVED_AT(t, 4) + j]);
            float cell = dc + dh * o * (1 - bent * bent);
            GATE_SLOPES(TO_SCRATCH, before);
            F32(SCRATCH)[own_c + j] = cell * f;
        }
        GLOBAL_BARRIER;
    }
}
