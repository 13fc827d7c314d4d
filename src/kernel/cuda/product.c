/* Linear layers and products of matrices by cuBLASLt.
 *
 * The library's matrices lie column by column, weft's row by row: what is y = a b here is
 * y^T = b^T a^T there, so that its first matrix is b. Sums are made in one order only: nothing is
 * reduced in place. Ways are the algorithms which its heuristics offer for a shape, best first.
 */
#include "kernel/cuda/library.h"
#include "kernel/gpu/gpu.h"
#include "op/op_table.h"

#include <stdio.h>

/* The most that an algorithm gets to work in. */
#define MOST_WORKSPACE_BYTES ((uint64_t)32 << 20)
#define MOST_WAYS            16

/* wfi_kernel.state */
typedef struct lt_product {
    wfi_product p;
    int out, bias; /* operands; bias, or its gradient, -1: there is none */
    uint32_t epilogue;
    cublasLtMatmulDesc_t call;
    cublasLtMatrixLayout_t a, b, y;
    wfi_cublaslt_choice choice;
    const wfi_cublaslt *lt;
    bool sums_columns;     /* the bias's gradient is a kernel of weft's */
    wfi_format rounded[3]; /* a, b, bias: where they are weights in BF16 */
    char detail[80];
} lt_product;

static const char *const *forms_of(const wfi_op *op) {
    static const char *const forms[] = {"cublaslt", NULL};
    (void)op;
    return forms;
}

/* ---- nodes as products ---- */

/* A bias's gradient is the sum of the rows of dy, which is the library's first matrix, or its
 * second. */
static void find_product(const wfi_kernel *kernel, lt_product *s) {
    const wfi_node *node = kernel->node;
    const wfi_call call = wfi_call_of(kernel->graph, node);
    bool has_gradient = node->n_out > 1 && node->out[1] >= 0;
    s->p = node->op->product(&call);
    s->out = node->n_in;
    s->bias = s->p.bias ? s->p.bias : has_gradient ? s->out + 1 : -1;
    s->epilogue = s->p.bias       ? CUBLASLT_EPILOGUE_BIAS
                  : !has_gradient ? CUBLASLT_EPILOGUE_DEFAULT
                  : s->p.a        ? CUBLASLT_EPILOGUE_BGRADA
                                  : CUBLASLT_EPILOGUE_BGRADB;
}

/* ---- what the library is told ---- */

static int type_of(const wfi_kernel *kernel, int operand) {
    bool is_narrow = operand < kernel->node->n_in
                         ? wfi_cuda_is_narrow(kernel)
                         : wfi_operand_value(kernel, operand)->dtype == WF_BF16;
    return is_narrow ? CUDA_R_16BF : CUDA_R_32F;
}

/* A matrix of rows x cols elements, as it lies in memory; several follow one another. */
static int make_layout(const wfi_cublaslt *lt, int type, int64_t n_matrices, int64_t down,
                       int64_t across, bool is_transposed, cublasLtMatrixLayout_t *out) {
    int64_t stride = across * down, width = is_transposed ? down : across;
    int32_t n = (int32_t)n_matrices;
    int error =
        lt->MatrixLayoutCreate(out, type, (uint64_t)width, (uint64_t)(stride / width), width);
    if (error || n == 1) return error;
    error = lt->MatrixLayoutSetAttribute(*out, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &n, sizeof n);
    return error ? error
                 : lt->MatrixLayoutSetAttribute(*out, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                                &stride, sizeof stride);
}

static int set(const lt_product *s, int attribute, const void *value, size_t bytes) {
    return s->lt->MatmulDescSetAttribute(s->call, attribute, value, bytes);
}

static int make_call(const wfi_kernel *kernel, lt_product *s) {
    const wfi_product *p = &s->p;
    const wfi_cublaslt *lt = s->lt;
    const int32_t a = p->a_is_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    const int32_t b = p->b_is_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    bool is_tf32 = kernel->options.multiplies_tf32 && !wfi_cuda_is_narrow(kernel);
    int compute = is_tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    int error = lt->MatmulDescCreate(&s->call, compute, CUDA_R_32F);
    if (!error) error = set(s, CUBLASLT_MATMUL_DESC_TRANSA, &b, sizeof b);
    if (!error) error = set(s, CUBLASLT_MATMUL_DESC_TRANSB, &a, sizeof a);
    if (!error)
        error = make_layout(lt, type_of(kernel, p->b), p->n_matrices, p->k, p->n,
                            p->b_is_transposed, &s->b);
    if (!error)
        error = make_layout(lt, type_of(kernel, p->a), p->n_matrices, p->m, p->k,
                            p->a_is_transposed, &s->a);
    return error
               ? error
               : make_layout(lt, type_of(kernel, s->out), p->n_matrices, p->m, p->n, false, &s->y);
}

/* Where a bias or its gradient is, is told each time; how it is aligned, at first. */
static int set_epilogue(const lt_product *s, uint32_t epilogue, const void *bias) {
    int error = set(s, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
    return error ? error : set(s, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias);
}

static int make_preference(const wfi_cublaslt *lt, cublasLtMatmulPreference_t *out) {
    const uint64_t most = MOST_WORKSPACE_BYTES;
    const uint32_t scheme = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, align = WFI_ALIGN_BYTES;
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

/* The way's algorithm; none: *found_out is false. */
static int choose(wfi_kernel *kernel, cublasLtHandle_t handle, bool *found_out) {
    lt_product *s = kernel->state;
    wfi_cublaslt_choice all[MOST_WAYS];
    cublasLtMatmulPreference_t preference = NULL;
    int n = 0, error = make_preference(s->lt, &preference);
    if (!error)
        error = s->lt->MatmulAlgoGetHeuristic(handle, s->call, s->b, s->a, s->y, s->y, preference,
                                              MOST_WAYS, all, &n);
    if (preference) s->lt->MatmulPreferenceDestroy(preference);
    *found_out = false;
    if (error) return error;
    for (int k = 0, number = 0; k < n && !*found_out; k++) {
        if (all[k].state || all[k].workspaceSize > MOST_WORKSPACE_BYTES) continue;
        if (number++ < kernel->way.number) continue;
        s->choice = all[k];
        *found_out = true;
    }
    return error;
}

/* "algo21.tile20.stages11.split1", and behind it what else tells algorithms apart, where it is set:
 * on GPUs since Hopper most are one algorithm's. */
static void name_algorithm(lt_product *s) {
    static const struct {
        const char *name;
        int attribute;
        size_t bytes;
    } parts[] = {{"algo", CUBLASLT_ALGO_CONFIG_ID, 4},
                 {".tile", CUBLASLT_ALGO_CONFIG_TILE_ID, 4},
                 {".stages", CUBLASLT_ALGO_CONFIG_STAGES_ID, 4},
                 {".split", CUBLASLT_ALGO_CONFIG_SPLITK_NUM, 4},
                 {".swizzle", CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, 4},
                 {".custom", CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, 4},
                 {".inner", CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID, 2},
                 {".cluster", CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, 2}};
    size_t n = 0, written;
    for (size_t i = 0; i < WFI_COUNT(parts) && n < sizeof s->detail; i++) {
        uint32_t number = 0; /* of a GPU's host: little-endian */
        (void)s->lt->MatmulAlgoConfigGetAttribute(&s->choice.algo, parts[i].attribute, &number,
                                                  parts[i].bytes, &written);
        if (i < 4 || number)
            n += (size_t)snprintf(s->detail + n, sizeof s->detail - n, "%s%u", parts[i].name,
                                  number);
    }
}

/* Where no algorithm has the bias's gradient, a kernel of weft's sums it. */
static int choose_any(wfi_kernel *kernel, cublasLtHandle_t handle, bool *found_out) {
    lt_product *s = kernel->state;
    bool has_gradient = s->bias > s->out;
    int error = set_epilogue(s, s->epilogue, (const void *)(uintptr_t)WFI_ALIGN_BYTES);
    if (!error) error = choose(kernel, handle, found_out);
    if (!has_gradient || (!error && *found_out)) return error;
    s->sums_columns = true;
    s->epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    error = set_epilogue(s, s->epilogue, NULL);
    return error ? error : choose(kernel, handle, found_out);
}

/* ---- the implementation ---- */

static const char *why_not(const wfi_kernel *kernel, const lt_product *s) {
    const wfi_product *p = &s->p;
    const int operand[] = {p->a, p->b, s->out, s->bias};
    bool is_narrow = wfi_cuda_is_narrow(kernel);
    if (kernel->adds && s->bias > s->out) return "the bias's gradient would have to be added to";
    if (kernel->adds && kernel->node->op != &wfi_op_linear_backward_weight) return "it has to add";
    for (int i = 0; i < 4; i++) {
        if (operand[i] < 0) continue;
        bool is_input = operand[i] < kernel->node->n_in;
        if (is_narrow && is_input && !wfi_cuda_can_round(kernel, operand[i]))
            return "it would have to round what is not kept";
        if (!is_narrow && wfi_operand_value(kernel, operand[i])->dtype != WF_F32)
            return "it would have to widen what is BF16";
    }
    if (p->m < 1 || p->n < 1 || p->k < 1 || p->n_matrices < 1) return "it is empty";
    if (p->m > INT32_MAX || p->n > INT32_MAX || p->k > INT32_MAX || p->n_matrices > INT32_MAX)
        return "a dim is too large";
    return NULL;
}

/* With the handles: sets up what is given to the library. */
static wf_status describe_with(wfi_kernel *kernel, const wfi_cuda_handles *handles,
                               const char **reason_out) {
    lt_product *s = kernel->state;
    bool is_found = false;
    find_product(kernel, s);
    s->lt = &handles->libraries->lt;
    if (!handles->lt) return wfi_decline(reason_out, handles->libraries->no_lt);
    int error = make_call(kernel, s);
    if (!error) error = choose_any(kernel, handles->lt, &is_found);
    if (error || !is_found) return wfi_decline(reason_out, "cuBLASLt has no algorithm for it");
    name_algorithm(s);
    kernel->detail = s->detail;
    kernel->way.form = 0;
    kernel->scratch_bytes = wfi_cuda_scratch_bytes(s->choice.workspaceSize);
    wfi_use_whole_values(kernel);
    const int operand[] = {s->p.a, s->p.b, s->bias};
    for (int i = 0; i < 3 && wfi_cuda_is_narrow(kernel); i++) {
        bool is_as_wide = i == 2 && type_of(kernel, s->out) == CUDA_R_32F;
        if (operand[i] >= 0 && operand[i] < kernel->node->n_in && !is_as_wide)
            wfi_cuda_round(kernel, operand[i], &s->rounded[i]);
    }
    return WF_OK;
}

static wf_status describe(wfi_kernel *kernel, const char **reason_out) {
    lt_product s;
    if (!kernel->node->op->product) return wfi_decline(reason_out, "it is no product of matrices");
    find_product(kernel, &s);
    *reason_out = why_not(kernel, &s);
    if (*reason_out) return WF_UNSUPPORTED;
    return wfi_cuda_describe(kernel, sizeof(lt_product), describe_with, reason_out);
}

static wf_status sum_columns(const wfi_kernel *kernel, wfi_stream_queue *stream, const void *dy,
                             void *dbias) {
    const lt_product *s = kernel->state;
    int64_t n_cols = s->p.a ? s->p.n : s->p.m; /* of weights [in, out], or [out, in] */
    wfi_kernel_launch launch = {
        .source = &wfi_gpu_source, .entry = WFI_GPU_reduce, .narrow = wfi_cuda_is_narrow(kernel)};
    launch.operands[0] = dy;
    launch.operands[WFI_GPU_OUT] = dbias;
    wfi_gpu_set_column_sum(&launch.arguments, s->p.k, n_cols);
    return wfi_gpu_launch_elements(stream, &launch, n_cols);
}

static wf_status run(wfi_kernel *kernel, wfi_stream_queue *stream, void *const operands[],
                     void *scratch, const wfi_step_args *step) {
    (void)step;
    lt_product *s = kernel->state;
    const wfi_product *p = &s->p;
    const float one = 1, kept = kernel->adds;
    wfi_cuda_handles *handles;
    int error = 0;
    WF_TRY(wfi_cuda_take_handles(kernel->ctx, stream, &handles));
    if (s->epilogue != CUBLASLT_EPILOGUE_DEFAULT)
        error = set_epilogue(s, s->epilogue, operands[s->bias]);
    if (!error)
        error = s->lt->Matmul(handles->lt, s->call, &one, operands[p->b], s->b, operands[p->a],
                              s->a, &kept, operands[s->out], s->y, operands[s->out], s->y,
                              &s->choice.algo, wfi_cuda_workspace(scratch), s->choice.workspaceSize,
                              wfi_cuda_stream(stream));
    wfi_cuda_give_handles(handles);
    if (error)
        return wfi_fail(kernel->ctx, WF_DEVICE, "cuBLASLt refuses %s of unit %s: status %d",
                        kernel->label, kernel->graph->units[kernel->node->unit].name, error);
    return s->sums_columns ? sum_columns(kernel, stream, operands[0], operands[s->bias]) : WF_OK;
}

static void destroy(wfi_kernel *kernel) {
    lt_product *s = kernel->state;
    if (!s) return;
    if (s->call) s->lt->MatmulDescDestroy(s->call);
    if (s->a) s->lt->MatrixLayoutDestroy(s->a);
    if (s->b) s->lt->MatrixLayoutDestroy(s->b);
    if (s->y) s->lt->MatrixLayoutDestroy(s->y);
    wfi_free(kernel->ctx, s);
}

const wfi_kernel_impl wfi_kernel_cublaslt = {
    .name = "cublaslt",
    .describe = describe,
    .forms = forms_of,
    .run = run,
    .destroy = destroy,
};
