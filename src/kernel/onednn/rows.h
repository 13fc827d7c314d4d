/* What attention does with rows of scores between two products. Private. */
#ifndef WFI_ONEDNN_ROWS_H
#define WFI_ONEDNN_ROWS_H

#include "base/variants.h"

#include <stdint.h>

/* Sums and maxima of a row are this many, joined at its end: the same in every variant. */
#define WFI_ROW_LANES 16

/* `s`, `ds` [n, n_columns]: a row's step is a multiple of WFI_ROW_LANES, and all of it is there.
 * The first row sees n_seen columns, each of the next ones `more` than the one before. y and dy are
 * [n, d], in rows of y_step. */
typedef struct wfi_rows {
    float *s, *ds;
    int64_t n, n_columns, step, n_seen, more;
    float *log_sum; /* [n] */
    float *y;
    const float *dy;
    int64_t d, y_step;
} wfi_rows;

/* S becomes exp(S - max), 0 where it is not seen; fills log_sum. The sums are left behind the rows
 * of s: there has to be room for n. */
void wfi_rows_attend(wfi_variant variant, const wfi_rows *rows);
/* Divides y by these sums. */
void wfi_rows_divide(wfi_variant variant, const wfi_rows *rows);
/* S becomes P, and dP in `ds` becomes dS. */
void wfi_rows_attend_backward(wfi_variant variant, const wfi_rows *rows);

#endif
