/* BF16 for libraries that multiply it directly: weights are stored in F32 and rounded once a step;
 * BF16 gradients are widened when they are summed. */
#include "kernel/cuda/library.h"
#include "kernel/gpu/gpu.h"

static wf_status convert(wfi_stream_queue *stream, wfi_gpu_entry entry, uint32_t narrow,
                         const void *from, int64_t n, void *to) {
    wfi_kernel_launch launch = wfi_gpu_launch_of(entry, from, to);
    launch.narrow = narrow;
    return wfi_gpu_launch_elements(stream, &launch, n);
}

wf_status wfi_cuda_widen(wfi_stream_queue *stream, const void *from, int64_t n, bool adds,
                         void *to) {
    return convert(stream, adds ? WFI_GPU_accumulate : WFI_GPU_copy, 1u << 0, from, n, to);
}

/* ---- weights ---- */

static wf_status run(wfi_kernel *kernel, wfi_stream_queue *stream, void *const operands[],
                     void *scratch, const wfi_step_args *step) {
    (void)scratch, (void)step;
    return convert(stream, WFI_GPU_copy, 1u << WFI_GPU_OUT, operands[0],
                   (int64_t)(kernel->bytes[1] / sizeof(uint16_t)), operands[1]);
}

static const wfi_kernel_impl rounding = {
    .name = "rounded", .run = run, .destroy = wfi_kernel_free_state};

static wf_status pack(wfi_kernel *kernel, const wfi_format *format, const wf_shape *shape) {
    kernel->impl = &rounding;
    kernel->bytes[0] = (size_t)wf_shape_n_elem(shape) * sizeof(float);
    kernel->bytes[1] = format->bytes;
    return WF_OK;
}

static bool equal(const wfi_format *a, const wfi_format *b) {
    return a->bytes == b->bytes;
}

static const wfi_format_class rounded = {.equal = equal, .pack = pack};

bool wfi_cuda_can_round(const wfi_kernel *kernel, int operand) {
    const wf_graph *g = kernel->graph;
    return wfi_operand_value(kernel, operand)->dtype == WF_BF16 ||
           g->values[wfi_value_root(g, kernel->node->in[operand])].kind == WFI_VALUE_PARAM;
}

void wfi_cuda_round(wfi_kernel *kernel, int operand, wfi_format *format_out) {
    const wfi_value *value = wfi_operand_value(kernel, operand);
    if (value->dtype != WF_F32) return;
    size_t bytes = (size_t)wf_shape_n_elem(&value->shape) * sizeof(uint16_t);
    *format_out = (wfi_format){bytes, &rounded};
    kernel->format[operand] = format_out;
    kernel->bytes[operand] = bytes;
}
