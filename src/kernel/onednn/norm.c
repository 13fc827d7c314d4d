/* Batch norm (with ReLU fused where the graph asks for it) and layer norm. */
#include "kernel/onednn/onednn.h"
#include "op/op_table.h"

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

wf_status wfi_describe_bn(wfi_kernel *kernel, const char **reason_out) {
    if (wfi_is_mixed(kernel)) return wfi_decline(reason_out, "operands of two types");
    const wfi_op *op = kernel->node->op;
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
