/* Softmax and its logarithm over the last dim; x [rows.., n].
 *
 * softmax(x) -> y, softmax_backward(dy, y) -> dx
 * log_softmax(x) -> y, log_softmax_backward(dy, y) -> dx */
#include "op/plain.h"

#include "op/softmax.cl"

static wfi_numbers softmax_numbers(const wfi_call *call) {
    return wfi_row_numbers(&call->in[0].shape);
}

static wfi_numbers log_softmax_numbers(const wfi_call *call) {
    wfi_numbers own = softmax_numbers(call);
    own.n[2] = true;
    return own;
}

PLAIN_REFERENCE(softmax_reference, softmax, softmax_numbers)
PLAIN_REFERENCE(softmax_backward_reference, softmax_backward, softmax_numbers)
PLAIN_REFERENCE(log_softmax_reference, softmax, log_softmax_numbers)
PLAIN_REFERENCE(log_softmax_backward_reference, softmax_backward, log_softmax_numbers)

static const wfi_op_sample softmax_samples[] = {{.n_in = 1, .in = {WFI_DIMS(4, 3, 7)}}, {0}};

const wfi_op wfi_op_softmax = {
    .name = "softmax",
    .flags = WFI_OP_CHEAP | WFI_OP_ONE_TYPE,
    .overwrites = 1 << 0,
    .tolerance = 5e-6f,
    .check = wfi_check_rowwise,
    .backward =
        (const wfi_op_backward[]){{.op = &wfi_op_softmax_backward, .in = {WFI_DY, WFI_Y}}, {0}},
    .work = {10, WFI_Y}, /* maximum, exponential, sum, division */
    .reference = softmax_reference,
    .numbers = softmax_numbers,
    .samples = softmax_samples,
    .place = wfi_place_rows,
};

const wfi_op wfi_op_softmax_backward = {
    .name = "softmax_backward",
    .flags = WFI_OP_ONE_TYPE,
    .overwrites = 1 << 0,
    .tolerance = 5e-6f,
    .check = wfi_check_rowwise,
    .work = {4, WFI_Y},
    .reference = softmax_backward_reference,
    .numbers = softmax_numbers,
};

static const wfi_op_sample log_softmax_samples[] = {{.n_in = 1, .in = {WFI_DIMS(4, 3, 7)}}, {0}};

const wfi_op wfi_op_log_softmax = {
    .name = "log_softmax",
    .flags = WFI_OP_CHEAP | WFI_OP_ONE_TYPE,
    .overwrites = 1 << 0,
    .tolerance = 5e-6f,
    .check = wfi_check_rowwise,
    .backward =
        (const wfi_op_backward[]){{.op = &wfi_op_log_softmax_backward, .in = {WFI_DY, WFI_Y}}, {0}},
    .work = {10, WFI_Y},
    .reference = log_softmax_reference,
    .numbers = log_softmax_numbers,
    .samples = log_softmax_samples,
    .place = wfi_place_rows,
};

const wfi_op wfi_op_log_softmax_backward = {
    .name = "log_softmax_backward",
    .flags = WFI_OP_ONE_TYPE,
    .overwrites = 1 << 0,
    .tolerance = 5e-6f,
    .check = wfi_check_rowwise,
    .work = {10, WFI_Y},
    .reference = log_softmax_backward_reference,
    .numbers = log_softmax_numbers,
};

wf_tensor wf_softmax(wf_tensor x) {
    return wfi_build(&wfi_op_softmax, NULL, NULL, 1, &x);
}

wf_tensor wf_log_softmax(wf_tensor x) {
    return wfi_build(&wfi_op_log_softmax, NULL, NULL, 1, &x);
}
