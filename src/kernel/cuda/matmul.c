#include "kernel/cuda/matmul.h"

#define MOST_WAYS 16

static int make_layout(const wfi_cublaslt *lt, const wfi_lt_matrix *m, int64_t n_matrices,
                       cublasLtMatrixLayout_t *out) {
    int32_t n = (int32_t)n_matrices;
    int error =
        lt->MatrixLayoutCreate(out, m->type, (uint64_t)m->n_cols, (uint64_t)m->n_rows, m->row_step);
    if (error || n == 1) return error;
    error = lt->MatrixLayoutSetAttribute(*out, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &n, sizeof n);
    return error ? error
                 : lt->MatrixLayoutSetAttribute(*out, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                                &m->step, sizeof m->step);
}

static int set(const wfi_matmul *m, int attribute, const void *value, size_t bytes) {
    return m->lt->MatmulDescSetAttribute(m->call, attribute, value, bytes);
}

int wfi_matmul_describe(wfi_matmul *m, const wfi_cublaslt *lt, const wfi_lt_shape *shape) {
    const int32_t a = shape->a.is_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    const int32_t b = shape->b.is_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    int compute = shape->is_tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    m->lt = lt;
    int error = lt->MatmulDescCreate(&m->call, compute, CUDA_R_32F);
    if (!error) error = set(m, CUBLASLT_MATMUL_DESC_TRANSA, &b, sizeof b);
    if (!error) error = set(m, CUBLASLT_MATMUL_DESC_TRANSB, &a, sizeof a);
    if (!error) error = make_layout(lt, &shape->b, shape->n_matrices, &m->b);
    if (!error) error = make_layout(lt, &shape->a, shape->n_matrices, &m->a);
    return error ? error : make_layout(lt, &shape->y, shape->n_matrices, &m->y);
}

/* Where a bias or its gradient is, is told each time; how it is aligned, at first. */
static int set_epilogue(const wfi_matmul *m, const void *bias) {
    int error = set(m, CUBLASLT_MATMUL_DESC_EPILOGUE, &m->epilogue, sizeof m->epilogue);
    return error ? error : set(m, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias);
}

static int make_preference(const wfi_cublaslt *lt, uint32_t align,
                           cublasLtMatmulPreference_t *out) {
    const uint64_t most = WFI_LT_MOST_WORKSPACE;
    const uint32_t scheme = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    int error = lt->MatmulPreferenceCreate(out);
    if (!error)
        error = lt->MatmulPreferenceSetAttribute(*out, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                 &most, sizeof most);
    if (!error)
        error = lt->MatmulPreferenceSetAttribute(*out, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                                 &scheme, sizeof scheme);
    for (int k = CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES;
         !error && k <= CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES; k++)
        error = lt->MatmulPreferenceSetAttribute(*out, k, &align, sizeof align);
    return error;
}

int wfi_matmul_choose(wfi_matmul *m, cublasLtHandle_t handle, uint32_t epilogue, size_t align,
                      int place, bool *found_out) {
    const wfi_cublaslt *lt = m->lt;
    wfi_cublaslt_choice all[MOST_WAYS];
    cublasLtMatmulPreference_t preference = NULL;
    int n = 0;
    m->epilogue = epilogue;
    *found_out = false;
    int error = set_epilogue(
        m, epilogue == CUBLASLT_EPILOGUE_DEFAULT ? NULL : (const void *)(uintptr_t)WFI_ALIGN_BYTES);
    if (!error) error = make_preference(lt, (uint32_t)align, &preference);
    if (!error)
        error = lt->MatmulAlgoGetHeuristic(handle, m->call, m->b, m->a, m->y, m->y, preference,
                                           MOST_WAYS, all, &n);
    if (preference) lt->MatmulPreferenceDestroy(preference);
    for (int k = 0, number = 0; k < n && !error && !*found_out; k++) {
        if (all[k].state || all[k].workspaceSize > WFI_LT_MOST_WORKSPACE) continue;
        if (number++ < place) continue;
        m->choice = all[k];
        *found_out = true;
    }
    return error;
}

int wfi_matmul_run(const wfi_matmul *m, cublasLtHandle_t handle, const void *a, const void *b,
                   float kept, void *y, void *bias, void *workspace, CUstream stream) {
    const float one = 1;
    int error = m->epilogue == CUBLASLT_EPILOGUE_DEFAULT ? 0 : set_epilogue(m, bias);
    return error ? error
                 : m->lt->Matmul(handle, m->call, &one, b, m->b, a, m->a, &kept, y, m->y, y, m->y,
                                 &m->choice.algo, workspace, m->choice.workspaceSize, stream);
}

void wfi_matmul_destroy(wfi_matmul *m) {
    if (m->call) m->lt->MatmulDescDestroy(m->call);
    if (m->a) m->lt->MatrixLayoutDestroy(m->a);
    if (m->b) m->lt->MatrixLayoutDestroy(m->b);
    if (m->y) m->lt->MatrixLayoutDestroy(m->y);
}
