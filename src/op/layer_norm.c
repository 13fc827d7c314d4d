/* Layer normalization over the last dim.
 *
 * layer_norm(x, scale, shift) -> y, mean [rows], var [rows] (biased)
 * layer_norm_backward(dy, x, mean, var, scale) -> dx, dscale, dshift
 *
 * x [rows.., n]; scale and shift [n]. */
#include "op/plain.h"

#include "op/layer_norm.cl"

static wf_status layer_norm_check(wf_graph *g, wfi_node *node) {
    WF_TRY(wfi_check_inputs(g, node, "fff"));
    WF_TRY(wfi_check_normalized(g, node, 1));
    WF_TRY(wfi_check_normalized(g, node, 2));
    wf_shape x = wfi_in_shape(g, node, 0), rows = WF_SHAPE(wfi_n_rows(&x));
    WF_TRY(wfi_node_output(g, node, WF_F32, &x));
    WF_TRY(wfi_node_output(g, node, WF_F32, &rows));
    return wfi_node_output(g, node, WF_F32, &rows);
}

wfi_numbers wfi_norm_numbers(const wfi_call *call) {
    wfi_numbers own = wfi_row_numbers(&call->in[0].shape);
    own.f[0] = call->attr->norm.eps;
    return own;
}

wfi_numbers wfi_norm_weight_numbers(const wfi_call *call) {
    wfi_numbers own = wfi_norm_numbers(call);
    own.n_threads = own.n[1];
    return own;
}

PLAIN_REFERENCE(layer_norm_reference, layer_norm, wfi_norm_numbers)
PLAIN_REFERENCE(backward_weight, layer_norm_backward_weight, wfi_norm_weight_numbers)
PLAIN_REFERENCE(backward_data, layer_norm_backward_data, wfi_norm_numbers)

static void layer_norm_backward_reference(const wfi_call *call) {
    backward_weight(call);
    backward_data(call);
}

static const wfi_op_sample layer_norm_samples[] = {
    {.n_in = 3, .in = {WFI_DIMS(4, 3, 7), WFI_DIMS(7), WFI_DIMS(7)}, .attr = {.norm = {1e-5, 0}}},
    {0}};

const wfi_op wfi_op_layer_norm = {
    .name = "layer_norm",
    .flags = WFI_OP_CHEAP | WFI_OP_ONE_TYPE,
    .overwrites = 1 << 0,
    .tolerance = 1e-5f,
    .check = layer_norm_check,
    .backward = (const wfi_op_backward[]){{.op = &wfi_op_layer_norm_backward,
                                           .in = {WFI_DY, WFI_X, WFI_Y + 1, WFI_Y + 2, WFI_X + 1},
                                           .n_to = 3},
                                          {0}},
    .work = {8, WFI_Y}, /* mean 1, variance 3, y 4 */
    .reference = layer_norm_reference,
    .numbers = wfi_norm_numbers,
    .samples = layer_norm_samples,
    .place = wfi_place_rows,
};

const wfi_op wfi_op_layer_norm_backward = {
    .name = "layer_norm_backward",
    .flags = WFI_OP_ONE_TYPE,
    .overwrites = 1 << 0,
    .tolerance = 2e-5f,
    .makes = {WFI_X + 1, WFI_X + 4, WFI_X + 4},
    .work = {13, WFI_Y},
    .reference = layer_norm_backward_reference,
    .numbers = wfi_norm_numbers,
};

wf_tensor wf_layer_norm_with(wf_tensor x, wf_tensor scale, wf_tensor shift, float eps) {
    wfi_attr attr = {.norm = {.eps = eps}};
    return wfi_build(&wfi_op_layer_norm, &attr, NULL, 3, (wf_tensor[]){x, scale, shift});
}
