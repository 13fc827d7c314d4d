/* Poolings. Max pooling's workspace (which element won) is the library's own. */
#include "kernel/onednn/onednn.h"
#include "op/op_table.h"

typedef struct pooling {
    bool is_max, is_forward;
    wfi_md x, y; /* the values, or their gradients */
    int x_operand, y_operand, workspace_operand;
    wfi_spatial_window window;
} pooling;

static wf_status describe(wfi_kernel *kernel, const pooling *pool, const char **reason_out) {
    const wfi_library *lib = &wfi_onednn_of(kernel)->lib;
    dnnl_alg_kind_t alg = pool->is_max ? dnnl_pooling_max : dnnl_pooling_avg_include_padding;
    dnnl_primitive_desc_t forward, backward;
    WF_TRY(wfi_describe_pooling(lib, dnnl_forward_training, alg, &pool->x, &pool->y, &pool->window,
                                NULL, &forward));
    /* As for batch norm: a workspace has two readers, or none. */
    wf_status status = wfi_describe_pooling(lib, dnnl_backward_data, alg, &pool->x, &pool->y,
                                            &pool->window, forward, &backward);
    if (status != WF_OK) dnnl_primitive_desc_destroy(forward);
    WF_TRY(status);
    wfi_primitive *primitive;
    if (pool->is_forward) {
        dnnl_primitive_desc_destroy(backward);
        WF_TRY(wfi_add_primitive(kernel, forward, NULL, reason_out, &primitive));
        WF_TRY(wfi_bind(kernel, primitive, DNNL_ARG_SRC, pool->x_operand));
        WF_TRY(wfi_bind(kernel, primitive, DNNL_ARG_DST, pool->y_operand));
    } else {
        WF_TRY(wfi_add_primitive(kernel, backward, forward, reason_out, &primitive));
        WF_TRY(wfi_bind(kernel, primitive, DNNL_ARG_DIFF_SRC, pool->x_operand));
        WF_TRY(wfi_bind(kernel, primitive, DNNL_ARG_DIFF_DST, pool->y_operand));
    }
    if (!pool->is_max) return WF_OK;
    return wfi_bind(kernel, primitive, DNNL_ARG_WORKSPACE, pool->workspace_operand);
}

/* x -> y; for the maximum: x -> y, workspace. dy -> dx; dy, workspace -> dx. */
wf_status wfi_describe_pool(wfi_kernel *kernel, const char **reason_out) {
    const wfi_op *op = kernel->node->op;
    const wfi_attr *attr = &kernel->node->attr;
    pooling pool = {.is_max = op == &wfi_op_max_pool || op == &wfi_op_max_pool_backward,
                    .is_forward = op == &wfi_op_max_pool || op == &wfi_op_avg_pool ||
                                  op == &wfi_op_global_avg_pool};
    int n_in = kernel->node->n_in;
    pool.x_operand = pool.is_forward ? 0 : n_in;
    pool.y_operand = pool.is_forward ? 1 : 0;
    pool.workspace_operand = pool.is_forward ? 2 : 1;
    pool.x = wfi_operand_md(kernel, pool.x_operand);
    if (op == &wfi_op_global_avg_pool || op == &wfi_op_global_avg_pool_backward) {
        int64_t *x = pool.x.dim;
        /* [n, c] has the bytes of a 1 x 1 image in either layout. */
        pool.y = wfi_md_make(pool.x.kind, 4, (int64_t[]){x[0], x[1], 1, 1});
        pool.y.type = wfi_operand_md(kernel, pool.y_operand).type;
        pool.window = (wfi_spatial_window){.kernel = {x[2], x[3]}, .stride = 1};
        return describe(kernel, &pool, reason_out);
    }
    pool.y = wfi_operand_md(kernel, pool.y_operand);
    int64_t size = attr->pool.kernel, stride = attr->pool.stride, pad = attr->pool.pad;
    pool.window = (wfi_spatial_window){.kernel = {size, size}, .stride = stride, .pad = pad};
    for (int i = 0; i < 2; i++)
        pool.window.pad_end[i] = (pool.y.dim[2 + i] - 1) * stride + size - pool.x.dim[2 + i] - pad;
    return describe(kernel, &pool, reason_out);
}
