/* One of cuBLASLt's products: what the library is told of it, and the algorithm that it takes.
 *
 * The library's matrices lie column by column, weft's row by row: what is y = a b here is
 * y^T = b^T a^T there, so that its first matrix is b. Sums are made in one order only: nothing is
 * reduced in place. Private to kernel/cuda.
 */
#ifndef WFI_CUDA_MATMUL_H
#define WFI_CUDA_MATMUL_H

#include "kernel/cuda/library.h"

/* The most that an algorithm gets to work in. */
#define WFI_LT_MOST_WORKSPACE ((size_t)32 << 20)

/* n_matrices of n_rows x n_cols elements, as they lie in memory. */
typedef struct wfi_lt_matrix {
    int type;
    int64_t n_rows, n_cols;
    int64_t row_step, step; /* elements from one row, and matrix, to the next */
    bool is_transposed;     /* as it is multiplied */
} wfi_lt_matrix;

typedef struct wfi_lt_shape {
    wfi_lt_matrix a, b, y;
    int64_t n_matrices;
    bool is_tf32;
} wfi_lt_shape;

/* Zero: there is none. */
typedef struct wfi_matmul {
    const wfi_cublaslt *lt;
    cublasLtMatmulDesc_t call;
    cublasLtMatrixLayout_t a, b, y;
    wfi_cublaslt_choice choice;
    uint32_t epilogue;
} wfi_matmul;

/* Each returns the library's status. The descriptors; then the algorithm at a place among those
 * which its heuristics offer for an epilogue, best first: none: *found_out is false. */
int wfi_matmul_describe(wfi_matmul *m, const wfi_cublaslt *lt, const wfi_lt_shape *shape);
int wfi_matmul_choose(wfi_matmul *m, cublasLtHandle_t handle, uint32_t epilogue, size_t align,
                      int place, bool *found_out);
/* y = a b + kept y; `bias` as the epilogue has it. */
int wfi_matmul_run(const wfi_matmul *m, cublasLtHandle_t handle, const void *a, const void *b,
                   float kept, void *y, void *bias, void *workspace, CUstream stream);
void wfi_matmul_destroy(wfi_matmul *m);

#endif
