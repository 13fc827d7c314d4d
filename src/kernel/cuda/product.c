/* Products of matrices by cuBLASLt, in the nodes of kernel/gpu: a launch of the kernel `product` is
 * a call of the library's, which adds a bias, or sums the bias's gradient, if it can.
 *
 * The library stores matrices by columns, weft by rows: y = a b becomes y^T = b^T a^T, so the
 * library's first matrix is b. Sums have one fixed order: nothing is reduced in place. The
 * library's heuristics offer the algorithms for a shape, best first. All products of a node use the
 * algorithm at the same position.
 */
#include "kernel/cuda/library.h"
#include "kernel/gpu/node.h"

#include <stdio.h>

/* The most that an algorithm gets to work in. */
#define MOST_WORKSPACE_BYTES ((uint64_t)32 << 20)
#define MOST_WAYS            16

typedef struct product {
    cublasLtMatmulDesc_t call; /* NULL: it is a kernel of weft's */
    cublasLtMatrixLayout_t a, b, y;
    wfi_cublaslt_choice choice;
    uint32_t epilogue;
} product;

/* wfi_kernel.state */
typedef struct library_node {
    wfi_gpu_node l;
    product products[WFI_GPU_LAUNCHES];
    const wfi_cublaslt *lt;
    int merged;                         /* the launch that is a product's epilogue; -1: none */
    wfi_format rounded[WFI_MAX_INPUTS]; /* where they are weights in BF16 */
    char detail[80];
} library_node;

/* ---- descriptors ---- */

static int type_of(const wfi_kernel_launch *launch, int operand) {
    uint32_t is_narrow = 1u << operand, is_rounded = 1u << (16 + operand);
    return launch->narrow & (is_narrow | is_rounded) ? CUDA_R_16BF : CUDA_R_32F;
}

static wfi_cuda_enum make_layout(const wfi_cublaslt *lt, int type, const wfi_gpu_matrix *m,
                                 int32_t n, cublasLtMatrixLayout_t *out) {
    wfi_cuda_enum error =
        lt->MatrixLayoutCreate(out, type, (uint64_t)m->n_cols, (uint64_t)m->n_rows, m->row);
    if (error || n == 1) return error;
    error = lt->MatrixLayoutSetAttribute(*out, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &n, sizeof n);
    return error ? error
                 : lt->MatrixLayoutSetAttribute(*out, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                                &m->apart, sizeof m->apart);
}

static wfi_cuda_enum make_call(const wfi_kernel *kernel, const wfi_kernel_launch *launch,
                               product *p) {
    const wfi_cublaslt *lt = ((const library_node *)kernel->state)->lt;
    const wfi_gpu_matrix a = wfi_gpu_matrix_of(launch, 0), b = wfi_gpu_matrix_of(launch, 1);
    const wfi_gpu_matrix y = wfi_gpu_matrix_of(launch, 2);
    const int32_t turn[] = {b.is_turned ? CUBLAS_OP_T : CUBLAS_OP_N,
                            a.is_turned ? CUBLAS_OP_T : CUBLAS_OP_N};
    int32_t n = (int32_t)launch->arguments.n[9];
    bool is_tf32 = kernel->options.multiplies_tf32 && type_of(launch, 0) == CUDA_R_32F;
    wfi_cuda_enum error = lt->MatmulDescCreate(
        &p->call, is_tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F);
    for (int i = 0; i < 2 && !error; i++)
        error = lt->MatmulDescSetAttribute(p->call, CUBLASLT_MATMUL_DESC_TRANSA + i, &turn[i],
                                           sizeof turn[i]);
    if (!error) error = make_layout(lt, type_of(launch, 1), &b, n, &p->b);
    if (!error) error = make_layout(lt, type_of(launch, 0), &a, n, &p->a);
    return error ? error : make_layout(lt, type_of(launch, WFI_GPU_OUT), &y, n, &p->y);
}

/* Sets the address of the bias or its gradient before each call; the choice of an algorithm uses
 * only the alignment. */
static int set_epilogue(const wfi_cublaslt *lt, const product *p, const void *bias) {
    wfi_cuda_enum error = lt->MatmulDescSetAttribute(p->call, CUBLASLT_MATMUL_DESC_EPILOGUE,
                                                     &p->epilogue, sizeof p->epilogue);
    return error ? error
                 : lt->MatmulDescSetAttribute(p->call, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias,
                                              sizeof bias);
}

static wfi_cuda_enum make_preference(const wfi_cublaslt *lt, uint32_t align,
                                     cublasLtMatmulPreference_t *out) {
    const uint64_t most = MOST_WORKSPACE_BYTES;
    const uint32_t scheme = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    wfi_cuda_enum error = lt->MatmulPreferenceCreate(out);
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

/* Where each matrix of a launch begins: at a multiple of so many bytes. */
static uint32_t align_of(const wfi_gpu_node *l, const wfi_gpu_planned *planned) {
    static const int operands[] = {0, 1, WFI_GPU_OUT};
    size_t bits = WFI_ALIGN_BYTES;
    for (int which = 0; which < 3; which++) {
        int i = operands[which];
        size_t element = type_of(&planned->launch, i) == CUDA_R_16BF ? 2 : 4;
        bits |= planned->skip[i];
        if (planned->launch.arguments.n[9] > 1)
            bits |= (size_t)wfi_gpu_matrix_of(&planned->launch, which).apart * element;
        for (int k = 0; k < WFI_GPU_LOOPS; k++)
            if (l->n_loops[k] > 1) bits |= planned->step[k][i];
    }
    return (uint32_t)(bits & (~bits + 1));
}

/* The way's algorithm; none: *found_out is false. */
static int choose(wfi_kernel *kernel, cublasLtHandle_t handle, int k, uint32_t epilogue,
                  bool *found_out) {
    library_node *s = kernel->state;
    const wfi_cublaslt *lt = s->lt;
    product *p = &s->products[k];
    wfi_cublaslt_choice all[MOST_WAYS];
    cublasLtMatmulPreference_t preference = NULL;
    int n = 0;
    p->epilogue = epilogue;
    *found_out = false;
    int error = set_epilogue(
        lt, p,
        epilogue == CUBLASLT_EPILOGUE_DEFAULT ? NULL : (const void *)(uintptr_t)WFI_ALIGN_BYTES);
    if (!error) error = make_preference(lt, align_of(&s->l, &s->l.all[k]), &preference);
    if (!error)
        error = lt->MatmulAlgoGetHeuristic(handle, p->call, p->b, p->a, p->y, p->y, preference,
                                           MOST_WAYS, all, &n);
    if (preference) lt->MatmulPreferenceDestroy(preference);
    for (int i = 0, number = 0; i < n && !error && !*found_out; i++) {
        if (all[i].state || all[i].workspaceSize > MOST_WORKSPACE_BYTES) continue;
        if (number++ < kernel->way.number) continue;
        p->choice = all[i];
        *found_out = true;
    }
    return error;
}

/* A separate kernel after the product computes a bias's gradient: the sums of the rows of dy, the
 * library's first or second matrix. If an algorithm can compute these sums too, the separate kernel
 * is dropped. */
static int choose_any(wfi_kernel *kernel, cublasLtHandle_t handle, int k, bool *found_out) {
    library_node *s = kernel->state;
    wfi_gpu_planned *now = &s->l.all[k], *next = k + 1 < s->l.n ? now + 1 : NULL;
    bool has_gradient = kernel->node->op->product && next && next->launch.entry == WFI_GPU_reduce;
    uint32_t epilogue = now->from[2] >= 0               ? CUBLASLT_EPILOGUE_BIAS
                        : !has_gradient                 ? CUBLASLT_EPILOGUE_DEFAULT
                        : now->from[0] == next->from[0] ? CUBLASLT_EPILOGUE_BGRADB
                                                        : CUBLASLT_EPILOGUE_BGRADA;
    int error = choose(kernel, handle, k, epilogue, found_out);
    bool is_merged = has_gradient && !error && *found_out;
    if (is_merged) s->merged = k + 1, now->from[2] = next->from[WFI_GPU_OUT];
    return is_merged || !has_gradient
               ? error
               : choose(kernel, handle, k, CUBLASLT_EPILOGUE_DEFAULT, found_out);
}

/* "algo21.tile20.stages11.split1", then the other attributes that are set: on GPUs since Hopper
 * most algorithms differ by those alone. */
static void name_algorithm(library_node *s, const product *p) {
#define PART(name, attribute, bytes, text) {text, attribute, bytes},
    static const struct {
        const char *name;
        wfi_cuda_enum attribute;
        size_t bytes;
    } parts[] = {WFI_CUBLASLT_CONFIGS(PART)};
    size_t n = 0, written;
    for (size_t i = 0; i < WFI_COUNT(parts) && n < sizeof s->detail; i++) {
        uint32_t number = 0; /* of a GPU's host: little-endian */
        (void)s->lt->MatmulAlgoConfigGetAttribute(&p->choice.algo, parts[i].attribute, &number,
                                                  parts[i].bytes, &written);
        if (i < 4 || number)
            n += (size_t)snprintf(s->detail + n, sizeof s->detail - n, "%s%u", parts[i].name,
                                  number);
    }
}

/* ---- running ---- */

static wf_status launch_one(wfi_kernel *kernel, wfi_stream_queue *stream,
                            const wfi_kernel_launch *launch, int k) {
    const library_node *s = kernel->state;
    const product *p = &s->products[k];
    const float one = 1, kept = kernel->adds;
    const void *const *at = launch->operands;
    void *y = (void *)(uintptr_t)at[WFI_GPU_OUT];
    char *scratch = (char *)(uintptr_t)at[WFI_GPU_SCRATCH];
    wfi_cuda_handles *handles;
    int error = 0;
    if (k == s->merged) return WF_OK;
    if (!p->call) return stream->device->kind->launch(stream, launch);
    if (scratch)
        scratch = wfi_cuda_workspace(scratch + wfi_round_up(s->l.scratch_bytes, WFI_ALIGN_BYTES));
    WF_TRY(wfi_cuda_take_handles(kernel->ctx, stream, &handles));
    if (p->epilogue != CUBLASLT_EPILOGUE_DEFAULT) error = set_epilogue(s->lt, p, at[2]);
    if (!error)
        error = s->lt->Matmul(handles->lt, p->call, &one, at[1], p->b, at[0], p->a, &kept, y, p->y,
                              y, p->y, &p->choice.algo, scratch, p->choice.workspaceSize,
                              wfi_cuda_stream(stream));
    wfi_cuda_give_handles(handles);
    if (!error) return WF_OK;
    return wfi_fail(kernel->ctx, WF_DEVICE, "cuBLASLt refuses %s of unit %s: status %d",
                    kernel->label, kernel->graph->units[kernel->node->unit].name, error);
}

/* ---- describing ---- */

static const char *why_not(const wfi_kernel *kernel, const wfi_kernel_launch *launch) {
    const wfi_node *node = kernel->node;
    const int64_t *n = launch->arguments.n;
    bool is_narrow = type_of(launch, 0) == CUDA_R_16BF;
    if (kernel->adds && node->op != &wfi_op_linear_backward_weight)
        return "it accumulates into its output";
    if (kernel->adds && node->n_out > 1 && node->out[1] >= 0)
        return "the bias's gradient would have to be added to";
    if ((type_of(launch, 1) == CUDA_R_16BF) != is_narrow)
        return "it would have to round a value that is not kept";
    if (!is_narrow && type_of(launch, WFI_GPU_OUT) == CUDA_R_16BF) return "its result is BF16";
    if (n[0] < 1 || n[1] < 1 || n[2] < 1 || n[9] < 1) return "it is empty";
    if (n[0] > INT32_MAX || n[1] > INT32_MAX || n[2] > INT32_MAX || n[9] > INT32_MAX)
        return "a dim is too large";
    return NULL;
}

/* Parameters that count as BF16, and a bias added to a BF16 result, are rounded once a step; then
 * only products read them. */
static const char *round_weights(wfi_kernel *kernel) {
    library_node *s = kernel->state;
    for (int k = 0; k < s->l.n; k++)
        for (int i = 0; i < 3; i++) {
            const wfi_gpu_planned *planned = &s->l.all[k];
            bool is_bias = i == 2 && s->products[k].epilogue == CUBLASLT_EPILOGUE_BIAS &&
                           type_of(&planned->launch, WFI_GPU_OUT) == CUDA_R_16BF;
            int from = planned->from[i];
            if (!is_bias && (i == 2 || !(planned->launch.narrow >> (16 + i) & 1))) continue;
            if (!s->products[k].call || !wfi_cuda_can_round(kernel, from))
                return "it would have to round a value that is not kept";
            wfi_cuda_round(kernel, from, &s->rounded[from]);
        }
    return NULL;
}

static wf_status describe_with(wfi_kernel *kernel, const wfi_cuda_handles *handles,
                               const char **reason_out) {
    library_node *s = kernel->state;
    size_t workspace_bytes = 0;
    s->lt = &handles->libraries->lt;
    if (!handles->lt) return wfi_decline(reason_out, handles->libraries->no_lt);
    for (int k = 0; k < s->l.n; k++) {
        const wfi_kernel_launch *launch = &s->l.all[k].launch;
        product *p = &s->products[k];
        bool is_found = false;
        if (launch->entry != WFI_GPU_product) continue;
        int error = make_call(kernel, launch, p);
        if (!error) error = choose_any(kernel, handles->lt, k, &is_found);
        if (error || !is_found) return wfi_decline(reason_out, "cuBLASLt has no algorithm for it");
        if (p->choice.workspaceSize > workspace_bytes) workspace_bytes = p->choice.workspaceSize;
        if (!*s->detail) name_algorithm(s, p);
    }
    kernel->detail = s->detail;
    kernel->way.form = 0;
    kernel->scratch_bytes =
        wfi_round_up(s->l.scratch_bytes, WFI_ALIGN_BYTES) + wfi_cuda_scratch_bytes(workspace_bytes);
    *reason_out = round_weights(kernel);
    return *reason_out ? WF_UNSUPPORTED : WF_OK;
}

static wf_status describe(wfi_kernel *kernel, const char **reason_out) {
    const wfi_gpu_row row = wfi_gpu_find_row(kernel->node->op);
    WF_TRY(wfi_gpu_plan(kernel, &row, sizeof(library_node), launch_one, reason_out));
    library_node *s = kernel->state;
    s->merged = -1;
    *reason_out = "it does not contain a matrix product";
    for (int k = 0; k < s->l.n; k++) {
        if (s->l.all[k].launch.entry != WFI_GPU_product) continue;
        *reason_out = why_not(kernel, &s->l.all[k].launch);
        if (*reason_out) return WF_UNSUPPORTED;
    }
    return *reason_out ? WF_UNSUPPORTED
                       : wfi_cuda_describe(kernel, sizeof *s, describe_with, reason_out);
}

static void destroy(wfi_kernel *kernel) {
    library_node *s = kernel->state;
    for (int k = 0; s && k < s->l.n; k++) {
        product *p = &s->products[k];
        if (p->call) s->lt->MatmulDescDestroy(p->call);
        if (p->a) s->lt->MatrixLayoutDestroy(p->a);
        if (p->b) s->lt->MatrixLayoutDestroy(p->b);
        if (p->y) s->lt->MatrixLayoutDestroy(p->y);
    }
    wfi_kernel_free_state(kernel);
}

const wfi_kernel_impl wfi_kernel_cublaslt = {
    .name = "cublaslt",
    .describe = describe,
    .own_forms = (const char *const[]){"cublaslt", NULL},
    .run = wfi_gpu_run,
    .destroy = destroy,
};
