/* The last of the list: calls the op's plain C kernel. */
#include "kernel/cpu.h"

static wf_status reference_describe(wfi_kernel *kernel, const char **reason_out) {
    const wfi_node *node = kernel->node;
    const wf_graph *g = kernel->graph;
    size_t (*scratch_bytes)(const wf_graph *, const wfi_node *) =
        kernel->adds ? node->op->add_scratch_bytes : node->op->scratch_bytes;
    *reason_out = "it accumulates into its output";
    if (kernel->adds && !node->op->add) return WF_UNSUPPORTED;
    wfi_call *call = wfi_alloc(kernel->ctx, 1, sizeof *call, "a kernel");
    if (!call) return WF_NO_MEMORY;
    kernel->state = call;
    *call = wfi_call_of(g, node);
    for (int i = 0; i < kernel->n_operands; i++) {
        int32_t v = wfi_node_operand(node, i);
        if (v >= 0) kernel->bytes[i] = wfi_value_bytes(g, v);
    }
    kernel->scratch_bytes = scratch_bytes ? scratch_bytes(g, node) : 0;
    return WF_OK;
}

static wf_status reference_run(wfi_kernel *kernel, wfi_stream_queue *stream, void *const operands[],
                               void *scratch, const wfi_step_args *step) {
    (void)stream;
    wfi_call *call = kernel->state;
    for (int i = 0; i < call->n_in; i++) call->in[i].data = operands[i];
    for (int i = 0; i < call->n_out; i++) call->out[i].data = operands[call->n_in + i];
    call->scratch = scratch;
    call->step = kernel->node->op->flags & WFI_OP_READS ? step : NULL;
    (kernel->adds ? kernel->node->op->add : kernel->node->op->reference)(call);
    return WF_OK;
}

const wfi_kernel_impl wfi_kernel_reference = {
    .name = "reference",
    .describe = reference_describe,
    .run = reference_run,
    .destroy = wfi_kernel_free_state,
};
