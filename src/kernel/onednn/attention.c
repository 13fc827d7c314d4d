/* Self attention as products of strided matrices, one a sample and head, without
 * copying: queries, keys and values are read where they lie in qkv, and their
 * gradients written there.
 *
 *   S = q k^T / sqrt(d)    P = softmax(S)    y = P v
 *   dP = dy v^T    dS = P (dP - sum P dP)
 *   dq = dS k / sqrt(d)    dk = dS^T q / sqrt(d)    dv = P^T dy
 *
 * Shapes: n samples, h heads of size d, t tokens; c = h d. q, k, v, y are
 * [n, h, t, d] in rows of 3 c or c elements; S, P, dP, dS are [n, h, t, t]. */
#include "kernel/onednn/onednn.h"
#include "op/op_table.h"

#include <math.h>

typedef struct attention {
    wfi_kernel *kernel;
    const char **reason_out;
    int64_t n, t, c, h, d;
} attention;

static attention attention_of(wfi_kernel *kernel, int qkv, const char **reason_out) {
    const int64_t *dim = wfi_operand_value(kernel, qkv)->shape.dim;
    int64_t h = kernel->node->attr.attention.n_heads, c = dim[2] / 3;
    return (attention){kernel, reason_out, dim[0], dim[1], c, h, c / h};
}

/* One of q, k, v, y (or a gradient of them) in rows of `row` elements. */
static wfi_md heads_md(const attention *a, int64_t row, bool transposed) {
    wfi_md md = wfi_md_make(WFI_MD_STRIDED, 4, (int64_t[]){a->n, a->h, a->t, a->d});
    md.stride[0] = a->t * row;
    md.stride[1] = a->d;
    md.stride[2] = row;
    return transposed ? wfi_md_transposed(md) : md;
}

static wfi_md square_md(const attention *a, bool transposed) {
    wfi_md md = wfi_md_make(WFI_MD_STRIDED, 4, (int64_t[]){a->n, a->h, a->t, a->t});
    return transposed ? wfi_md_transposed(md) : md;
}

typedef struct place { /* a matrix and where it lies */
    wfi_md md;
    int operand;
    size_t offset_bytes;
} place;

enum part { QUERY, KEY, VALUE };

static place part_of(const attention *a, int operand, enum part part, bool transposed) {
    return (place){heads_md(a, 3 * a->c, transposed), operand,
                   (size_t)(part * a->c) * sizeof(float)};
}

static wf_status add_product(const attention *a, place x, place y, place z, double factor) {
    dnnl_primitive_desc_t desc;
    wfi_primitive *primitive;
    wfi_after after = {factor == 1 ? WFI_NOTHING : WFI_SCALE, (float)factor};
    WF_TRY(wfi_describe_matmul(&wfi_onednn_of(a->kernel)->lib, &x.md, &y.md, &z.md, after, &desc));
    WF_TRY(wfi_add_primitive(a->kernel, desc, NULL, a->reason_out, &primitive));
    WF_TRY(wfi_bind_at(a->kernel, primitive, DNNL_ARG_SRC, x.operand, x.offset_bytes));
    WF_TRY(wfi_bind_at(a->kernel, primitive, DNNL_ARG_WEIGHTS, y.operand, y.offset_bytes));
    return wfi_bind_at(a->kernel, primitive, DNNL_ARG_DST, z.operand, z.offset_bytes);
}

static wfi_md softmax_md(const attention *a) {
    return wfi_md_make(WFI_MD_STRIDED, 2, (int64_t[]){a->n * a->h * a->t, a->t});
}

/* Between the product and the softmax: what lies in the future counts nothing. */
static void mask_future(float *s, int64_t n_squares, int64_t t) {
    for (int64_t row = 0; row < n_squares * t; row++)
        for (int64_t k = row % t + 1; k < t; k++) s[row * t + k] = -INFINITY;
}

static wf_status run_forward(wfi_kernel *kernel, wfi_stream_queue *stream, void *const operands[],
                             void *scratch, const wfi_step_args *step) {
    (void)stream, (void)step;
    attention a = attention_of(kernel, 0, NULL);
    WF_TRY(wfi_run_primitive(kernel, 0, operands, scratch));
    if (kernel->node->attr.attention.causal) mask_future(operands[2], a.n * a.h, a.t);
    WF_TRY(wfi_run_primitive(kernel, 1, operands, scratch));
    return wfi_run_primitive(kernel, 2, operands, scratch);
}

/* qkv -> y, P. The softmax works in place, on P. */
static wf_status describe_forward(wfi_kernel *kernel, const char **reason_out) {
    attention a = attention_of(kernel, 0, reason_out);
    wfi_onednn *state = wfi_onednn_of(kernel);
    wfi_md data = softmax_md(&a);
    place p = {square_md(&a, false), 2, 0}, y = {heads_md(&a, a.c, false), 1, 0};
    dnnl_primitive_desc_t desc;
    wfi_primitive *softmax;
    WF_TRY(add_product(&a, part_of(&a, 0, QUERY, false), part_of(&a, 0, KEY, true), p,
                       1 / sqrt((double)a.d)));
    WF_TRY(wfi_describe_softmax(&state->lib, dnnl_forward_training, false, &data, NULL, &desc));
    WF_TRY(wfi_add_primitive(kernel, desc, NULL, reason_out, &softmax));
    WF_TRY(wfi_bind_at(kernel, softmax, DNNL_ARG_SRC, 2, 0));
    WF_TRY(wfi_bind_at(kernel, softmax, DNNL_ARG_DST, 2, 0));
    WF_TRY(add_product(&a, p, part_of(&a, 0, VALUE, false), y, 1));
    state->run = run_forward;
    wfi_use_whole_values(kernel);
    return WF_OK;
}

/* dy, qkv, P -> dqkv. dP, then dS in its place, in scratch. */
static wf_status describe_backward(wfi_kernel *kernel, const char **reason_out) {
    attention a = attention_of(kernel, 1, reason_out);
    wfi_onednn *state = wfi_onednn_of(kernel);
    state->own_scratch_bytes =
        wfi_round_up((size_t)(a.n * a.h * a.t * a.t) * sizeof(float), WFI_ALIGN_BYTES);
    wfi_md data = softmax_md(&a);
    double factor = 1 / sqrt((double)a.d);
    place dy = {heads_md(&a, a.c, false), 0, 0}, ds = {square_md(&a, false), WFI_SCRATCH, 0};
    place p_turned = {square_md(&a, true), 2, 0}, ds_turned = {square_md(&a, true), WFI_SCRATCH, 0};
    WF_TRY(add_product(&a, dy, part_of(&a, 1, VALUE, true), ds, 1));
    dnnl_primitive_desc_t forward, desc;
    wfi_primitive *softmax;
    WF_TRY(wfi_describe_softmax(&state->lib, dnnl_forward_training, false, &data, NULL, &forward));
    wf_status status =
        wfi_describe_softmax(&state->lib, dnnl_backward_data, false, &data, forward, &desc);
    if (status != WF_OK) dnnl_primitive_desc_destroy(forward);
    WF_TRY(status);
    WF_TRY(wfi_add_primitive(kernel, desc, forward, reason_out, &softmax));
    WF_TRY(wfi_bind_at(kernel, softmax, DNNL_ARG_DST, 2, 0));
    WF_TRY(wfi_bind_at(kernel, softmax, DNNL_ARG_DIFF_DST, WFI_SCRATCH, 0));
    WF_TRY(wfi_bind_at(kernel, softmax, DNNL_ARG_DIFF_SRC, WFI_SCRATCH, 0));
    WF_TRY(add_product(&a, ds, part_of(&a, 1, KEY, false), part_of(&a, 3, QUERY, false), factor));
    WF_TRY(add_product(&a, ds_turned, part_of(&a, 1, QUERY, false), part_of(&a, 3, KEY, false),
                       factor));
    WF_TRY(add_product(&a, p_turned, dy, part_of(&a, 3, VALUE, false), 1));
    wfi_use_whole_values(kernel);
    return WF_OK;
}

wf_status wfi_describe_attention(wfi_kernel *kernel, const char **reason_out) {
    return kernel->node->op == &wfi_op_self_attention ? describe_forward(kernel, reason_out)
                                                      : describe_backward(kernel, reason_out);
}
