/* Root mean square normalization over the last dim (Zhang and Sennrich, 2019).
 *
 * rms_norm(x, scale) -> y, square [rows], the mean of squares
 * rms_norm_backward(dy, x, square, scale) -> dx, dscale
 *
 * x [rows.., n]; scale [n]. */
#include "op/plain.h"

#include "op/rms_norm.cl"

static wf_status rms_norm_check(wf_graph *g, wfi_node *node) {
    WF_TRY(wfi_check_inputs(g, node, "ff"));
    WF_TRY(wfi_check_normalized(g, node, 1));
    wf_shape x = wfi_in_shape(g, node, 0), rows = WF_SHAPE(wfi_n_rows(&x));
    WF_TRY(wfi_node_output(g, node, WF_F32, &x));
    return wfi_node_output(g, node, WF_F32, &rows);
}

PLAIN_REFERENCE(rms_norm_reference, rms_norm, wfi_norm_numbers)
PLAIN_REFERENCE(backward_weight, rms_norm_backward_weight, wfi_norm_weight_numbers)
PLAIN_REFERENCE(backward_data, rms_norm_backward_data, wfi_norm_numbers)

static void rms_norm_backward_reference(const wfi_call *call) {
    backward_weight(call);
    backward_data(call);
}

static const wfi_op_sample rms_norm_samples[] = {
    {.n_in = 2, .in = {WFI_DIMS(4, 3, 7), WFI_DIMS(7)}, .attr = {.norm = {1e-5, 0}}}, {0}};

const wfi_op wfi_op_rms_norm = {
    .name = "rms_norm",
    .flags = WFI_OP_CHEAP,
    .roles = {.wide_out = 1 << 1},
    .overwrites = 1 << 0,
    .tolerance = 1e-5f,
    .check = rms_norm_check,
    .backward = (const wfi_op_backward[]){{.op = &wfi_op_rms_norm_backward,
                                           .in = {WFI_DY, WFI_X, WFI_Y + 1, WFI_X + 1},
                                           .n_to = 2},
                                          {0}},
    .work = {4, WFI_Y}, /* squares 2, y 2 */
    .reference = rms_norm_reference,
    .numbers = wfi_norm_numbers,
    .samples = rms_norm_samples,
    .place = wfi_place_rows,
};

const wfi_op wfi_op_rms_norm_backward = {
    .name = "rms_norm_backward",
    .overwrites = 1 << 0,
    .tolerance = 2e-5f,
    .makes = {WFI_X + 1, WFI_X + 3},
    .work = {9, WFI_Y},
    .reference = rms_norm_backward_reference,
    .numbers = wfi_norm_numbers,
};

wf_tensor wf_rms_norm_with(wf_tensor x, wf_tensor scale, float eps) {
    wfi_attr attr = {.norm = {.eps = eps}};
    return wfi_build(&wfi_op_rms_norm, &attr, NULL, 2, (wf_tensor[]){x, scale});
}
