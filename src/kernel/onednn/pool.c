/* Poolings. Max pooling's workspace (which element won) is the library's own. */
#include "kernel/onednn/onednn.h"
#include "op/op_table.h"

/* x -> y; for the maximum: x -> y, workspace. dy -> dx; dy, workspace -> dx. */
wf_status wfi_describe_pool(wfi_kernel *kernel, const char **reason_out) {
    static const wfi_arguments forward = {{DNNL_ARG_SRC}, {DNNL_ARG_DST, DNNL_ARG_WORKSPACE}},
                               backward = {{DNNL_ARG_DIFF_DST, DNNL_ARG_WORKSPACE},
                                           {DNNL_ARG_DIFF_SRC}};
    const wfi_op *op = kernel->node->op;
    const wfi_attr *attr = &kernel->node->attr;
    bool is_max = op == &wfi_op_max_pool || op == &wfi_op_max_pool_backward,
         is_global = op == &wfi_op_global_avg_pool || op == &wfi_op_global_avg_pool_backward,
         is_forward =
             op == &wfi_op_max_pool || op == &wfi_op_avg_pool || op == &wfi_op_global_avg_pool;
    int x_operand = is_forward ? 0 : kernel->node->n_in, y_operand = is_forward;
    wfi_md x = wfi_operand_md(kernel, x_operand), y = wfi_operand_md(kernel, y_operand);
    wfi_primitive_op p = {.kind = dnnl_pooling,
                          .alg = is_max ? dnnl_pooling_max : dnnl_pooling_avg_include_padding};
    int64_t size = attr->pool.kernel, stride = attr->pool.stride, pad = attr->pool.pad;
    p.window = (wfi_spatial_window){.kernel = {size, size}, .stride = stride, .pad = pad};
    for (int i = 0; i < 2; i++)
        p.window.pad_end[i] = (y.dim[2 + i] - 1) * stride + size - x.dim[2 + i] - pad;
    if (is_global) {
        dnnl_data_type_t type = y.type;
        /* [n, c] has the bytes of a 1 x 1 image in either layout. */
        y = wfi_md_make(x.kind, 4, (int64_t[]){x.dim[0], x.dim[1], 1, 1});
        y.type = type;
        p.window = (wfi_spatial_window){.kernel = {x.dim[2], x.dim[3]}, .stride = 1};
    }
    p.md[0] = x;
    p.md[1] = y;
    if (!is_forward)
        return wfi_add_op(kernel, dnnl_backward_data, &p, &p, &backward, reason_out, NULL);
    WF_TRY(wfi_check_backward(kernel, dnnl_backward_data, &p));
    return wfi_add_op(kernel, dnnl_forward_training, &p, NULL, &forward, reason_out, NULL);
}
