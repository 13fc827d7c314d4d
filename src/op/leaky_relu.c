/* A ReLU that lets a part of what is negative through; attr.scale.factor is its slope there.
 *
 * leaky_relu(x) -> y, leaky_relu_backward(dy, y) -> dx */
#include "op/check.h"

static wf_status leaky_relu_check(wf_graph *g, wfi_node *node) {
    double slope = node->attr.scale.factor;
    if (!(slope >= 0 && slope < 1))
        return wfi_op_fail(g, node, WF_INVALID_ARG, "the slope is %g, but must be in [0, 1)",
                           slope);
    return wfi_check_elementwise(g, node);
}

static const wfi_op_sample samples[] = {
    {.n_in = 1, .in = {WFI_DIMS(4, 6)}, .attr = {.scale = {0.2}}, .bend = WFI_BENDS_AT_ZERO}, {0}};

const wfi_op wfi_op_leaky_relu = {
    .name = "leaky_relu",
    .flags = WFI_OP_ELEMENTWISE | WFI_OP_CHEAP,
    .overwrites = 1 << 0,
    .tolerance = 1e-6f,
    .check = leaky_relu_check,
    .backward =
        (const wfi_op_backward[]){{.op = &wfi_op_leaky_relu_backward, .in = {WFI_DY, WFI_Y}}, {0}},
    .reference = wfi_leaky_relu_reference,
    .numbers = wfi_scale_numbers,
    .samples = samples,
    .place = wfi_place_elements,
};

const wfi_op wfi_op_leaky_relu_backward = {
    .name = "leaky_relu_backward",
    .flags = WFI_OP_ELEMENTWISE,
    .overwrites = 1 << 0 | 1 << 1,
    .tolerance = 1e-6f,
    .check = wfi_check_elementwise,
    .reference = wfi_leaky_relu_backward_reference,
    .numbers = wfi_scale_numbers,
};

wf_tensor wf_leaky_relu(wf_tensor x, float slope) {
    wfi_attr attr = {.scale = {slope}};
    return wfi_build(&wfi_op_leaky_relu, &attr, NULL, 1, &x);
}
