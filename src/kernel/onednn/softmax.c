/* Softmax and its logarithm over the last dim. */
#include "kernel/onednn/onednn.h"
#include "op/op_table.h"

/* x -> y; dy, y -> dx */
wf_status wfi_describe_softmaxes(wfi_kernel *kernel, const char **reason_out) {
    if (wfi_is_mixed(kernel)) return wfi_decline(reason_out, "operands of two types");
    static const wfi_arguments forward = {{DNNL_ARG_SRC}, {DNNL_ARG_DST}},
                               backward = {{DNNL_ARG_DIFF_DST, DNNL_ARG_DST}, {DNNL_ARG_DIFF_SRC}};
    const wfi_op *op = kernel->node->op;
    bool is_forward = op == &wfi_op_softmax || op == &wfi_op_log_softmax;
    bool logarithm = op == &wfi_op_log_softmax || op == &wfi_op_log_softmax_backward;
    const wfi_primitive_op p = {.kind = dnnl_softmax,
                                .alg = logarithm ? dnnl_softmax_log : dnnl_softmax_accurate,
                                .md = {wfi_operand_rows(kernel, 0)}};
    if (is_forward)
        return wfi_add_op(kernel, dnnl_forward_training, &p, NULL, &forward, reason_out, NULL);
    return wfi_add_op(kernel, dnnl_backward_data, &p, &p, &backward, reason_out, NULL);
}
