#include "infer/logits.h"

#include <stdlib.h>

static int compare(const void *a, const void *b, void *self) {
    const float *logits = self;
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    if (logits[x] != logits[y]) return logits[x] < logits[y] ? 1 : -1;
    return (x > y) - (x < y);
}

void logits_sort(const float *logits, int64_t n, int32_t *order_out) {
    for (int32_t k = 0; k < n; k++) order_out[k] = k;
    qsort_r(order_out, (size_t)n, sizeof *order_out, compare, (void *)logits);
}
