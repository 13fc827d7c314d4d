/* Activations, element by element.
 *
 * relu(x) -> y, relu_backward(dy, y) -> dx; tanh and sigmoid likewise
 * gelu(x) -> y, gelu_backward(dy, x) -> dx; attr.gelu.tanh: the approximation */
#include "op/check.h"

/* ---- relu ---- */

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
    .reference = wfi_relu_reference,
    .samples = relu_samples,
    .place = wfi_place_elements,
};

const wfi_op wfi_op_relu_backward = {
    .name = "relu_backward",
    .flags = WFI_OP_ELEMENTWISE,
    .overwrites = 1 << 0 | 1 << 1,
    .tolerance = 0,
    .check = wfi_check_elementwise,
    .reference = wfi_relu_backward_reference,
};

wf_tensor wf_relu(wf_tensor x) {
    return wfi_build(&wfi_op_relu, NULL, NULL, 1, &x);
}

/* ---- gelu ---- */

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
    .reference = wfi_gelu_reference,
    .numbers = wfi_gelu_numbers,
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
    .reference = wfi_gelu_backward_reference,
    .numbers = wfi_gelu_numbers,
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
    .reference = wfi_tanh_forward_reference,
    .samples = tanh_samples,
    .place = wfi_place_elements,
};

const wfi_op wfi_op_tanh_backward = {
    .name = "tanh_backward",
    .flags = WFI_OP_ELEMENTWISE,
    .overwrites = 1 << 0 | 1 << 1,
    .tolerance = 5e-6f,
    .check = wfi_check_elementwise,
    .reference = wfi_tanh_backward_reference,
};

wf_tensor wf_tanh(wf_tensor x) {
    return wfi_build(&wfi_op_tanh, NULL, NULL, 1, &x);
}

/* ---- sigmoid ---- */

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
    .reference = wfi_sigmoid_reference,
    .samples = sigmoid_samples,
    .place = wfi_place_elements,
};

const wfi_op wfi_op_sigmoid_backward = {
    .name = "sigmoid_backward",
    .flags = WFI_OP_ELEMENTWISE,
    .overwrites = 1 << 0 | 1 << 1,
    .tolerance = 5e-6f,
    .check = wfi_check_elementwise,
    .reference = wfi_sigmoid_backward_reference,
};

wf_tensor wf_sigmoid(wf_tensor x) {
    return wfi_build(&wfi_op_sigmoid, NULL, NULL, 1, &x);
}
