/* Convolutions by cuDNN, of those of its algorithms that give the same bits each time. Ways are
 * these algorithms, in the order of the library's heuristics. */
#include "kernel/cuda/library.h"
#include "op/op_table.h"

#include <stdio.h>

/* The most that an algorithm gets to work in. */
#define MOST_WORKSPACE_BYTES ((size_t)256 << 20)
#define MOST_ALGORITHMS      16

/* The library's arguments in its order: two operands and their result. */
enum { FIRST, SECOND, RESULT, N_PARTS };

/* In the order of wfi_cudnn.ways: x and weight, weight and dy, x and dy: the backward's inputs are
 * given in the other order. */
static const struct direction {
    const wfi_op *op;
    int filter;       /* which of the three is the weight, or its gradient */
    int first_unlike; /* algorithms from there on add other numbers than those of the op */
} directions[] = {{&wfi_op_conv2d, SECOND, CUDNN_CONVOLUTION_FWD_ALGO_FFT},
                  {&wfi_op_conv2d_backward_data, FIRST, CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT},
                  {&wfi_op_conv2d_backward_weight, RESULT, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT}};
enum { FORWARD, BACKWARD_DATA, BACKWARD_WEIGHT, N_DIRECTIONS };

static int direction_of(const wfi_op *op) {
    int d = FORWARD;
    while (d < N_DIRECTIONS && directions[d].op != op) d++;
    return d;
}

/* wfi_kernel.state */
typedef struct conv {
    const wfi_cudnn *dnn;
    int direction, algo;
    int math;                   /* CUDNN_FMA_MATH: F32 itself; CUDNN_DEFAULT_MATH: TF32 */
    int operand[N_PARTS], bias; /* of the node; bias -1: there is none */
    void *part[N_PARTS];        /* descriptors */
    size_t workspace_bytes;     /* a weight's gradient in BF16 follows it in the scratch memory */
    wfi_format rounded;         /* of a weight in BF16 */
    cudnn_tensor bias_part;
    cudnn_conv conv;
    char detail[16];
} conv;

/* ---- descriptors ---- */

static int make_filter(const wfi_cudnn *dnn, int type, const int64_t dim[4], void **out) {
    wfi_cuda_enum error = dnn->CreateFilterDescriptor(out);
    return error ? error
                 : dnn->SetFilter4dDescriptor(*out, type, CUDNN_TENSOR_NCHW, (int)dim[0],
                                              (int)dim[1], (int)dim[2], (int)dim[3]);
}

/* Sums are F32 for every type of the operands. */
static int make_conv(const wfi_cudnn *dnn, const wfi_attr *attr, int math, void **out) {
    int pad = (int)attr->conv.pad, stride = (int)attr->conv.stride;
    int dilation = (int)attr->conv.dilation;
    wfi_cuda_enum error = dnn->CreateConvolutionDescriptor(out);
    if (!error)
        error = dnn->SetConvolution2dDescriptor(*out, pad, pad, stride, stride, dilation, dilation,
                                                CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT);
    if (!error) error = dnn->SetConvolutionGroupCount(*out, (int)attr->conv.groups);
    return error ? error : dnn->SetConvolutionMathType(*out, math);
}

static int make_parts(const wfi_kernel *kernel, conv *c) {
    const wfi_node *node = kernel->node;
    bool is_forward = c->direction == FORWARD;
    const int operand[N_PARTS] = {!is_forward, is_forward, node->n_in};
    int type = wfi_cuda_is_narrow(kernel) ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
    int error = make_conv(c->dnn, &node->attr, c->math, &c->conv);
    for (int i = 0; i < N_PARTS && !error; i++) {
        const int64_t *dim = wfi_operand_value(kernel, operand[i])->shape.dim;
        c->operand[i] = operand[i];
        error = (i == directions[c->direction].filter ? make_filter : wfi_cudnn_tensor)(
            c->dnn, type, dim, &c->part[i]);
    }
    int bias = is_forward ? 2 : node->n_in + 1;
    bool has_bias = bias < kernel->n_operands && bias != node->n_in &&
                    c->direction != BACKWARD_DATA && wfi_operand_value(kernel, bias);
    c->bias = has_bias ? bias : -1;
    if (!has_bias || error) return error;
    int64_t n_channels = wfi_operand_value(kernel, bias)->shape.dim[0];
    return wfi_cudnn_tensor(c->dnn, type, (const int64_t[]){1, n_channels, 1, 1}, &c->bias_part);
}

/* ---- which algorithm ---- */

/* Tensor cores multiply BF16, and F32 only as TF32. Where TF32 is allowed, the algorithm
 * chooses. */
static bool fits_math(const conv *c, const wfi_cudnn_choice *one) {
    if (one->mathType == CUDNN_TENSOR_OP_MATH && c->math == CUDNN_FMA_MATH) return false;
    if (one->mathType != CUDNN_TENSOR_OP_MATH && one->mathType != CUDNN_FMA_MATH &&
        one->mathType != CUDNN_DEFAULT_MATH)
        return false;
    return c->math == CUDNN_FMA_MATH || !c->dnn->SetConvolutionMathType(c->conv, one->mathType);
}

/* The way's; none: *found_out is false. */
static int choose(wfi_kernel *kernel, conv *c, cudnnHandle_t handle, bool *found_out) {
    wfi_cudnn_choice all[MOST_ALGORITHMS];
    const wfi_cudnn_way *way = &c->dnn->ways[c->direction];
    void *const *part = c->part;
    int n = 0;
    int error = way->algorithms(handle, part[FIRST], part[SECOND], c->conv, part[RESULT],
                                MOST_ALGORITHMS, &n, all);
    *found_out = false;
    for (int k = 0, number = 0; !error && k < n && !*found_out; k++) {
        const wfi_cudnn_choice *one = &all[k];
        bool is_alike = one->algo < directions[c->direction].first_unlike;
        size_t bytes = 0;
        if (one->status || one->determinism != CUDNN_DETERMINISTIC || !fits_math(c, one)) continue;
        if (kernel->options.conv == WF_CONV_DIRECT && !is_alike) continue;
        if (way->workspace(handle, part[FIRST], part[SECOND], c->conv, part[RESULT], one->algo,
                           &bytes))
            continue;
        if (bytes > MOST_WORKSPACE_BYTES || number++ < kernel->way.number) continue;
        c->algo = one->algo;
        c->workspace_bytes = wfi_round_up(bytes, WFI_ALIGN_BYTES);
        *found_out = true;
    }
    return error;
}

/* ---- the implementation ---- */

static const char *why_not(const wfi_kernel *kernel, int direction) {
    bool has_one_output = kernel->n_operands == kernel->node->n_in + 1;
    bool is_narrow = wfi_cuda_is_narrow(kernel);
    if (kernel->adds && (direction != BACKWARD_WEIGHT || !has_one_output))
        return "it accumulates into its output";
    for (int i = 0; i < kernel->n_operands; i++) {
        const wfi_value *value = wfi_operand_value(kernel, i);
        if (!value) continue;
        bool is_input = i < kernel->node->n_in;
        bool is_gradient = direction == BACKWARD_WEIGHT && !is_input;
        bool fits = !is_narrow || is_gradient ? value->dtype == WF_F32
                    : is_input                ? wfi_cuda_can_round(kernel, i)
                                              : value->dtype == WF_BF16;
        if (!fits) return "BF16 is mixed with F32";
        if (is_narrow && value->shape.n_dims == 1) return "it has a bias, and is BF16";
        if (!wf_shape_n_elem(&value->shape)) return "it is empty";
        if (wf_shape_n_elem(&value->shape) > INT32_MAX) return "it is too large";
    }
    return NULL;
}

/* Makes the descriptors, with the handles. */
static wf_status describe_with(wfi_kernel *kernel, const wfi_cuda_handles *handles,
                               const char **reason_out) {
    conv *c = kernel->state;
    bool is_found = false;
    c->direction = direction_of(kernel->node->op);
    c->math = wfi_cuda_is_narrow(kernel)        ? CUDNN_TENSOR_OP_MATH
              : kernel->options.multiplies_tf32 ? CUDNN_DEFAULT_MATH
                                                : CUDNN_FMA_MATH;
    c->dnn = &handles->libraries->dnn;
    if (!handles->dnn) return wfi_decline(reason_out, handles->libraries->no_dnn);
    int error = make_parts(kernel, c);
    if (!error) error = choose(kernel, c, handles->dnn, &is_found);
    if (error || !is_found)
        return wfi_decline(reason_out, "cuDNN has no deterministic algorithm for it");
    snprintf(c->detail, sizeof c->detail, "algo%d", c->algo);
    kernel->detail = c->detail;
    kernel->way.form = 0;
    kernel->scratch_bytes = wfi_cuda_scratch_bytes(c->workspace_bytes);
    wfi_use_whole_values(kernel);
    if (!wfi_cuda_is_narrow(kernel)) return WF_OK;
    if (c->direction != BACKWARD_WEIGHT) {
        wfi_cuda_round(kernel, c->operand[directions[c->direction].filter], &c->rounded);
        return WF_OK;
    }
    kernel->scratch_bytes =
        wfi_cuda_scratch_bytes(c->workspace_bytes + kernel->bytes[c->operand[RESULT]] / 2);
    return WF_OK;
}

static wf_status describe(wfi_kernel *kernel, const char **reason_out) {
    int d = direction_of(kernel->node->op);
    if (d == N_DIRECTIONS) return wfi_decline(reason_out, "it is not a convolution");
    *reason_out = why_not(kernel, d);
    if (*reason_out) return WF_UNSUPPORTED;
    return wfi_cuda_describe(kernel, sizeof(conv), describe_with, reason_out);
}

/* The forward adds a bias to the output; the bias's gradient is computed from dy, the second
 * part. */
static int run_bias(const conv *c, cudnnHandle_t handle, void *const operands[]) {
    const float one = 1, none = 0;
    if (c->bias < 0) return CUDNN_STATUS_SUCCESS;
    return c->direction == FORWARD
               ? c->dnn->AddTensor(handle, &one, c->bias_part, operands[c->bias], &one,
                                   c->part[RESULT], operands[c->operand[RESULT]])
               : c->dnn->ConvolutionBackwardBias(handle, &one, c->part[SECOND],
                                                 operands[c->operand[SECOND]], &none, c->bias_part,
                                                 operands[c->bias]);
}

static wf_status run(wfi_kernel *kernel, wfi_stream_queue *stream, void *const operands[],
                     void *scratch, const wfi_step_args *step) {
    (void)step;
    const conv *c = kernel->state;
    const wfi_cudnn *dnn = c->dnn;
    bool widens = c->direction == BACKWARD_WEIGHT && wfi_cuda_is_narrow(kernel);
    const float one = 1, kept = kernel->adds && !widens;
    void *to = operands[c->operand[RESULT]], *workspace = wfi_cuda_workspace(scratch);
    void *made = widens ? (char *)workspace + c->workspace_bytes : to;
    wfi_cuda_handles *handles;
    WF_TRY(wfi_cuda_take_handles(kernel->ctx, stream, &handles));
    wfi_cuda_enum error =
        dnn->ways[c->direction].run(handles->dnn, &one, c->part[FIRST], operands[c->operand[FIRST]],
                                    c->part[SECOND], operands[c->operand[SECOND]], c->conv, c->algo,
                                    workspace, c->workspace_bytes, &kept, c->part[RESULT], made);
    if (!error) error = run_bias(c, handles->dnn, operands);
    wfi_cuda_give_handles(handles);
    if (!error && widens)
        return wfi_cuda_widen(stream, made,
                              (int64_t)(kernel->bytes[c->operand[RESULT]] / sizeof(float)),
                              kernel->adds, to);
    if (!error) return WF_OK;
    return wfi_cudnn_refuses(kernel, dnn, error);
}

static void destroy(wfi_kernel *kernel) {
    conv *c = kernel->state;
    if (!c) return;
    for (int i = 0; i < N_PARTS; i++)
        if (c->part[i] && i == directions[c->direction].filter)
            c->dnn->DestroyFilterDescriptor(c->part[i]);
        else if (c->part[i])
            c->dnn->DestroyTensorDescriptor(c->part[i]);
    if (c->bias_part) c->dnn->DestroyTensorDescriptor(c->bias_part);
    if (c->conv) c->dnn->DestroyConvolutionDescriptor(c->conv);
    wfi_free(kernel->ctx, c);
}

const wfi_kernel_impl wfi_kernel_cudnn = {
    .name = "cudnn",
    .describe = describe,
    .own_forms = (const char *const[]){"cudnn", NULL},
    .run = run,
    .destroy = destroy,
};
