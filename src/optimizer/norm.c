/* The norm of a gradient, in parts whose order is fixed. */
#include "optimizer/optimizer.h"

void wfi_gradient_squares(const float *gradient, size_t n, double *squares_out) {
    for (size_t begin = 0; begin < n; begin += WFI_NORM_BLOCK_ELEMENTS) {
        size_t end = begin + WFI_NORM_BLOCK_ELEMENTS < n ? begin + WFI_NORM_BLOCK_ELEMENTS : n;
        double sum = 0;
        for (size_t i = begin; i < end; i++) sum += (double)gradient[i] * (double)gradient[i];
        squares_out[begin / WFI_NORM_BLOCK_ELEMENTS] = sum;
    }
}

double wfi_tree_sum(const double *values, size_t n) {
    if (n == 0) return 0;
    if (n == 1) return values[0];
    size_t left = (n + 1) / 2;
    return wfi_tree_sum(values, left) + wfi_tree_sum(values + left, n - left);
}
