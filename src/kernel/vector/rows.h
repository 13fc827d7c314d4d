/* Row operations of attention (scores between two products) and of cross entropy (logits).
 * Private. */
#pragma once

#include "kernel/vector/vector.h"

/* Sums and maxima of a row are this many, joined at its end: the same in every variant. */
#define WFI_ROW_LANES WFI_LANES

/* `s`, `ds` [n, n_columns]: a row's step is a multiple of WFI_ROW_LANES, and all of it is there.
 * The first row sees n_seen columns, each of the next ones `more` than the one before; of these a
 * row sees the last `window`. y and dy are [n, d], in rows of y_step. */
typedef struct wfi_rows {
    float *s, *ds;
    int64_t n, n_columns, step, n_seen, more, window;
    float *log_sum; /* [n] */
    float *y;
    const float *dy;
    int64_t d, y_step;
} wfi_rows;

/* S becomes exp(S - max), 0 where it is masked; fills log_sum. The n sums are stored after the rows
 * of s, which must have memory for them. */
void wfi_rows_attend(wfi_variant variant, const wfi_rows *rows);
/* Divides y by these sums. */
void wfi_rows_divide(wfi_variant variant, const wfi_rows *rows);
/* S becomes P, and dP in `ds` becomes dS. */
void wfi_rows_attend_backward(wfi_variant variant, const wfi_rows *rows);

/* A row of logits. Sums are made of so many at a time in F32, and added in double. */
typedef struct wfi_class_row {
    float *x;
    int64_t n;
    float max;
    double sum;   /* of exp(x - max) */
    float factor; /* of a gradient */
} wfi_class_row;

/* Fills max and sum; a NaN makes sum NaN. */
void wfi_class_row_sum(wfi_variant variant, wfi_class_row *row);
/* The same, and x becomes factor softmax(x). */
void wfi_class_row_softmax(wfi_variant variant, wfi_class_row *row);
