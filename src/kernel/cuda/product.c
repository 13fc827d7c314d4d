/* Linear layers and products of matrices by cuBLASLt. Ways are the algorithms which its heuristics
 * offer for a shape, best first.
 */
#include "kernel/cuda/matmul.h"
#include "kernel/gpu/gpu.h"
#include "op/op_table.h"

#include <stdio.h>

/* wfi_kernel.state */
typedef struct lt_product {
    wfi_product p;
    int out, bias; /* operands; bias, or its gradient, -1: there is none */
    uint32_t epilogue;
    wfi_matmul matmul;
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

/* A matrix of rows x cols elements; several follow one another. */
static wfi_lt_matrix matrix_of(const wfi_kernel *kernel, int operand, int64_t rows, int64_t cols,
                               bool is_transposed) {
    wfi_lt_matrix m = {.type = type_of(kernel, operand), .step = rows * cols};
    m.is_transposed = is_transposed;
    m.n_rows = is_transposed ? cols : rows;
    m.row_step = m.n_cols = is_transposed ? rows : cols;
    return m;
}

static wfi_lt_shape shape_of(const wfi_kernel *kernel, const lt_product *s) {
    const wfi_product *p = &s->p;
    return (wfi_lt_shape){.a = matrix_of(kernel, p->a, p->m, p->k, p->a_is_transposed),
                          .b = matrix_of(kernel, p->b, p->k, p->n, p->b_is_transposed),
                          .y = matrix_of(kernel, s->out, p->m, p->n, false),
                          .n_matrices = p->n_matrices,
                          .is_tf32 =
                              kernel->options.multiplies_tf32 && !wfi_cuda_is_narrow(kernel)};
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
        (void)s->matmul.lt->MatmulAlgoConfigGetAttribute(&s->matmul.choice.algo, parts[i].attribute,
                                                         &number, parts[i].bytes, &written);
        if (i < 4 || number)
            n += (size_t)snprintf(s->detail + n, sizeof s->detail - n, "%s%u", parts[i].name,
                                  number);
    }
}

/* Where no algorithm has the bias's gradient, a kernel of weft's sums it. */
static int choose_any(wfi_kernel *kernel, cublasLtHandle_t handle, bool *found_out) {
    lt_product *s = kernel->state;
    int place = kernel->way.number;
    int error =
        wfi_matmul_choose(&s->matmul, handle, s->epilogue, WFI_ALIGN_BYTES, place, found_out);
    if (s->bias <= s->out || (!error && *found_out)) return error;
    s->sums_columns = true;
    return wfi_matmul_choose(&s->matmul, handle, CUBLASLT_EPILOGUE_DEFAULT, WFI_ALIGN_BYTES, place,
                             found_out);
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
    if (!handles->lt) return wfi_decline(reason_out, handles->libraries->no_lt);
    const wfi_lt_shape shape = shape_of(kernel, s);
    int error = wfi_matmul_describe(&s->matmul, &handles->libraries->lt, &shape);
    if (!error) error = choose_any(kernel, handles->lt, &is_found);
    if (error || !is_found) return wfi_decline(reason_out, "cuBLASLt has no algorithm for it");
    name_algorithm(s);
    kernel->detail = s->detail;
    kernel->way.form = 0;
    kernel->scratch_bytes = wfi_cuda_scratch_bytes(s->matmul.choice.workspaceSize);
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
    wfi_cuda_handles *handles;
    WF_TRY(wfi_cuda_take_handles(kernel->ctx, stream, &handles));
    int error =
        wfi_matmul_run(&s->matmul, handles->lt, operands[s->p.a], operands[s->p.b], kernel->adds,
                       operands[s->out], s->bias < 0 ? NULL : operands[s->bias],
                       wfi_cuda_workspace(scratch), wfi_cuda_stream(stream));
    wfi_cuda_give_handles(handles);
    if (error)
        return wfi_fail(kernel->ctx, WF_DEVICE, "cuBLASLt refuses %s of unit %s: status %d",
                        kernel->label, kernel->graph->units[kernel->node->unit].name, error);
    return s->sums_columns ? sum_columns(kernel, stream, operands[0], operands[s->bias]) : WF_OK;
}

static void destroy(wfi_kernel *kernel) {
    lt_product *s = kernel->state;
    if (!s) return;
    wfi_matmul_destroy(&s->matmul);
    wfi_free(kernel->ctx, s);
}

const wfi_kernel_impl wfi_kernel_cublaslt = {
    .name = "cublaslt",
    .describe = describe,
    .forms = forms_of,
    .run = run,
    .destroy = destroy,
};
