/* The norm of a gradient, summed in parts in a fixed order. */
#include "optimizer/optimizer.h"

/* Each sum is one chain of additions, so several are made at a time. */
#define N_CHAINS 4

typedef struct squaring {
    const float *gradient; /* [n_groups][N_CHAINS][WFI_NORM_BLOCK_ELEMENTS] */
    double *sums;
    size_t n_groups;
} squaring;

WFI_LOOP void square_loop(const squaring *s) {
    const float *restrict gradient = s->gradient;
    double *restrict sums = s->sums;
    for (size_t n = s->n_groups; n; n--, gradient += N_CHAINS * WFI_NORM_BLOCK_ELEMENTS) {
        double sum[N_CHAINS] = {0};
        for (size_t i = 0; i < WFI_NORM_BLOCK_ELEMENTS; i++)
            for (int k = 0; k < N_CHAINS; k++) {
                double g = gradient[k * WFI_NORM_BLOCK_ELEMENTS + (int)i];
                sum[k] += g * g;
            }
        for (int k = 0; k < N_CHAINS; k++) *sums++ = sum[k];
    }
}

WFI_VARIANTS(square, squaring, square_loop)

void wfi_gradient_squares(wfi_variant variant, const float *gradient, size_t n,
                          double *squares_out) {
    size_t n_groups = n / (N_CHAINS * WFI_NORM_BLOCK_ELEMENTS);
    square(variant, &(squaring){gradient, squares_out, n_groups});
    for (size_t begin = n_groups * N_CHAINS * WFI_NORM_BLOCK_ELEMENTS; begin < n;
         begin += WFI_NORM_BLOCK_ELEMENTS) {
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
