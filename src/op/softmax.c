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

static const wfi_op_sample samples[] = {{.n_in = 1, .in = {WFI_DIMS(4, 3, 7)}}, {0}};

/* Both ops of the softmax or its logarithm. 10 FLOPs: maximum, exponential, sum, division. */
#define SOFTMAX_OPS(label, backward_flops)                                                         \
    PLAIN_REFERENCE(label##_reference, softmax, label##_numbers)                                   \
    PLAIN_REFERENCE(label##_backward_reference, softmax_backward, label##_numbers)                 \
    const wfi_op wfi_op_##label = {                                                                \
        .name = #label,                                                                            \
        .flags = WFI_OP_CHEAP | WFI_OP_ONE_TYPE,                                                   \
        .overwrites = 1 << 0,                                                                      \
        .tolerance = 5e-6f,                                                                        \
        .check = wfi_check_rowwise,                                                                \
        .backward =                                                                                \
            (const wfi_op_backward[]){{.op = &wfi_op_##label##_backward, .in = {WFI_DY, WFI_Y}},   \
                                      {0}},                                                        \
        .work = {10, WFI_Y},                                                                       \
        .reference = label##_reference,                                                            \
        .numbers = label##_numbers,                                                                \
        .samples = samples,                                                                        \
        .place = wfi_place_rows,                                                                   \
    };                                                                                             \
    const wfi_op wfi_op_##label##_backward = {                                                     \
        .name = #label "_backward",                                                                \
        .flags = WFI_OP_ONE_TYPE,                                                                  \
        .overwrites = 1 << 0,                                                                      \
        .tolerance = 5e-6f,                                                                        \
        .check = wfi_check_rowwise,                                                                \
        .work = {backward_flops, WFI_Y},                                                           \
        .reference = label##_backward_reference,                                                   \
        .numbers = label##_numbers,                                                                \
    };

SOFTMAX_OPS(softmax, 4)
SOFTMAX_OPS(log_softmax, 10)

wf_tensor wf_softmax(wf_tensor x) {
    return wfi_build(&wfi_op_softmax, NULL, NULL, 1, &x);
}

wf_tensor wf_log_softmax(wf_tensor x) {
    return wfi_build(&wfi_op_log_softmax, NULL, NULL, 1, &x);
}
