/* Batch norm (fused with an addend and a ReLU where the graph has them) and layer norm. */
#include "kernel/onednn/onednn.h"
#include "kernel/onednn/threads.h"
#include "kernel/vector/channels.h"
#include "op/op_table.h"

#include <string.h>

/* A forward and its backward exchange a workspace (which elements the ReLU let
 * through) that only this library can read, so a forward is declined if its
 * backward would be. `*backward_out` is NULL if the shape has none here. */
static wf_status describe_pair(const wfi_library *lib, const wfi_md *x, float eps, unsigned flags,
                               dnnl_primitive_desc_t *forward_out,
                               dnnl_primitive_desc_t *backward_out) {
    dnnl_primitive_desc_t forward;
    WF_TRY(wfi_describe_batch_norm(lib, dnnl_forward_training, x, eps, flags, NULL, &forward));
    wf_status status =
        wfi_describe_batch_norm(lib, dnnl_backward, x, eps, flags, forward, backward_out);
    if (status != WF_OK) {
        dnnl_primitive_desc_destroy(forward);
        return status;
    }
    *forward_out = forward;
    return WF_OK;
}

/* x, scale, shift -> y, mean, variance, workspace */
static wf_status describe_training(wfi_kernel *kernel, unsigned flags, const char **reason_out) {
    wfi_md x = wfi_operand_md(kernel, 0);
    dnnl_primitive_desc_t forward, backward;
    WF_TRY(describe_pair(&wfi_onednn_of(kernel)->lib, &x, (float)kernel->node->attr.norm.eps, flags,
                         &forward, &backward));
    dnnl_primitive_desc_destroy(backward);
    wfi_primitive *primitive;
    WF_TRY(wfi_add_primitive(kernel, forward, NULL, reason_out, &primitive));
    WF_TRY(wfi_bind(kernel, primitive, DNNL_ARG_SRC, 0));
    WF_TRY(wfi_bind(kernel, primitive, DNNL_ARG_SCALE, 1));
    WF_TRY(wfi_bind(kernel, primitive, DNNL_ARG_SHIFT, 2));
    WF_TRY(wfi_bind(kernel, primitive, DNNL_ARG_DST, 3));
    WF_TRY(wfi_bind(kernel, primitive, DNNL_ARG_MEAN, 4));
    WF_TRY(wfi_bind(kernel, primitive, DNNL_ARG_VARIANCE, 5));
    return kernel->node->attr.norm.relu ? wfi_bind(kernel, primitive, DNNL_ARG_WORKSPACE, 6)
                                        : WF_OK;
}

/* x, scale, shift, running mean, running variance -> y */
static wf_status describe_inference(wfi_kernel *kernel, unsigned flags, const char **reason_out) {
    wfi_md x = wfi_operand_md(kernel, 0);
    dnnl_primitive_desc_t desc;
    WF_TRY(wfi_describe_batch_norm(&wfi_onednn_of(kernel)->lib, dnnl_forward_inference, &x,
                                   (float)kernel->node->attr.norm.eps,
                                   flags | dnnl_use_global_stats, NULL, &desc));
    wfi_primitive *primitive;
    WF_TRY(wfi_add_primitive(kernel, desc, NULL, reason_out, &primitive));
    WF_TRY(wfi_bind(kernel, primitive, DNNL_ARG_SRC, 0));
    WF_TRY(wfi_bind(kernel, primitive, DNNL_ARG_SCALE, 1));
    WF_TRY(wfi_bind(kernel, primitive, DNNL_ARG_SHIFT, 2));
    WF_TRY(wfi_bind(kernel, primitive, DNNL_ARG_MEAN, 3));
    WF_TRY(wfi_bind(kernel, primitive, DNNL_ARG_VARIANCE, 4));
    return wfi_bind(kernel, primitive, DNNL_ARG_DST, 5);
}

/* dy, x, mean, variance, scale, workspace -> dx, dscale, dshift */
static wf_status describe_backward(wfi_kernel *kernel, unsigned flags, const char **reason_out) {
    wfi_md x = wfi_operand_md(kernel, 1);
    dnnl_primitive_desc_t forward, backward;
    WF_TRY(describe_pair(&wfi_onednn_of(kernel)->lib, &x, (float)kernel->node->attr.norm.eps, flags,
                         &forward, &backward));
    wfi_primitive *primitive;
    WF_TRY(wfi_add_primitive(kernel, backward, forward, reason_out, &primitive));
    int first_out = kernel->node->n_in;
    WF_TRY(wfi_bind(kernel, primitive, DNNL_ARG_DIFF_DST, 0));
    WF_TRY(wfi_bind(kernel, primitive, DNNL_ARG_SRC, 1));
    WF_TRY(wfi_bind(kernel, primitive, DNNL_ARG_MEAN, 2));
    WF_TRY(wfi_bind(kernel, primitive, DNNL_ARG_VARIANCE, 3));
    WF_TRY(wfi_bind(kernel, primitive, DNNL_ARG_SCALE, 4));
    if (WFI_BATCH_NORM_BACKWARD_TAKES_SHIFT)
        WF_TRY(wfi_bind_at(kernel, primitive, DNNL_ARG_SHIFT, 4, 0)); /* the scale's values do */
    if (kernel->node->attr.norm.relu) WF_TRY(wfi_bind(kernel, primitive, DNNL_ARG_WORKSPACE, 5));
    WF_TRY(wfi_bind(kernel, primitive, DNNL_ARG_DIFF_SRC, first_out));
    WF_TRY(wfi_bind(kernel, primitive, DNNL_ARG_DIFF_SCALE, first_out + 1));
    return wfi_bind(kernel, primitive, DNNL_ARG_DIFF_SHIFT, first_out + 2);
}

/* ---- of images in blocks of channels: loops of our own ---- */

/* A block of channels in an operand: pixels of images, or one number per channel. */
static void *block_of(const wfi_kernel *kernel, void *const operands[], int operand, int64_t block,
                      int64_t n_pixels) {
    if (operand < 0 || operand >= kernel->n_operands || !operands[operand]) return NULL;
    const wfi_value *value = wfi_operand_value(kernel, operand);
    bool is_image = !value->opaque && value->shape.n_dims == 4;
    size_t bytes = (size_t)(is_image ? n_pixels : 1) * WFI_BLOCK_CHANNELS;
    bytes *= is_image ? wf_dtype_bytes(value->dtype) : sizeof(float);
    return (char *)operands[operand] + (size_t)block * bytes;
}

typedef struct blocks {
    const wfi_kernel *kernel;
    void *const *operands;
} blocks;

static wf_status run_block(const void *argument, int64_t block, int thread) {
    (void)thread;
    const wfi_kernel *kernel = ((const blocks *)argument)->kernel;
    void *const *operands = ((const blocks *)argument)->operands;
    bool is_forward = kernel->node->op == &wfi_op_batch_norm, relu = kernel->node->attr.norm.relu;
    int n_in = kernel->node->n_in;
    const int64_t *dim = wfi_operand_value(kernel, !is_forward)->shape.dim;
    wfi_channels c = {.n = dim[0], .n_pixels = dim[2] * dim[3], .step = dim[1] * dim[2] * dim[3]};
    c.is_narrow = wfi_is_narrow(kernel, 0);
    c.relu = relu;
    c.eps = kernel->node->attr.norm.eps;
#define BLOCK_OF(operand) block_of(kernel, operands, operand, block, c.n_pixels)
    c.x = BLOCK_OF(!is_forward);
    c.scale = BLOCK_OF(is_forward ? 1 : 4);
    c.mean = BLOCK_OF(is_forward ? n_in + 1 : 2);
    c.var = BLOCK_OF(is_forward ? n_in + 2 : 3);
    bool has_workspace = relu && (is_forward ? n_in == 3 : kernel->node->n_out == 3);
    float *workspace = has_workspace ? BLOCK_OF(is_forward ? 6 : 5) : NULL;
    if (is_forward) {
        c.shift = BLOCK_OF(2);
        c.addend = n_in > 3 ? BLOCK_OF(3) : NULL;
        c.y = BLOCK_OF(n_in);
        if (workspace) memcpy(workspace, c.shift, WFI_BLOCK_CHANNELS * sizeof *workspace);
        wfi_channels_normalize(wfi_best_variant(), &c);
    } else {
        c.dy = BLOCK_OF(0);
        c.shift = workspace;
        c.dx = BLOCK_OF(n_in);
        c.dscale = BLOCK_OF(n_in + 1);
        c.dshift = BLOCK_OF(n_in + 2);
        c.daddend = BLOCK_OF(n_in + 3);
        if (c.daddend) c.y = BLOCK_OF(5);
        wfi_channels_differentiate(wfi_best_variant(), &c);
    }
#undef BLOCK_OF
    return WF_OK;
}

static wf_status run_blocks(wfi_kernel *kernel, wfi_stream_queue *stream, void *const operands[],
                            void *scratch, const wfi_step_args *step) {
    (void)stream, (void)scratch, (void)step;
    const wf_shape *shape = &wfi_operand_value(kernel, 0)->shape;
    return wfi_library_each(kernel->options.n_threads, shape->dim[1] / WFI_BLOCK_CHANNELS,
                            run_block, &(blocks){kernel, operands});
}

/* The workspace holds the shift, from which the backward recomputes the ReLU's mask. */
static wf_status describe_blocks(wfi_kernel *kernel) {
    wfi_onednn *state = wfi_onednn_of(kernel);
    state->run = run_blocks;
    state->own_workspace_bytes = (size_t)wfi_operand_value(kernel, 0)->shape.dim[1] * sizeof(float);
    wfi_use_whole_values(kernel);
    for (int i = 0; i < kernel->n_operands; i++) {
        const wfi_value *value = wfi_operand_value(kernel, i);
        if (value && value->opaque) kernel->bytes[i] = state->own_workspace_bytes;
    }
    kernel->detail = "channels";
    return WF_OK;
}

static bool is_blocked(const wfi_kernel *kernel) {
    if (kernel->node->op == &wfi_op_batch_norm_inference) return false;
    for (int i = 0; i < kernel->n_operands; i++) {
        const wfi_value *value = wfi_operand_value(kernel, i);
        if (value && value->shape.n_dims == 4 && value->layout != WFI_C16) return false;
    }
    return wfi_operand_value(kernel, 0)->shape.n_dims == 4;
}

wf_status wfi_describe_bn(wfi_kernel *kernel, const char **reason_out) {
    if (wfi_is_mixed(kernel)) return wfi_decline(reason_out, "operands of two types");
    if (is_blocked(kernel)) return describe_blocks(kernel);
    const wfi_op *op = kernel->node->op;
    bool adds = op == &wfi_op_batch_norm ? kernel->node->n_in > 3 : kernel->node->n_out > 3;
    if (adds) return wfi_decline(reason_out, "oneDNN does not add to a batch norm in training");
    unsigned flags = dnnl_use_scale | dnnl_use_shift;
    if (kernel->node->attr.norm.relu) flags |= dnnl_fuse_norm_relu;
    if (op == &wfi_op_batch_norm) return describe_training(kernel, flags, reason_out);
    if (op == &wfi_op_batch_norm_inference) return describe_inference(kernel, flags, reason_out);
    return describe_backward(kernel, flags, reason_out);
}

/* x, scale, shift -> y, mean, variance */
static wf_status bind_layer_norm(wfi_kernel *kernel, wfi_primitive *primitive) {
    WF_TRY(wfi_bind(kernel, primitive, DNNL_ARG_SRC, 0));
    WF_TRY(wfi_bind(kernel, primitive, DNNL_ARG_SCALE, 1));
    WF_TRY(wfi_bind(kernel, primitive, DNNL_ARG_SHIFT, 2));
    WF_TRY(wfi_bind(kernel, primitive, DNNL_ARG_DST, 3));
    WF_TRY(wfi_bind(kernel, primitive, DNNL_ARG_MEAN, 4));
    return wfi_bind(kernel, primitive, DNNL_ARG_VARIANCE, 5);
}

/* dy, x, mean, variance, scale -> dx, dscale, dshift */
static wf_status bind_layer_norm_backward(wfi_kernel *kernel, wfi_primitive *primitive) {
    WF_TRY(wfi_bind(kernel, primitive, DNNL_ARG_DIFF_DST, 0));
    WF_TRY(wfi_bind(kernel, primitive, DNNL_ARG_SRC, 1));
    WF_TRY(wfi_bind(kernel, primitive, DNNL_ARG_MEAN, 2));
    WF_TRY(wfi_bind(kernel, primitive, DNNL_ARG_VARIANCE, 3));
    WF_TRY(wfi_bind(kernel, primitive, DNNL_ARG_SCALE, 4));
    WF_TRY(wfi_bind_at(kernel, primitive, DNNL_ARG_SHIFT, 4, 0));
    WF_TRY(wfi_bind(kernel, primitive, DNNL_ARG_DIFF_SRC, 5));
    WF_TRY(wfi_bind(kernel, primitive, DNNL_ARG_DIFF_SCALE, 6));
    return wfi_bind(kernel, primitive, DNNL_ARG_DIFF_SHIFT, 7);
}

wf_status wfi_describe_ln(wfi_kernel *kernel, const char **reason_out) {
    if (wfi_is_mixed(kernel)) return wfi_decline(reason_out, "operands of two types");
    const wfi_library *lib = &wfi_onednn_of(kernel)->lib;
    bool is_forward = kernel->node->op == &wfi_op_layer_norm;
    wfi_md data = wfi_operand_rows(kernel, 0);
    wfi_md stat = wfi_md_make(WFI_MD_STRIDED, 1, data.dim);
    unsigned flags = dnnl_use_scale | dnnl_use_shift;
    float eps = (float)kernel->node->attr.norm.eps;
    dnnl_primitive_desc_t forward, desc;
    wfi_primitive *primitive;
    WF_TRY(wfi_describe_layer_norm(lib, dnnl_forward_training, &data, &stat, eps, flags, NULL,
                                   &forward));
    if (is_forward) {
        WF_TRY(wfi_add_primitive(kernel, forward, NULL, reason_out, &primitive));
        return bind_layer_norm(kernel, primitive);
    }
    wf_status status =
        wfi_describe_layer_norm(lib, dnnl_backward, &data, &stat, eps, flags, forward, &desc);
    if (status != WF_OK) dnnl_primitive_desc_destroy(forward);
    WF_TRY(status);
    WF_TRY(wfi_add_primitive(kernel, desc, forward, reason_out, &primitive));
    return bind_layer_norm_backward(kernel, primitive);
}
