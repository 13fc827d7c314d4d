/* Linear layers and products of matrices. Weights stay as they are: with oneDNN 2.6.3
 * on one Zen 5 core, 1024 rows, the shapes of GPT-2, its GEMM on plain weights
 * (GFLOP/s forward, backward data, backward weight) reaches 204-219, 197-213, 207-220;
 * weights in the format that the library would choose 190-220, 147-186, 125-205, and
 * the reorders come on top (up to 36 ms for [50257, 768] against 360 of product). Only
 * its forward at 32 rows of 2048 -> 1000 gains (1.35 to 0.68 ms), less than one reorder. */
#include "kernel/cpu.h"
#include "kernel/onednn/onednn.h"
#include "op/op_table.h"

/* An inner product, or a product of matrices, with plain weights or with weights in the library's
 * fastest layout. */
enum form { PLAIN, PACKED, MATMUL, MATMUL_PACKED };
const char *const wfi_linear_forms[] = {"plain", "packed", "matmul", "matmul_packed", NULL};
const char *const wfi_product_forms[] = {"plain", NULL};

/* The library's weight is [out, in]; the node's may be transposed. */
static wfi_md weight_md(const wfi_kernel *kernel, int operand) {
    wfi_md md = wfi_operand_md(kernel, operand);
    return kernel->node->attr.linear.in_out ? wfi_md_transposed(md) : md;
}

/* Sets the layout of the weight, or of its gradient, for the kernel's form. The library multiplies
 * operands of one type, so a weight of another type must be packed. Declines forms that cannot be
 * used. */
static wf_status want_weight(wfi_kernel *kernel, const wfi_md *x, wfi_md *weight,
                             const char **reason_out) {
    bool is_other = weight->type != x->type;
    if (kernel->way.form < 0) kernel->way.form = is_other ? PACKED : PLAIN;
    bool is_packed = kernel->way.form == PACKED || kernel->way.form == MATMUL_PACKED;
    if (is_other && !is_packed) return wfi_decline(reason_out, "the weight is of another type");
    if (is_packed) weight->kind = WFI_MD_ANY;
    weight->type = x->type;
    return WF_OK;
}

static bool is_matmul(const wfi_kernel *kernel) {
    return kernel->way.form == MATMUL || kernel->way.form == MATMUL_PACKED;
}

/* Operands a, b, bias (or -1) and c of a product; `weight` is the operand that may be packed, and
 * `plain` its plain layout. */
static wf_status describe_matmul(wfi_kernel *kernel, const int operand[4], const wfi_md md[4],
                                 int weight, const wfi_md *plain, const char **reason_out) {
    static const int arg[4] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_BIAS, DNNL_ARG_DST};
    wfi_primitive *primitive;
    const wfi_primitive_op p = {.kind = dnnl_matmul, .md = {md[0], md[1], md[2], md[3]}};
    WF_TRY(wfi_add_op(kernel, dnnl_forward_training, &p, NULL, &(wfi_arguments){{0}, {0}},
                      reason_out, &primitive));
    for (int k = 0; k < 4; k++) {
        if (operand[k] < 0) continue;
        WF_TRY(k == weight ? wfi_bind_format(kernel, primitive, arg[k], operand[k], plain)
                           : wfi_bind(kernel, primitive, arg[k], operand[k]));
    }
    return WF_OK;
}

/* x, weight, bias -> y */
wf_status wfi_describe_linear(wfi_kernel *kernel, const char **reason_out) {
    int n_in = kernel->node->n_in;
    wfi_md x = wfi_operand_rows(kernel, 0), weight = weight_md(kernel, 1), wanted = weight;
    wfi_md bias = {.kind = WFI_MD_ABSENT}, y = wfi_operand_rows(kernel, n_in);
    WF_TRY(want_weight(kernel, &x, &wanted, reason_out));
    if (n_in > 2) bias = wfi_operand_md(kernel, 2);
    if (is_matmul(kernel)) {
        wfi_md plain = wfi_md_transposed(weight);
        if (n_in > 2) bias = wfi_operand_rows(kernel, 2);
        return describe_matmul(kernel, (const int[]){0, 1, n_in > 2 ? 2 : -1, n_in},
                               (const wfi_md[]){x, wfi_md_transposed(wanted), bias, y}, 1, &plain,
                               reason_out);
    }
    static const wfi_arguments arguments = {{DNNL_ARG_SRC, 0, DNNL_ARG_BIAS}, {DNNL_ARG_DST}};
    const wfi_primitive_op p = {.kind = dnnl_inner_product, .md = {x, wanted, bias, y}};
    wfi_primitive *primitive;
    WF_TRY(wfi_add_op(kernel, dnnl_forward_training, &p, NULL, &arguments, reason_out, &primitive));
    return wfi_bind_format(kernel, primitive, DNNL_ARG_WEIGHTS, 1, &weight);
}

/* A weight as it is, or, if that is F32 and `x` is not, in the library's format of x's type. */
static wfi_md wanted_weight(const wfi_md *x, const wfi_md *weight) {
    wfi_md wanted = *weight;
    if (weight->type == x->type) return wanted;
    wanted.type = x->type;
    wanted.kind = WFI_MD_ANY;
    return wanted;
}

static wf_status add_backward(wfi_kernel *kernel, dnnl_prop_kind_t prop, wfi_md x, wfi_md weight,
                              wfi_md bias, wfi_md y, const wfi_arguments *arguments,
                              const char **reason_out, wfi_primitive **primitive_out) {
    const wfi_primitive_op backward = {.kind = dnnl_inner_product, .md = {x, weight, bias, y}},
                           forward = {.kind = dnnl_inner_product,
                                      .md = {x, wanted_weight(&x, &weight), {0}, y}};
    return wfi_add_op(kernel, prop, &forward, &backward, arguments, reason_out, primitive_out);
}

/* dy, weight -> dx */
wf_status wfi_describe_linear_backward_data(wfi_kernel *kernel, const char **reason_out) {
    wfi_md y = wfi_operand_rows(kernel, 0), weight = weight_md(kernel, 1),
           x = wfi_operand_rows(kernel, 2), wanted = weight;
    WF_TRY(want_weight(kernel, &y, &wanted, reason_out));
    if (is_matmul(kernel))
        return describe_matmul(kernel, (const int[]){0, 1, -1, 2},
                               (const wfi_md[]){y, wanted, {.kind = WFI_MD_ABSENT}, x}, 1, &weight,
                               reason_out);
    /* Where several threads divide the sum, oneDNN 2.6.3's kernel for weights in its own format
     * (brgemm_bwd_d) adds stale values of its scratch memory to the result. */
    if (kernel->options.n_threads > 1) {
        kernel->way.form = PLAIN;
        wanted.kind = weight.kind;
    }
    static const wfi_arguments arguments = {{DNNL_ARG_DIFF_DST}, {DNNL_ARG_DIFF_SRC}};
    wfi_primitive *primitive;
    WF_TRY(add_backward(kernel, dnnl_backward_data, x, wanted, (wfi_md){0}, y, &arguments,
                        reason_out, &primitive));
    return wfi_bind_format(kernel, primitive, DNNL_ARG_WEIGHTS, 1, &weight);
}

/* Kernels that add to a large gradient compute a few rows at a time. */
#define CHUNK_BYTES ((size_t)4 << 20)

typedef struct chunks {
    int64_t n_tokens, n_rows, n_cols; /* of the gradient */
    int64_t n_at_once;                /* rows */
    int rows, cols;        /* operands; their columns are the gradient's rows and columns */
    dnnl_data_type_t type; /* of these */
} chunks;

static chunks chunks_of(const wfi_kernel *kernel) {
    bool in_out = kernel->node->attr.linear.in_out;
    wfi_md rows = wfi_operand_rows(kernel, in_out), cols = wfi_operand_rows(kernel, !in_out);
    size_t row_bytes = (size_t)cols.dim[1] * sizeof(float);
    int64_t n_at_once = wfi_max_i64((int64_t)(CHUNK_BYTES / row_bytes), 1);
    return (chunks){rows.dim[0], rows.dim[1], cols.dim[1], n_at_once, in_out, !in_out, rows.type};
}

static wf_status run_adding(wfi_kernel *kernel, wfi_stream_queue *stream, void *const operands[],
                            void *scratch, const wfi_step_args *step) {
    (void)step;
    chunks c = chunks_of(kernel);
    size_t element_bytes = dnnl_data_type_size(c.type);
    char *rows = operands[c.rows];
    float *sum = operands[2];
    for (int64_t first = 0; first < c.n_rows; first += c.n_at_once) {
        int64_t n = wfi_min_i64(c.n_at_once, c.n_rows - first);
        void *own[2];
        own[c.rows] = rows + (size_t)first * element_bytes;
        own[c.cols] = operands[c.cols];
        WF_TRY(wfi_run_primitive(kernel, n < c.n_at_once, own, scratch));
        WF_TRY(
            wfi_backend_cpu.add(stream, sum + first * c.n_cols, scratch, (size_t)(n * c.n_cols)));
    }
    return WF_OK;
}

/* Number 0: as many rows as are computed at once; number 1: those that are left. */
static wf_status add_chunk(wfi_kernel *kernel, const chunks *c, int64_t n,
                           const char **reason_out) {
    wfi_md rows = wfi_md_make(WFI_MD_STRIDED, 2, (int64_t[]){c->n_tokens, n});
    rows.stride[0] = c->n_rows;
    rows = wfi_md_transposed(rows);
    wfi_md cols = wfi_md_make(WFI_MD_STRIDED, 2, (int64_t[]){c->n_tokens, c->n_cols});
    rows.type = cols.type = c->type;
    wfi_md product = wfi_md_make(WFI_MD_STRIDED, 2, (int64_t[]){n, c->n_cols});
    wfi_primitive *primitive;
    const wfi_primitive_op p = {.kind = dnnl_matmul, .md = {rows, cols, {0}, product}};
    WF_TRY(wfi_add_op(kernel, dnnl_forward_training, &p, NULL, &(wfi_arguments){{0}, {0}},
                      reason_out, &primitive));
    WF_TRY(wfi_bind_at(kernel, primitive, DNNL_ARG_SRC, c->rows, 0));
    WF_TRY(wfi_bind_at(kernel, primitive, DNNL_ARG_WEIGHTS, c->cols, 0));
    return wfi_bind_at(kernel, primitive, DNNL_ARG_DST, WFI_SCRATCH, 0);
}

/* dy, x -> dweight, which is added to. */
static wf_status describe_adding(wfi_kernel *kernel, const char **reason_out) {
    wfi_onednn *state = wfi_onednn_of(kernel);
    chunks c = chunks_of(kernel);
    if (kernel->node->n_out > 1 || c.n_rows <= c.n_at_once)
        return wfi_decline(reason_out, "it is small, or has a bias");
    state->own_scratch_bytes =
        wfi_round_up((size_t)(c.n_at_once * c.n_cols) * sizeof(float), WFI_ALIGN_BYTES);
    state->run = run_adding;
    WF_TRY(add_chunk(kernel, &c, c.n_at_once, reason_out));
    if (c.n_rows % c.n_at_once) WF_TRY(add_chunk(kernel, &c, c.n_rows % c.n_at_once, reason_out));
    wfi_use_whole_values(kernel);
    return WF_OK;
}

/* The gradient's rows are the columns of dy, or, if the weight is [in, out], of x. */
static wf_status describe_weight_matmul(wfi_kernel *kernel, const wfi_md *y, const wfi_md *x,
                                        const char **reason_out) {
    bool in_out = kernel->node->attr.linear.in_out;
    wfi_md gradient = wfi_operand_md(kernel, 2), absent = {.kind = WFI_MD_ABSENT};
    if (kernel->node->n_out > 1 || kernel->way.form == MATMUL_PACKED)
        return wfi_decline(reason_out, "a product gives no sum of rows, and a plain gradient");
    return describe_matmul(
        kernel, (const int[]){in_out, !in_out, -1, 2},
        (const wfi_md[]){wfi_md_transposed(in_out ? *x : *y), in_out ? *y : *x, absent, gradient},
        -1, NULL, reason_out);
}

/* dy, x -> dweight, dbias */
wf_status wfi_describe_linear_backward_weight(wfi_kernel *kernel, const char **reason_out) {
    if (kernel->adds) return describe_adding(kernel, reason_out);
    wfi_md y = wfi_operand_rows(kernel, 0), x = wfi_operand_rows(kernel, 1),
           weight = weight_md(kernel, 2), wanted = weight;
    wfi_md bias = {.kind = WFI_MD_ABSENT};
    if (kernel->node->n_out > 1) bias = wfi_operand_md(kernel, 3);
    if (kernel->way.form < 0) kernel->way.form = PLAIN;
    if (kernel->way.form == PACKED || kernel->way.form == MATMUL_PACKED) wanted.kind = WFI_MD_ANY;
    if (is_matmul(kernel)) return describe_weight_matmul(kernel, &y, &x, reason_out);
    static const wfi_arguments arguments = {{DNNL_ARG_DIFF_DST, DNNL_ARG_SRC},
                                            {0, DNNL_ARG_DIFF_BIAS}};
    wfi_primitive *primitive;
    WF_TRY(add_backward(kernel, dnnl_backward_weights, x, wanted, bias, y, &arguments, reason_out,
                        &primitive));
    return wfi_bind_format(kernel, primitive, DNNL_ARG_DIFF_WEIGHTS, 2, &weight);
}

/* a, b -> c */
wf_status wfi_describe_product(wfi_kernel *kernel, const char **reason_out) {
    const wfi_attr *attr = &kernel->node->attr;
    wfi_md a = wfi_operand_md(kernel, 0), b = wfi_operand_md(kernel, 1);
    wfi_md c = wfi_operand_md(kernel, 2);
    if (attr->matmul.transpose_a) a = wfi_md_transposed(a);
    if (attr->matmul.transpose_b) b = wfi_md_transposed(b);
    kernel->way.form = PLAIN;
    return describe_matmul(kernel, (const int[]){0, 1, -1, 2},
                           (const wfi_md[]){a, b, {.kind = WFI_MD_ABSENT}, c}, -1, NULL,
                           reason_out);
}
