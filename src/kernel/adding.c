/* Adds gradients of weights to their accumulator: the node's own kernel writes them to scratch
 * memory first. This saves nothing in a microbatch that adds. In the first microbatch the own
 * kernel writes directly to the accumulator, without memory in between. */
#include "kernel/cpu.h"

typedef struct adding {
    wfi_kernel *own;               /* the node's */
    size_t room[WFI_MAX_OPERANDS]; /* offset in the scratch memory of each output */
} adding;

static wf_status adding_describe(wfi_kernel *kernel, const char **reason_out) {
    const wfi_node *node = kernel->node;
    *reason_out = "it is not a weight's gradient, or a library keeps it in its own format";
    if (!kernel->adds || !(node->op->flags & WFI_OP_WEIGHT_GRADIENT)) return WF_UNSUPPORTED;
    adding *a = wfi_alloc(kernel->ctx, 1, sizeof *a, "a kernel");
    if (!a) return WF_NO_MEMORY;
    kernel->state = a;
    WF_TRY(wfi_kernel_create(kernel->ctx, kernel->graph, node, &kernel->options, &a->own));
    kernel->scratch_bytes = a->own->scratch_bytes;
    for (int i = 0; i < kernel->n_operands; i++) {
        kernel->bytes[i] = a->own->bytes[i];
        if (!kernel->writes[i] || !kernel->bytes[i]) continue;
        if (a->own->format[i]) return WF_UNSUPPORTED;
        a->room[i] = wfi_round_up(kernel->scratch_bytes, WFI_ALIGN_BYTES);
        kernel->scratch_bytes = a->room[i] + kernel->bytes[i];
    }
    kernel->detail = a->own->detail;
    return WF_OK;
}

static wf_status adding_prepare(wfi_kernel *kernel) {
    const adding *a = kernel->state;
    WF_TRY(wfi_kernel_prepare(a->own));
    for (int i = 0; i < kernel->n_operands; i++) kernel->extent[i] = a->own->extent[i];
    kernel->scratch_extent = kernel->scratch_bytes;
    return WF_OK;
}

static wf_status adding_run(wfi_kernel *kernel, wfi_stream_queue *stream, void *const operands[],
                            void *scratch, const wfi_step_args *step) {
    const adding *a = kernel->state;
    void *own[WFI_MAX_OPERANDS];
    for (int i = 0; i < kernel->n_operands; i++)
        own[i] = kernel->writes[i] ? (char *)scratch + a->room[i] : operands[i];
    WF_TRY(wfi_kernel_run(a->own, stream, own, scratch, step));
    for (int i = 0; i < kernel->n_operands; i++)
        if (kernel->writes[i] && kernel->bytes[i])
            WF_TRY(kernel->options.backend->add(stream, operands[i], own[i],
                                                kernel->bytes[i] / sizeof(float)));
    return WF_OK;
}

static void adding_destroy(wfi_kernel *kernel) {
    adding *a = kernel->state;
    if (a) wfi_kernel_destroy(a->own);
    wfi_free(kernel->ctx, a);
}

const wfi_kernel_impl wfi_kernel_adding = {
    .name = "adding",
    .describe = adding_describe,
    .prepare = adding_prepare,
    .run = adding_run,
    .destroy = adding_destroy,
};
