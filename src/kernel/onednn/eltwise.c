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
    {&wfi_op_scale, NULL, dnnl_eltwise_linear, dnnl_alg_kind_undef},
};

wf_status wfi_describe_activation(wfi_kernel *kernel, const char **reason_out) {
    static const wfi_arguments forward = {{DNNL_ARG_SRC}, {DNNL_ARG_DST}};
    if (wfi_is_mixed(kernel)) return wfi_decline(reason_out, "operands of two types");
    const wfi_op *op = kernel->node->op;
    size_t i = 0;
    while (activations[i].forward != op && activations[i].backward != op) i++;
    wfi_primitive_op p = {
        .kind = dnnl_eltwise, .alg = activations[i].alg, .md = {wfi_operand_row(kernel, 0)}};
    bool is_leaky = activations[i].forward == &wfi_op_leaky_relu;
    if (is_leaky || op == &wfi_op_scale) p.alpha = (float)kernel->node->attr.scale.factor;
    if (is_leaky && p.alpha == 0) return wfi_decline(reason_out, "a slope of 0, which hides a NaN");
    if (p.alg == dnnl_eltwise_gelu_erf && kernel->node->attr.gelu.tanh)
        p.alg = dnnl_eltwise_gelu_tanh;
    if (op == activations[i].forward)
        return wfi_add_op(kernel, dnnl_forward_training, &p, NULL, &forward, reason_out, NULL);
    bool by_dst = activations[i].alg_by_dst != dnnl_alg_kind_undef;
    if (by_dst) p.alg = activations[i].alg_by_dst;
    const wfi_arguments backward = {{DNNL_ARG_DIFF_DST, by_dst ? DNNL_ARG_DST : DNNL_ARG_SRC},
                                    {DNNL_ARG_DIFF_SRC}};
    return wfi_add_op(kernel, dnnl_backward_data, &p, &p, &backward, reason_out, NULL);
}

wf_status wfi_describe_arithmetic(wfi_kernel *kernel, const char **reason_out) {
    static const wfi_arguments arguments = {{DNNL_ARG_SRC_0, DNNL_ARG_SRC_1}, {DNNL_ARG_DST}};
    if (wfi_is_mixed(kernel)) return wfi_decline(reason_out, "operands of two types");
    wfi_md row = wfi_operand_row(kernel, 0);
    const wfi_primitive_op p = {.kind = dnnl_binary,
                                .alg = kernel->node->op == &wfi_op_mul ? dnnl_binary_mul
                                                                       : dnnl_binary_add,
                                .md = {row, row, row}};
    return wfi_add_op(kernel, dnnl_forward_training, &p, NULL, &arguments, reason_out, NULL);
}
