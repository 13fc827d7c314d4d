/* An LSTM layer by the library's own primitive. A forward and its backward have a workspace that
 * only the library can read, so a forward is declined if its backward would be. */
#include "kernel/onednn/onednn.h"
#include "op/op_table.h"

#include <string.h>

/* In the order of wfi_describe_lstm. */
enum { X, H, C, W_IH, W_HH, BIAS, Y, NEXT_H, NEXT_C };

static const int arguments[WFI_LSTM_MDS] = {
    DNNL_ARG_SRC_LAYER,     DNNL_ARG_SRC_ITER,     DNNL_ARG_SRC_ITER_C,
    DNNL_ARG_WEIGHTS_LAYER, DNNL_ARG_WEIGHTS_ITER, DNNL_ARG_BIAS,
    DNNL_ARG_DST_LAYER,     DNNL_ARG_DST_ITER,     DNNL_ARG_DST_ITER_C};
static const int gradients[WFI_LSTM_MDS] = {
    DNNL_ARG_DIFF_SRC_LAYER,     DNNL_ARG_DIFF_SRC_ITER,     DNNL_ARG_DIFF_SRC_ITER_C,
    DNNL_ARG_DIFF_WEIGHTS_LAYER, DNNL_ARG_DIFF_WEIGHTS_ITER, DNNL_ARG_DIFF_BIAS,
    DNNL_ARG_DIFF_DST_LAYER,     DNNL_ARG_DIFF_DST_ITER,     DNNL_ARG_DIFF_DST_ITER_C};

typedef struct layer {
    int64_t n, n_tokens, n_in, h;
    wfi_md
        md[WFI_LSTM_MDS]; /* weights as a forward wants them; a backward takes them as they are */
    wfi_md weight[2];     /* as they are */
    wfi_md diff[WFI_LSTM_MDS]; /* gradients: h and c in scratch memory */
} layer;

/* [n, tokens, width] as the library counts it: by token, then by sample. */
static wfi_md by_token(const layer *l, int64_t width) {
    wfi_md md = wfi_md_make(WFI_MD_STRIDED, 3, (int64_t[]){l->n_tokens, l->n, width});
    md.stride[0] = width;
    md.stride[1] = l->n_tokens * width;
    return md;
}

/* [4 h, n_in] as [1, 1, n_in, 4, h]. */
static wfi_md weight_md(const layer *l, int64_t n_in) {
    wfi_md md = wfi_md_make(WFI_MD_STRIDED, 5, (int64_t[]){1, 1, n_in, 4, l->h});
    md.stride[2] = 1;
    md.stride[3] = l->h * n_in;
    md.stride[4] = n_in;
    return md;
}

/* `x` and `w_hh`: operands. */
static layer layer_of(const wfi_kernel *kernel, int x, int w_hh) {
    const int64_t *dim = wfi_operand_value(kernel, x)->shape.dim;
    layer l = {.n = dim[0], .n_tokens = dim[1], .n_in = dim[2]};
    l.h = wfi_operand_value(kernel, w_hh)->shape.dim[1];
    wfi_md dense = wfi_md_make(WFI_MD_STRIDED, 4, (int64_t[]){1, 1, l.n, l.h}), half = dense;
    half.stride[0] = half.stride[1] = 2 * l.n * l.h;
    half.stride[2] = 2 * l.h;
    l.md[X] = by_token(&l, l.n_in);
    l.md[Y] = by_token(&l, l.h);
    l.md[H] = l.md[C] = l.md[NEXT_H] = l.md[NEXT_C] = half;
    l.md[W_IH] = wfi_md_make(WFI_MD_STRIDED, 5, (int64_t[]){1, 1, l.n_in, 4, l.h});
    l.md[W_HH] = wfi_md_make(WFI_MD_STRIDED, 5, (int64_t[]){1, 1, l.h, 4, l.h});
    l.md[BIAS] = wfi_md_make(WFI_MD_STRIDED, 4, (int64_t[]){1, 1, 4, l.h});
    l.weight[0] = weight_md(&l, l.n_in);
    l.weight[1] = weight_md(&l, l.h);
    memcpy(l.diff, l.md, sizeof l.diff);
    l.diff[H] = l.diff[C] = l.diff[NEXT_H] = l.diff[NEXT_C] = dense;
    return l;
}

static wf_status describe(const wfi_kernel *kernel, const layer *l, bool is_backward,
                          dnnl_primitive_desc_t *forward_out, dnnl_primitive_desc_t *backward_out) {
    const wfi_onednn_library *lib = &wfi_onednn_of(kernel)->lib;
    const wfi_md *md[WFI_LSTM_MDS], *diff[WFI_LSTM_MDS];
    dnnl_prop_kind_t prop =
        kernel->graph->training ? dnnl_forward_training : dnnl_forward_inference;
    for (int k = 0; k < WFI_LSTM_MDS; k++) md[k] = &l->md[k], diff[k] = &l->diff[k];
    WF_TRY(wfi_describe_lstm(lib, prop, md, NULL, NULL, forward_out));
    if (!kernel->graph->training) return WF_OK;
    md[W_IH] = &l->weight[0], md[W_HH] = &l->weight[1];
    wf_status status = wfi_describe_lstm(lib, dnnl_backward, md, diff, *forward_out, backward_out);
    if (status != WF_OK) dnnl_primitive_desc_destroy(*forward_out);
    if (status == WF_OK && !is_backward) dnnl_primitive_desc_destroy(*backward_out);
    return status;
}

/* h in front of c, in an operand or in scratch memory. */
static wf_status bind_halves(wfi_kernel *kernel, wfi_primitive *primitive, const int *arg, int h,
                             int operand, size_t at, size_t c_at) {
    WF_TRY(wfi_bind_at(kernel, primitive, arg[h], operand, at));
    return wfi_bind_at(kernel, primitive, arg[h + 1], operand, c_at);
}

static wf_status bind_weights(wfi_kernel *kernel, wfi_primitive *primitive, const int *arg,
                              const layer *l, int operand) {
    WF_TRY(wfi_bind_format(kernel, primitive, arg[W_IH], operand, &l->weight[0]));
    return wfi_bind_format(kernel, primitive, arg[W_HH], operand + 1, &l->weight[1]);
}

/* The library has one bias. */
static wf_status run_forward(wfi_kernel *kernel, wfi_stream_queue *stream, void *const operands[],
                             void *scratch, const wfi_step_args *step) {
    (void)stream, (void)step;
    const float *b_ih = operands[3], *b_hh = operands[4];
    float *bias = scratch;
    int64_t n = wfi_operand_value(kernel, 3)->shape.dim[0];
    for (int64_t k = 0; k < n; k++) bias[k] = b_ih[k] + b_hh[k];
    return wfi_run_primitive(kernel, 0, operands, scratch);
}

/* x, w_ih, w_hh, b_ih, b_hh, hidden -> y, next, workspace */
static wf_status describe_forward(wfi_kernel *kernel, const char **reason_out) {
    wfi_onednn *state = wfi_onednn_of(kernel);
    layer l = layer_of(kernel, 0, 2);
    size_t half_bytes = (size_t)l.h * sizeof(float);
    dnnl_primitive_desc_t forward, backward;
    wfi_primitive *primitive;
    WF_TRY(describe(kernel, &l, false, &forward, &backward));
    state->own_scratch_bytes = wfi_round_up(4 * half_bytes, WFI_ALIGN_BYTES);
    state->run = run_forward;
    wfi_use_whole_values(kernel);
    WF_TRY(wfi_add_primitive(kernel, forward, NULL, reason_out, &primitive));
    WF_TRY(wfi_bind_at(kernel, primitive, arguments[X], 0, 0));
    WF_TRY(bind_weights(kernel, primitive, arguments, &l, 1));
    WF_TRY(wfi_bind_at(kernel, primitive, arguments[BIAS], WFI_SCRATCH, 0));
    WF_TRY(bind_halves(kernel, primitive, arguments, H, 5, 0, half_bytes));
    WF_TRY(wfi_bind_at(kernel, primitive, arguments[Y], 6, 0));
    WF_TRY(bind_halves(kernel, primitive, arguments, NEXT_H, 7, 0, half_bytes));
    if (kernel->node->n_out < 3) return WF_OK;
    return wfi_bind(kernel, primitive, DNNL_ARG_WORKSPACE, 8);
}

/* The library adds to the gradients of weights. The gradients from after the last token are
 * zero. */
static wf_status run_backward(wfi_kernel *kernel, wfi_stream_queue *stream, void *const operands[],
                              void *scratch, const wfi_step_args *step) {
    (void)stream, (void)step;
    for (int k = 9; k <= 11; k++) memset(operands[k], 0, kernel->extent[k]);
    memset(scratch, 0, wfi_onednn_of(kernel)->own_scratch_bytes);
    return wfi_run_primitive(kernel, 0, operands, scratch);
}

/* dy, x, w_ih, w_hh, hidden, y, next, workspace -> dx, dw_ih, dw_hh, db. The library requires a
 * bias, which it does not read, and memory for the gradient of `hidden`, which is discarded. */
static wf_status describe_backward(wfi_kernel *kernel, const char **reason_out) {
    wfi_onednn *state = wfi_onednn_of(kernel);
    layer l = layer_of(kernel, 1, 3);
    size_t half_bytes = (size_t)l.h * sizeof(float), dense_bytes = (size_t)l.n * half_bytes;
    size_t unwanted_at = wfi_round_up(2 * dense_bytes, WFI_ALIGN_BYTES); /* behind zeros */
    size_t bias_at = 2 * unwanted_at;
    dnnl_primitive_desc_t forward, backward;
    wfi_primitive *primitive;
    WF_TRY(describe(kernel, &l, true, &forward, &backward));
    state->own_scratch_bytes = wfi_round_up(bias_at + 4 * half_bytes, WFI_ALIGN_BYTES);
    state->run = run_backward;
    wfi_use_whole_values(kernel);
    WF_TRY(wfi_add_primitive(kernel, backward, forward, reason_out, &primitive));
    WF_TRY(wfi_bind_at(kernel, primitive, arguments[X], 1, 0));
    WF_TRY(bind_weights(kernel, primitive, arguments, &l, 2));
    WF_TRY(wfi_bind_at(kernel, primitive, arguments[BIAS], WFI_SCRATCH, bias_at));
    WF_TRY(bind_halves(kernel, primitive, arguments, H, 4, 0, half_bytes));
    WF_TRY(wfi_bind_at(kernel, primitive, arguments[Y], 5, 0));
    WF_TRY(bind_halves(kernel, primitive, arguments, NEXT_H, 6, 0, half_bytes));
    WF_TRY(wfi_bind(kernel, primitive, DNNL_ARG_WORKSPACE, 7));
    WF_TRY(wfi_bind_at(kernel, primitive, gradients[Y], 0, 0));
    WF_TRY(bind_halves(kernel, primitive, gradients, NEXT_H, WFI_SCRATCH, 0, dense_bytes));
    WF_TRY(wfi_bind_at(kernel, primitive, gradients[X], 8, 0));
    WF_TRY(bind_weights(kernel, primitive, gradients, &l, 9));
    WF_TRY(wfi_bind_at(kernel, primitive, gradients[BIAS], 11, 0));
    return bind_halves(kernel, primitive, gradients, H, WFI_SCRATCH, unwanted_at,
                       unwanted_at + dense_bytes);
}

wf_status wfi_describe_recurrent(wfi_kernel *kernel, const char **reason_out) {
    return kernel->node->op == &wfi_op_lstm ? describe_forward(kernel, reason_out)
                                            : describe_backward(kernel, reason_out);
}
