/* Softmax and its logarithm over the last dim. */
#include "kernel/onednn/onednn.h"
#include "op/op_table.h"

/* x -> y; dy, y -> dx */
wf_status wfi_describe_softmaxes(wfi_kernel *kernel, const char **reason_out) {
    if (wfi_is_mixed(kernel)) return wfi_decline(reason_out, "operands of two types");
    const wfi_library *lib = &wfi_onednn_of(kernel)->lib;
    const wfi_op *op = kernel->node->op;
    bool is_forward = op == &wfi_op_softmax || op == &wfi_op_log_softmax;
    bool logarithm = op == &wfi_op_log_softmax || op == &wfi_op_log_softmax_backward;
    wfi_md data = wfi_operand_rows(kernel, 0);
    dnnl_primitive_desc_t forward, desc;
    WF_TRY(wfi_describe_softmax(lib, dnnl_forward_training, logarithm, &data, NULL, &forward));
    desc = forward;
    if (!is_forward) {
        wf_status status =
            wfi_describe_softmax(lib, dnnl_backward_data, logarithm, &data, forward, &desc);
        if (status != WF_OK) dnnl_primitive_desc_destroy(forward);
        WF_TRY(status);
    }
    wfi_primitive *primitive;
    WF_TRY(wfi_add_primitive(kernel, desc, is_forward ? NULL : forward, reason_out, &primitive));
    if (is_forward) {
        WF_TRY(wfi_bind(kernel, primitive, DNNL_ARG_SRC, 0));
        return wfi_bind(kernel, primitive, DNNL_ARG_DST, 1);
    }
    WF_TRY(wfi_bind(kernel, primitive, DNNL_ARG_DIFF_DST, 0));
    WF_TRY(wfi_bind(kernel, primitive, DNNL_ARG_DST, 1));
    return wfi_bind(kernel, primitive, DNNL_ARG_DIFF_SRC, 2);
}
