/* Batch norms by cuDNN. A kernel of weft computes the fused addend and ReLU, after cuDNN's forward
 * or before its backward. cuDNN saves 1 / sqrt(variance + eps); weft saves the variance and
 * recomputes cuDNN's value from it. */
#include "kernel/cuda/library.h"
#include "kernel/gpu/gpu.h"
#include "op/op_table.h"

/* wfi_kernel.state */
typedef struct norm {
    const wfi_cudnn *dnn;
    size_t image_bytes; /* scratch bytes of the intermediate image; values per channel follow it */
    cudnn_tensor image, channels;
} norm;

static bool is_backward(const wfi_kernel *kernel) {
    return kernel->node->op == &wfi_op_batch_norm_backward;
}

static const wf_shape *shape_of(const wfi_kernel *kernel) {
    return &wfi_operand_value(kernel, 0)->shape;
}

/* A value [n, c] counts as images of one pixel. */
static int make_parts(const wfi_kernel *kernel, norm *c) {
    const wf_shape *x = shape_of(kernel);
    int64_t dim[] = {x->dim[0], x->dim[1], 1, 1};
    for (int i = 2; i < x->n_dims; i++) dim[i] = x->dim[i];
    int error = wfi_cudnn_tensor(c->dnn, CUDNN_DATA_FLOAT, dim, &c->image);
    dim[0] = dim[2] = dim[3] = 1;
    return error ? error : wfi_cudnn_tensor(c->dnn, CUDNN_DATA_FLOAT, dim, &c->channels);
}

static wf_status describe_with(wfi_kernel *kernel, const wfi_cuda_handles *handles,
                               const char **reason_out) {
    norm *c = kernel->state;
    c->dnn = &handles->libraries->dnn;
    if (!handles->dnn) return wfi_decline(reason_out, handles->libraries->no_dnn);
    if (make_parts(kernel, c)) return wfi_decline(reason_out, "cuDNN does not describe it");
    kernel->detail = "spatial";
    wfi_use_whole_values(kernel);
    c->image_bytes = wfi_round_up(kernel->bytes[0], WFI_ALIGN_BYTES);
    kernel->scratch_bytes = c->image_bytes + kernel->bytes[kernel->node->n_in + 1];
    return WF_OK;
}

static wf_status describe(wfi_kernel *kernel, const char **reason_out) {
    bool is_norm = kernel->node->op == &wfi_op_batch_norm || is_backward(kernel);
    if (!is_norm) return wfi_decline(reason_out, "it is not a batch norm");
    if (kernel->way.number) return wfi_decline(reason_out, "there is only one algorithm");
    if (kernel->adds) return wfi_decline(reason_out, "it accumulates into its output");
    /* Not all versions of cuDNN support BF16, and a chosen kernel must run. */
    if (wfi_cuda_is_narrow(kernel)) return wfi_decline(reason_out, "it is BF16");
    if (wf_shape_n_elem(shape_of(kernel)) > INT32_MAX)
        return wfi_decline(reason_out, "it is too large");
    return wfi_cuda_describe(kernel, sizeof(norm), describe_with, reason_out);
}

/* Launches a kernel of weft on n elements; if `beside` is set, the kernel also reads that input. */
static wf_status launch(const wfi_kernel *kernel, wfi_stream_queue *stream, wfi_gpu_entry entry,
                        void *const operands[], int beside, int64_t n, const void *from, void *to) {
    const wfi_node *node = kernel->node;
    wfi_kernel_launch l = wfi_gpu_launch_of(entry, from, to);
    l.arguments.n[4] = node->attr.norm.relu;
    l.arguments.n[5] = node->n_out > 3;
    l.arguments.f[0] = node->attr.norm.eps;
    if (!beside) return wfi_gpu_launch_elements(stream, &l, n);
    if (beside < node->n_in) l.operands[beside] = operands[beside];
    if (!is_backward(kernel) && node->n_out > 3)
        l.operands[WFI_GPU_OUT + 3] = operands[node->n_in + 3];
    return wfi_gpu_launch_elements(stream, &l, n);
}

/* x, scale, shift, addend?; y, mean, variance, the ReLU's mask? */
static wf_status forward(const wfi_kernel *kernel, wfi_stream_queue *stream, cudnnHandle_t handle,
                         void *const operands[], void *scratch) {
    const norm *c = kernel->state;
    const wfi_node *node = kernel->node;
    void *const *out = operands + node->n_in, *inverse = (char *)scratch + c->image_bytes;
    const float one = 1, none = 0;
    bool goes_on = node->attr.norm.relu || node->n_in > 3 || out[0] == operands[0];
    void *made = goes_on ? scratch : out[0];
    int error = c->dnn->BatchNormalizationForwardTraining(
        handle, CUDNN_BATCHNORM_SPATIAL, &one, &none, c->image, operands[0], c->image, made,
        c->channels, operands[1], operands[2], 1, NULL, NULL, node->attr.norm.eps, out[1], inverse);
    if (error) return wfi_cudnn_refuses(kernel, c->dnn, error);
    const wf_shape *x = shape_of(kernel);
    WF_TRY(launch(kernel, stream, WFI_GPU_norm_variance, operands, 0, x->dim[1], inverse, out[2]));
    if (!goes_on) return WF_OK;
    return launch(kernel, stream, WFI_GPU_norm_relu, operands, 3, wf_shape_n_elem(x), made, out[0]);
}

/* dy, x, mean, variance, scale, the ReLU's mask?; dx, dscale, dshift, daddend? */
static wf_status backward(const wfi_kernel *kernel, wfi_stream_queue *stream, cudnnHandle_t handle,
                          void *const operands[], void *scratch) {
    const norm *c = kernel->state;
    const wfi_node *node = kernel->node;
    const wf_shape *x = shape_of(kernel);
    void *const *out = operands + node->n_in, *inverse = (char *)scratch + c->image_bytes;
    const float one = 1, none = 0;
    void *slope = operands[0];
    if (node->attr.norm.relu || out[0] == slope) {
        slope = node->n_out > 3 ? out[3] : scratch;
        WF_TRY(launch(kernel, stream, WFI_GPU_norm_slope, operands, 5, wf_shape_n_elem(x),
                      operands[0], slope));
    }
    WF_TRY(
        launch(kernel, stream, WFI_GPU_norm_inverse, operands, 0, x->dim[1], operands[3], inverse));
    int error = c->dnn->BatchNormalizationBackward(
        handle, CUDNN_BATCHNORM_SPATIAL, &one, &none, &one, &none, c->image, operands[1], c->image,
        slope, c->image, out[0], c->channels, operands[4], out[1], out[2], node->attr.norm.eps,
        operands[2], inverse);
    return error ? wfi_cudnn_refuses(kernel, c->dnn, error) : WF_OK;
}

static wf_status run(wfi_kernel *kernel, wfi_stream_queue *stream, void *const operands[],
                     void *scratch, const wfi_step_args *step) {
    (void)step;
    wfi_cuda_handles *handles;
    WF_TRY(wfi_cuda_take_handles(kernel->ctx, stream, &handles));
    wf_status status =
        (is_backward(kernel) ? backward : forward)(kernel, stream, handles->dnn, operands, scratch);
    wfi_cuda_give_handles(handles);
    return status;
}

static void destroy(wfi_kernel *kernel) {
    norm *c = kernel->state;
    if (!c) return;
    if (c->image) c->dnn->DestroyTensorDescriptor(c->image);
    if (c->channels) c->dnn->DestroyTensorDescriptor(c->channels);
    wfi_free(kernel->ctx, c);
}

const wfi_kernel_impl wfi_kernel_cudnn_norm = {
    .name = "cudnn",
    .describe = describe,
    .own_forms = (const char *const[]){"cudnn", NULL},
    .run = run,
    .destroy = destroy,
};
