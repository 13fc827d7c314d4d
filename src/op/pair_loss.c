/* Losses of a prediction and its target of the same shape: the mean of a term over a sample's
 * elements.
 *
 * LOSS(prediction, target) -> loss [samples]
 * LOSS_backward(prediction, target, dloss [samples]) -> dprediction
 *
 * binary_cross_entropy's prediction are logits. */
#include "op/plain.h"

#include "op/pair_loss.cl"

static wf_status check_loss(wf_graph *g, wfi_node *node) {
    WF_TRY(wfi_check_inputs(g, node, "ff"));
    wf_shape a = wfi_in_shape(g, node, 0), b = wfi_in_shape(g, node, 1);
    if (!wfi_shape_equal(&a, &b))
        return wfi_op_fail(g, node, WF_SHAPE, "the shapes %s and %s differ", wfi_show(&a).text,
                           wfi_show(&b).text);
    if (a.n_dims < 1 || wf_shape_n_elem(&a) == 0)
        return wfi_op_fail(g, node, WF_SHAPE, "%s has no samples, or no elements in them",
                           wfi_show(&a).text);
    return wfi_node_output(g, node, WF_F32, &WF_SHAPE(a.dim[0]));
}

static wfi_numbers loss_numbers(const wfi_call *call) {
    int64_t n = call->in[0].shape.dim[0];
    return (wfi_numbers){.n_groups = n, .n = {n, wf_shape_n_elem(&call->in[0].shape) / n}};
}

static wfi_numbers slope_numbers(const wfi_call *call) {
    return wfi_element_numbers(&call->in[0].shape, loss_numbers(call).n[1]);
}

static const wfi_op_cut place[] = {{.name = "samples", .in = {1, 1}, .out = {1}}, {0}};

static const wfi_op_sample samples[] = {{.n_in = 2, .in = {WFI_DIMS(4, 5), WFI_DIMS(4, 5)}}, {0}};

/* Those that are symmetric: the target's gradient has the prediction as its target. */
#define SYMMETRIC(name)                                                                            \
    { .op = &wfi_op_##name##_backward, .in = {WFI_X + 1, WFI_X, WFI_DY}, .to = 1 }

/* Both ops of a loss; the last arguments list gradients in addition to the prediction's. */
#define PAIR_OPS(label, flops, slope_tolerance, its_samples, ...)                                  \
    PLAIN_REFERENCE(label##_reference, label, loss_numbers)                                        \
    PLAIN_REFERENCE(label##_backward_reference, label##_backward, slope_numbers)                   \
    const wfi_op wfi_op_##label = {                                                                \
        .name = #label,                                                                            \
        .tolerance = 5e-6f,                                                                        \
        .check = check_loss,                                                                       \
        .backward = (const wfi_op_backward[]){{.op = &wfi_op_##label##_backward,                   \
                                               .in = {WFI_X, WFI_X + 1, WFI_DY}},                  \
                                              __VA_ARGS__,                                         \
                                              {0}},                                                \
        .work = {flops, WFI_X},                                                                    \
        .reference = label##_reference,                                                            \
        .numbers = loss_numbers,                                                                   \
        .samples = its_samples,                                                                    \
        .place = place,                                                                            \
    };                                                                                             \
    const wfi_op wfi_op_##label##_backward = {                                                     \
        .name = #label "_backward",                                                                \
        .overwrites = 1 << 0 | 1 << 1,                                                             \
        .tolerance = slope_tolerance,                                                              \
        .makes = {WFI_X},                                                                          \
        .work = {flops, WFI_X},                                                                    \
        .reference = label##_backward_reference,                                                   \
        .numbers = slope_numbers,                                                                  \
    };

/* ---- mean squared error ---- */

PAIR_OPS(mse, 3, 1e-6f, samples, SYMMETRIC(mse))

wf_tensor wf_mse(wf_tensor prediction, wf_tensor target) {
    return wfi_build(&wfi_op_mse, NULL, NULL, 2, (wf_tensor[]){prediction, target});
}

/* ---- smooth L1, which is Huber's with delta 1 ---- */

PAIR_OPS(smooth_l1, 4, 1e-6f, samples, SYMMETRIC(smooth_l1))

wf_tensor wf_smooth_l1(wf_tensor prediction, wf_tensor target) {
    return wfi_build(&wfi_op_smooth_l1, NULL, NULL, 2, (wf_tensor[]){prediction, target});
}

/* ---- binary cross entropy ---- */

static const wfi_op_sample logit_samples[] = {
    {.n_in = 2, .in = {WFI_DIMS(4, 5), WFI_DIMS(4, 5)}, .no_gradient = 1 << 1}, {0}};

PAIR_OPS(binary_cross_entropy, 10, 5e-6f, logit_samples, {0})

wf_tensor wf_binary_cross_entropy(wf_tensor logits, wf_tensor target) {
    return wfi_build(&wfi_op_binary_cross_entropy, NULL, NULL, 2, (wf_tensor[]){logits, target});
}
