/* Elementwise ops: activations and arithmetic. Equal layouts have equal order, so all operands are
 * one long row. The plain kernel computes a forward ReLU in the same time: the library's ReLU turns
 * a NaN into a number, which would hide the NaN. */
#include "kernel/onednn/onednn.h"
#include "op/op_table.h"

typedef struct activation {
    const wfi_op *forward, *backward;
    dnnl_alg_kind_t alg;        /* of the forward */
    dnnl_alg_kind_t alg_by_dst; /* of a backward that reads y; undef: it reads x */
} activation;

static const activation activations[] = {
    {&wfi_op_relu, &wfi_op_relu_backward, dnnl_eltwise_relu, dnnl_eltwise_relu_use_dst_for_bwd},
    {&wfi_op_leaky_relu, &wfi_op_leaky_relu_backward, dnnl_eltwise_relu,
     dnnl_eltwise_relu_use_dst_for_bwd},
    {&wfi_op_gelu, &wfi_op_gelu_backward, dnnl_eltwise_gelu_erf, dnnl_alg_kind_undef},
    {&wfi_op_tanh, &wfi_op_tanh_backward, dnnl_eltwise_tanh, dnnl_eltwise_tanh_use_dst_for_bwd},
    {&wfi_op_sigmoid, &wfi_op_sigmoid_backward, dnnl_eltwise_logistic,
     dnnl_eltwise_logistic_use_dst_for_bwd},
};

static wf_status describe_forward(wfi_kernel *kernel, dnnl_alg_kind_t alg, float alpha,
                                  const char **reason_out) {
    wfi_md row = wfi_operand_row(kernel, 0);
    dnnl_primitive_desc_t desc;
    wfi_primitive *primitive;
    WF_TRY(wfi_describe_eltwise(&wfi_onednn_of(kernel)->lib, dnnl_forward_training, alg, &row,
                                alpha, 0, NULL, &desc));
    WF_TRY(wfi_add_primitive(kernel, desc, NULL, reason_out, &primitive));
    WF_TRY(wfi_bind(kernel, primitive, DNNL_ARG_SRC, 0));
    return wfi_bind(kernel, primitive, DNNL_ARG_DST, 1);
}

/* dy, x or y -> dx */
static wf_status describe_backward(wfi_kernel *kernel, dnnl_alg_kind_t alg, float alpha,
                                   int data_arg, const char **reason_out) {
    const wfi_library *lib = &wfi_onednn_of(kernel)->lib;
    wfi_md row = wfi_operand_row(kernel, 0);
    dnnl_primitive_desc_t forward, desc;
    WF_TRY(wfi_describe_eltwise(lib, dnnl_forward_training, alg, &row, alpha, 0, NULL, &forward));
    wf_status status =
        wfi_describe_eltwise(lib, dnnl_backward_data, alg, &row, alpha, 0, forward, &desc);
    if (status != WF_OK) dnnl_primitive_desc_destroy(forward);
    WF_TRY(status);
    wfi_primitive *primitive;
    WF_TRY(wfi_add_primitive(kernel, desc, forward, reason_out, &primitive));
    WF_TRY(wfi_bind(kernel, primitive, DNNL_ARG_DIFF_DST, 0));
    WF_TRY(wfi_bind(kernel, primitive, data_arg, 1));
    return wfi_bind(kernel, primitive, DNNL_ARG_DIFF_SRC, 2);
}

wf_status wfi_describe_activation(wfi_kernel *kernel, const char **reason_out) {
    if (wfi_is_mixed(kernel)) return wfi_decline(reason_out, "operands of two types");
    const wfi_op *op = kernel->node->op;
    size_t i = 0;
    while (activations[i].forward != op && activations[i].backward != op) i++;
    dnnl_alg_kind_t alg = activations[i].alg;
    bool is_leaky = activations[i].forward == &wfi_op_leaky_relu;
    float alpha = is_leaky ? (float)kernel->node->attr.scale.factor : 0;
    if (is_leaky && alpha == 0) return wfi_decline(reason_out, "a slope of 0, which hides a NaN");
    if (alg == dnnl_eltwise_gelu_erf && kernel->node->attr.gelu.tanh) alg = dnnl_eltwise_gelu_tanh;
    if (op == activations[i].forward) return describe_forward(kernel, alg, alpha, reason_out);
    if (activations[i].alg_by_dst == dnnl_alg_kind_undef)
        return describe_backward(kernel, alg, alpha, DNNL_ARG_SRC, reason_out);
    return describe_backward(kernel, activations[i].alg_by_dst, alpha, DNNL_ARG_DST, reason_out);
}

wf_status wfi_describe_arithmetic(wfi_kernel *kernel, const char **reason_out) {
    if (wfi_is_mixed(kernel)) return wfi_decline(reason_out, "operands of two types");
    const wfi_op *op = kernel->node->op;
    if (op == &wfi_op_scale)
        return describe_forward(kernel, dnnl_eltwise_linear, (float)kernel->node->attr.scale.factor,
                                reason_out);
    wfi_md row = wfi_operand_row(kernel, 0);
    dnnl_primitive_desc_t desc;
    wfi_primitive *primitive;
    WF_TRY(wfi_describe_binary(&wfi_onednn_of(kernel)->lib,
                               op == &wfi_op_mul ? dnnl_binary_mul : dnnl_binary_add, &row, &row,
                               &row, &desc));
    WF_TRY(wfi_add_primitive(kernel, desc, NULL, reason_out, &primitive));
    WF_TRY(wfi_bind(kernel, primitive, DNNL_ARG_SRC_0, 0));
    WF_TRY(wfi_bind(kernel, primitive, DNNL_ARG_SRC_1, 1));
    return wfi_bind(kernel, primitive, DNNL_ARG_DST, 2);
}
