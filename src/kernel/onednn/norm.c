/* Batch norm (fused with an addend and a ReLU where the graph has them) and layer norm. */
#include "kernel/onednn/onednn.h"
#include "kernel/onednn/threads.h"
#include "kernel/vector/channels.h"
#include "op/op_table.h"

#include <string.h>

/* x, scale, shift -> y, mean, variance, workspace; x, scale, shift, running mean, running variance
 * -> y; dy, x, mean, variance, scale, workspace -> dx, dscale, dshift */
static const wfi_arguments training = {{DNNL_ARG_SRC, DNNL_ARG_SCALE, DNNL_ARG_SHIFT},
                                       {DNNL_ARG_DST, DNNL_ARG_MEAN, DNNL_ARG_VARIANCE,
                                        DNNL_ARG_WORKSPACE}},
                           inference = {{DNNL_ARG_SRC, DNNL_ARG_SCALE, DNNL_ARG_SHIFT,
                                         DNNL_ARG_MEAN, DNNL_ARG_VARIANCE},
                                        {DNNL_ARG_DST}},
                           gradients = {
                               {DNNL_ARG_DIFF_DST, DNNL_ARG_SRC, DNNL_ARG_MEAN, DNNL_ARG_VARIANCE,
                                DNNL_ARG_SCALE, DNNL_ARG_WORKSPACE},
                               {DNNL_ARG_DIFF_SRC, DNNL_ARG_DIFF_SCALE, DNNL_ARG_DIFF_SHIFT}};

static wf_status add_backward(wfi_kernel *kernel, const wfi_primitive_op *p, bool takes_shift,
                              const char **reason_out) {
    wfi_primitive *primitive;
    WF_TRY(wfi_add_op(kernel, dnnl_backward, p, p, &gradients, reason_out, &primitive));
    if (!takes_shift) return WF_OK;
    return wfi_bind_at(kernel, primitive, DNNL_ARG_SHIFT, 4, 0); /* the scale's values do */
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
    wfi_primitive_op p = {.kind = dnnl_batch_normalization,
                          .md = {wfi_operand_md(kernel, op == &wfi_op_batch_norm_backward)},
                          .eps = (float)kernel->node->attr.norm.eps,
                          .flags = dnnl_use_scale | dnnl_use_shift};
    if (kernel->node->attr.norm.relu) p.flags |= dnnl_fuse_norm_relu;
    if (op == &wfi_op_batch_norm_backward)
        return add_backward(kernel, &p, WFI_BATCH_NORM_BACKWARD_TAKES_SHIFT, reason_out);
    if (op == &wfi_op_batch_norm_inference) {
        p.flags |= dnnl_use_global_stats;
        return wfi_add_op(kernel, dnnl_forward_inference, &p, NULL, &inference, reason_out, NULL);
    }
    WF_TRY(wfi_check_backward(kernel, dnnl_backward, &p));
    return wfi_add_op(kernel, dnnl_forward_training, &p, NULL, &training, reason_out, NULL);
}

wf_status wfi_describe_ln(wfi_kernel *kernel, const char **reason_out) {
    if (wfi_is_mixed(kernel)) return wfi_decline(reason_out, "operands of two types");
    wfi_md data = wfi_operand_rows(kernel, 0);
    const wfi_primitive_op p = {.kind = dnnl_layer_normalization,
                                .md = {data, wfi_md_make(WFI_MD_STRIDED, 1, data.dim)},
                                .eps = (float)kernel->node->attr.norm.eps,
                                .flags = dnnl_use_scale | dnnl_use_shift};
    if (kernel->node->op == &wfi_op_layer_norm_backward)
        return add_backward(kernel, &p, true, reason_out);
    return wfi_add_op(kernel, dnnl_forward_training, &p, NULL, &training, reason_out, NULL);
}
