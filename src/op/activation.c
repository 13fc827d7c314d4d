/* Activations, element by element.
 *
 * relu(x) -> y, relu_backward(dy, y) -> dx; tanh and sigmoid likewise
 * gelu(x) -> y, gelu_backward(dy, x) -> dx; attr.gelu.tanh: the approximation */
#include "op/check.h"

#include <math.h>

static int64_t n_elem_of(const wfi_call *call) {
    return wf_shape_n_elem(&call->out[0].shape);
}

/* ---- relu ---- */

/* A NaN stays one. */
static void relu_reference(const wfi_call *call) {
    const float *x = call->in[0].data;
    float *y = call->out[0].data;
    int64_t n = n_elem_of(call);
    for (int64_t i = 0; i < n; i++) y[i] = x[i] <= 0 ? 0 : x[i];
}

static void relu_backward_reference(const wfi_call *call) {
    const float *dy = call->in[0].data, *y = call->in[1].data;
    float *dx = call->out[0].data;
    for (int64_t i = 0; i < n_elem_of(call); i++) dx[i] = y[i] <= 0 ? 0 : dy[i];
}

static const wfi_op_sample relu_samples[] = {
    {.n_in = 1, .in = {WFI_DIMS(4, 6)}, .bend = WFI_BENDS_AT_ZERO}, {0}};

const wfi_op wfi_op_relu = {
    .name = "relu",
    .flags = WFI_OP_ELEMENTWISE | WFI_OP_CHEAP,
    .overwrites = 1 << 0,
    .tolerance = 0,
    .check = wfi_check_elementwise,
    .backward =
        (const wfi_op_backward[]){{.op = &wfi_op_relu_backward, .in = {WFI_DY, WFI_Y}}, {0}},
    .reference = relu_reference,
    .samples = relu_samples,
    .place = wfi_place_elements,
};

const wfi_op wfi_op_relu_backward = {
    .name = "relu_backward",
    .flags = WFI_OP_ELEMENTWISE,
    .overwrites = 1 << 0 | 1 << 1,
    .tolerance = 0,
    .check = wfi_check_elementwise,
    .reference = relu_backward_reference,
};

wf_tensor wf_relu(wf_tensor x) {
    return wfi_build(&wfi_op_relu, NULL, NULL, 1, &x);
}

/* ---- gelu ---- */

/* sqrt(2 / pi) and the cubic term of GPT-2's approximation. */
#define TANH_SCALE 0.7978845608028654
#define TANH_CUBIC 0.044715

/* x P(X <= x) for a standard normal X */
static double gelu(double x, bool approximate) {
    if (approximate) return 0.5 * x * (1 + tanh(TANH_SCALE * (x + TANH_CUBIC * x * x * x)));
    return 0.5 * x * (1 + erf(x * 0.7071067811865476));
}

static double gelu_slope(double x, bool approximate) {
    if (approximate) {
        double t = tanh(TANH_SCALE * (x + TANH_CUBIC * x * x * x));
        double inner = TANH_SCALE * (1 + 3 * TANH_CUBIC * x * x);
        return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * inner;
    }
    double density = exp(-0.5 * x * x) * 0.3989422804014327;
    return 0.5 * (1 + erf(x * 0.7071067811865476)) + x * density;
}

static void gelu_reference(const wfi_call *call) {
    const float *x = call->in[0].data;
    float *y = call->out[0].data;
    for (int64_t i = 0; i < n_elem_of(call); i++) y[i] = (float)gelu(x[i], call->attr->gelu.tanh);
}

static void gelu_backward_reference(const wfi_call *call) {
    const float *dy = call->in[0].data, *x = call->in[1].data;
    float *dx = call->out[0].data;
    for (int64_t i = 0; i < n_elem_of(call); i++)
        dx[i] = (float)(dy[i] * gelu_slope(x[i], call->attr->gelu.tanh));
}

static const wfi_op_sample gelu_samples[] = {
    {.n_in = 1, .in = {WFI_DIMS(4, 6)}, .attr = {.gelu = {0}}},
    {.n_in = 1, .in = {WFI_DIMS(4, 6)}, .attr = {.gelu = {1}}},
    {0}};

const wfi_op wfi_op_gelu = {
    .name = "gelu",
    .flags = WFI_OP_ELEMENTWISE | WFI_OP_CHEAP,
    .overwrites = 1 << 0,
    .tolerance = 5e-6f,
    .check = wfi_check_elementwise,
    .backward =
        (const wfi_op_backward[]){{.op = &wfi_op_gelu_backward, .in = {WFI_DY, WFI_X}}, {0}},
    .work = {8, WFI_Y}, /* as much as an exponential */
    .reference = gelu_reference,
    .samples = gelu_samples,
    .place = wfi_place_elements,
};

const wfi_op wfi_op_gelu_backward = {
    .name = "gelu_backward",
    .flags = WFI_OP_ELEMENTWISE,
    .overwrites = 1 << 0 | 1 << 1,
    .tolerance = 5e-6f,
    .check = wfi_check_elementwise,
    .work = {8, WFI_Y},
    .reference = gelu_backward_reference,
};

wf_tensor wf_gelu(wf_tensor x) {
    wfi_attr attr = {.gelu = {.tanh = 0}};
    return wfi_build(&wfi_op_gelu, &attr, NULL, 1, &x);
}

wf_tensor wf_gelu_tanh(wf_tensor x) {
    wfi_attr attr = {.gelu = {.tanh = 1}};
    return wfi_build(&wfi_op_gelu, &attr, NULL, 1, &x);
}

/* ---- tanh ---- */

static void tanh_reference(const wfi_call *call) {
    const float *x = call->in[0].data;
    float *y = call->out[0].data;
    for (int64_t i = 0; i < n_elem_of(call); i++) y[i] = (float)tanh(x[i]);
}

static void tanh_backward_reference(const wfi_call *call) {
    const float *dy = call->in[0].data, *y = call->in[1].data;
    float *dx = call->out[0].data;
    for (int64_t i = 0; i < n_elem_of(call); i++)
        dx[i] = (float)(dy[i] * (1 - (double)y[i] * y[i]));
}

static const wfi_op_sample tanh_samples[] = {{.n_in = 1, .in = {WFI_DIMS(4, 6)}}, {0}};

const wfi_op wfi_op_tanh = {
    .name = "tanh",
    .flags = WFI_OP_ELEMENTWISE | WFI_OP_CHEAP,
    .overwrites = 1 << 0,
    .tolerance = 5e-6f,
    .check = wfi_check_elementwise,
    .backward =
        (const wfi_op_backward[]){{.op = &wfi_op_tanh_backward, .in = {WFI_DY, WFI_Y}}, {0}},
    .work = {8, WFI_Y},
    .reference = tanh_reference,
    .samples = tanh_samples,
    .place = wfi_place_elements,
};

const wfi_op wfi_op_tanh_backward = {
    .name = "tanh_backward",
    .flags = WFI_OP_ELEMENTWISE,
    .overwrites = 1 << 0 | 1 << 1,
    .tolerance = 5e-6f,
    .check = wfi_check_elementwise,
    .reference = tanh_backward_reference,
};

wf_tensor wf_tanh(wf_tensor x) {
    return wfi_build(&wfi_op_tanh, NULL, NULL, 1, &x);
}

/* ---- sigmoid ---- */

static void sigmoid_reference(const wfi_call *call) {
    const float *x = call->in[0].data;
    float *y = call->out[0].data;
    for (int64_t i = 0; i < n_elem_of(call); i++) y[i] = (float)(1 / (1 + exp(-(double)x[i])));
}

static void sigmoid_backward_reference(const wfi_call *call) {
    const float *dy = call->in[0].data, *y = call->in[1].data;
    float *dx = call->out[0].data;
    for (int64_t i = 0; i < n_elem_of(call); i++)
        dx[i] = (float)(dy[i] * ((double)y[i] * (1 - (double)y[i])));
}

static const wfi_op_sample sigmoid_samples[] = {{.n_in = 1, .in = {WFI_DIMS(4, 6)}}, {0}};

const wfi_op wfi_op_sigmoid = {
    .name = "sigmoid",
    .flags = WFI_OP_ELEMENTWISE | WFI_OP_CHEAP,
    .overwrites = 1 << 0,
    .tolerance = 5e-6f,
    .check = wfi_check_elementwise,
    .backward =
        (const wfi_op_backward[]){{.op = &wfi_op_sigmoid_backward, .in = {WFI_DY, WFI_Y}}, {0}},
    .work = {8, WFI_Y},
    .reference = sigmoid_reference,
    .samples = sigmoid_samples,
    .place = wfi_place_elements,
};

const wfi_op wfi_op_sigmoid_backward = {
    .name = "sigmoid_backward",
    .flags = WFI_OP_ELEMENTWISE,
    .overwrites = 1 << 0 | 1 << 1,
    .tolerance = 5e-6f,
    .check = wfi_check_elementwise,
    .reference = sigmoid_backward_reference,
};

wf_tensor wf_sigmoid(wf_tensor x) {
    return wfi_build(&wfi_op_sigmoid, NULL, NULL, 1, &x);
}
