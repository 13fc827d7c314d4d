/* Losses of classes, one value a row, and ops on losses.
 *
 * cross_entropy(logits [rows.., n], labels I32 [rows..]) -> loss [rows], hits I32 [rows]
 * cross_entropy_backward(logits, labels, dloss [rows]) -> dlogits
 * smoothed_cross_entropy and its backward: the same against 1 - s for the label and s / n for each
 * class, s being attr.loss.smoothing
 * loss_record(loss, hits?) -> F64 [2]: sum of the rows, number of hits
 * loss_gradient() -> node->shape, every element step->loss_scale */
#include "op/plain.h"

#include "op/loss.cl"

/* ---- cross entropy ---- */

static wf_status cross_entropy_check(wf_graph *g, wfi_node *node) {
    double smoothing = node->attr.loss.smoothing;
    WF_TRY(wfi_check_inputs(g, node, "fi"));
    wf_shape logits = wfi_in_shape(g, node, 0), labels = wfi_in_shape(g, node, 1), rows = logits;
    if (!(smoothing >= 0 && smoothing < 1))
        return wfi_op_fail(g, node, WF_INVALID_ARG, "the smoothing is %g, but must be in [0, 1)",
                           smoothing);
    if (logits.n_dims < 1 || wfi_last_dim(&logits) == 0)
        return wfi_op_fail(g, node, WF_SHAPE, "the logits %s have no classes",
                           wfi_show(&logits).text);
    rows.n_dims--;
    if (!wfi_shape_equal(&rows, &labels))
        return wfi_op_fail(g, node, WF_SHAPE, "logits %s take labels %s, not %s",
                           wfi_show(&logits).text, wfi_show(&rows).text, wfi_show(&labels).text);
    wf_shape loss = WF_SHAPE(wfi_n_rows(&logits));
    WF_TRY(wfi_node_output(g, node, WF_F32, &loss));
    return wfi_node_output(g, node, WF_I32, &loss);
}

static wfi_numbers cross_entropy_numbers(const wfi_call *call) {
    wfi_numbers own = wfi_row_numbers(&call->in[0].shape);
    own.f[0] = call->attr->loss.smoothing;
    return own;
}

PLAIN_REFERENCE(cross_entropy_reference, cross_entropy, cross_entropy_numbers)
PLAIN_REFERENCE(cross_entropy_backward_reference, cross_entropy_backward, cross_entropy_numbers)

static int64_t n_classes_of(const wf_graph *g, const wfi_node *node) {
    wf_shape logits = wfi_in_shape(g, node, 0);
    return wfi_last_dim(&logits);
}

static const wfi_op_cut cross_entropy_place[] = {
    {.name = "rows", .in = {1, 1}, .out = {1, 1}, .is_even = true}, {0}};

/* Both ops of a cross entropy; then its smoothing in the sample. */
#define CROSS_ENTROPY_OPS(label, flops, ...)                                                       \
    static const wfi_op_sample label##_samples[] = {{.n_in = 2,                                    \
                                                     .in = {WFI_DIMS(6, 5), WFI_DIMS(6)},          \
                                                     .ids = 1 << 1,                                \
                                                     .id_limit = 5,                                \
                                                     .attr = {.loss = {__VA_ARGS__}}},             \
                                                    {0}};                                          \
    const wfi_op wfi_op_##label = {                                                                \
        .name = #label,                                                                            \
        .roles = {.label_in = 1 << 1, .hit_out = 1 << 1},                                          \
        .n_ids = n_classes_of,                                                                     \
        .tolerance = 5e-6f,                                                                        \
        .check = cross_entropy_check,                                                              \
        .backward =                                                                                \
            (const wfi_op_backward[]){                                                             \
                {.op = &wfi_op_##label##_backward, .in = {WFI_X, WFI_X + 1, WFI_DY}}, {0}},        \
        .work = {flops, WFI_X},                                                                    \
        .reference = cross_entropy_reference,                                                      \
        .numbers = cross_entropy_numbers,                                                          \
        .samples = label##_samples,                                                                \
        .place = cross_entropy_place,                                                              \
    };                                                                                             \
    const wfi_op wfi_op_##label##_backward = {                                                     \
        .name = #label "_backward",                                                                \
        .overwrites = 1 << 0,                                                                      \
        .tolerance = 5e-6f,                                                                        \
        .makes = {WFI_X},                                                                          \
        .work = {flops, WFI_X},                                                                    \
        .reference = cross_entropy_backward_reference,                                             \
        .numbers = cross_entropy_numbers,                                                          \
    };

CROSS_ENTROPY_OPS(cross_entropy, 10, 0)
CROSS_ENTROPY_OPS(smoothed_cross_entropy, 12, 0.1)

wf_tensor wf_cross_entropy(wf_tensor logits, wf_tensor labels) {
    return wf_smoothed_cross_entropy(logits, labels, 0);
}

wf_tensor wf_smoothed_cross_entropy(wf_tensor logits, wf_tensor labels, double smoothing) {
    bool is_smoothed = logits.graph && logits.graph->training && smoothing != 0;
    wfi_attr attr = {.loss = {is_smoothed ? smoothing : 0}};
    return wfi_build(is_smoothed ? &wfi_op_smoothed_cross_entropy : &wfi_op_cross_entropy, &attr,
                     NULL, 2, (wf_tensor[]){logits, labels});
}

/* ---- where the forward ends and the backward begins ---- */

static wf_status loss_record_check(wf_graph *g, wfi_node *node) {
    WF_TRY(wfi_check_inputs(g, node, "fi?"));
    wf_shape loss = wfi_in_shape(g, node, 0);
    if (loss.n_dims != 1)
        return wfi_op_fail(g, node, WF_SHAPE, "the loss %s is not one value a row",
                           wfi_show(&loss).text);
    if (node->in[1] >= 0) {
        wf_shape hits = wfi_in_shape(g, node, 1);
        if (!wfi_shape_equal(&loss, &hits))
            return wfi_op_fail(g, node, WF_SHAPE, "loss %s, but hits %s", wfi_show(&loss).text,
                               wfi_show(&hits).text);
    }
    return wfi_node_output(g, node, WF_F64, &WF_SHAPE(2));
}

static wfi_numbers loss_record_numbers(const wfi_call *call) {
    return (wfi_numbers){.n_groups = 1, .n = {1, call->in[0].shape.dim[0]}};
}

PLAIN_REFERENCE(loss_record_reference, loss_record, loss_record_numbers)

static void loss_gradient_reference(const wfi_call *call) {
    float *dloss = call->out[0].data;
    for (int64_t r = 0; r < call->out[0].shape.dim[0]; r++)
        dloss[r] = (float)call->step->loss_scale;
}

const wfi_op wfi_op_loss_record = {
    .name = "loss_record",
    .tolerance = 1e-12f,
    .check = loss_record_check,
    .work = {1, WFI_X},
    .reference = loss_record_reference,
    .numbers = loss_record_numbers,
};

const wfi_op wfi_op_loss_gradient = {
    .name = "loss_gradient",
    .flags = WFI_OP_READS_SCALE,
    .tolerance = 0,
    .makes = {WFI_OWN_SHAPE},
    .reference = loss_gradient_reference,
};
