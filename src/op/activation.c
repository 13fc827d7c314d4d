/* Activations, element by element.
 *
 * relu(x) -> y, relu_backward(dy, y) -> dx; tanh, sigmoid and leaky_relu likewise
 * silu(x) -> y = x sigmoid(x), silu_backward(dy, x) -> dx
 * gelu(x) -> y, gelu_backward(dy, x) -> dx; attr.gelu.tanh: the approximation
 * leaky_relu multiplies negative elements by attr.scale.factor */
#include "op/check.h"

/* Both ops of an activation: with the FLOPs of an element forward and backward, and the value that
 * backward reads; then its samples. */
#define ACTIVATION(label, allowed, flops, backward_flops, kept, its_check, its_numbers, forward,   \
                   ...)                                                                            \
    static const wfi_op_sample label##_samples[] = {__VA_ARGS__, {0}};                             \
    const wfi_op wfi_op_##label = {                                                                \
        .name = #label,                                                                            \
        .flags = WFI_OP_ELEMENTWISE | WFI_OP_CHEAP,                                                \
        .overwrites = 1 << 0,                                                                      \
        .tolerance = allowed,                                                                      \
        .check = its_check,                                                                        \
        .backward =                                                                                \
            (const wfi_op_backward[]){{.op = &wfi_op_##label##_backward, .in = {WFI_DY, kept}},    \
                                      {0}},                                                        \
        .work = {flops, WFI_Y},                                                                    \
        .reference = forward,                                                                      \
        .numbers = its_numbers,                                                                    \
        .samples = label##_samples,                                                                \
        .place = wfi_place_elements,                                                               \
    };                                                                                             \
    const wfi_op wfi_op_##label##_backward = {                                                     \
        .name = #label "_backward",                                                                \
        .flags = WFI_OP_ELEMENTWISE,                                                               \
        .overwrites = 1 << 0 | 1 << 1,                                                             \
        .tolerance = allowed,                                                                      \
        .check = wfi_check_elementwise,                                                            \
        .work = {backward_flops, WFI_Y},                                                           \
        .reference = wfi_##label##_backward_reference,                                             \
        .numbers = its_numbers,                                                                    \
    };

#define SAMPLE .n_in = 1, .in = {WFI_DIMS(4, 6)}

static wf_status leaky_relu_check(wf_graph *g, wfi_node *node) {
    double slope = node->attr.scale.factor;
    if (!(slope >= 0 && slope < 1))
        return wfi_op_fail(g, node, WF_INVALID_ARG, "the slope is %g, but must be in [0, 1)",
                           slope);
    return wfi_check_elementwise(g, node);
}

/* An exponential is as much as 8 FLOPs. */
ACTIVATION(relu, 0, 1, 1, WFI_Y, wfi_check_elementwise, NULL, wfi_relu_reference,
           {SAMPLE, .bend = WFI_BENDS_AT_ZERO})
ACTIVATION(leaky_relu, 1e-6f, 1, 1, WFI_Y, leaky_relu_check, wfi_scale_numbers,
           wfi_leaky_relu_reference, {SAMPLE, .attr = {.scale = {0.2}}, .bend = WFI_BENDS_AT_ZERO})
ACTIVATION(tanh, 5e-6f, 8, 1, WFI_Y, wfi_check_elementwise, NULL, wfi_tanh_forward_reference,
           {SAMPLE})
ACTIVATION(sigmoid, 5e-6f, 8, 1, WFI_Y, wfi_check_elementwise, NULL, wfi_sigmoid_reference,
           {SAMPLE})
ACTIVATION(silu, 5e-6f, 8, 8, WFI_X, wfi_check_elementwise, NULL, wfi_silu_reference, {SAMPLE})
ACTIVATION(gelu, 5e-6f, 8, 8, WFI_X, wfi_check_elementwise, wfi_gelu_numbers, wfi_gelu_reference,
           {SAMPLE, .attr = {.gelu = {0}}}, {SAMPLE, .attr = {.gelu = {1}}})

wf_tensor wf_relu(wf_tensor x) {
    return wfi_build(&wfi_op_relu, NULL, NULL, 1, &x);
}

wf_tensor wf_leaky_relu(wf_tensor x, float slope) {
    return wfi_build(&wfi_op_leaky_relu, &(wfi_attr){.scale = {slope}}, NULL, 1, &x);
}

wf_tensor wf_tanh(wf_tensor x) {
    return wfi_build(&wfi_op_tanh, NULL, NULL, 1, &x);
}

wf_tensor wf_sigmoid(wf_tensor x) {
    return wfi_build(&wfi_op_sigmoid, NULL, NULL, 1, &x);
}

wf_tensor wf_silu(wf_tensor x) {
    return wfi_build(&wfi_op_silu, NULL, NULL, 1, &x);
}

wf_tensor wf_gelu(wf_tensor x) {
    return wfi_build(&wfi_op_gelu, &(wfi_attr){.gelu = {.tanh = 0}}, NULL, 1, &x);
}

wf_tensor wf_gelu_tanh(wf_tensor x) {
    return wfi_build(&wfi_op_gelu, &(wfi_attr){.gelu = {.tanh = 1}}, NULL, 1, &x);
}
