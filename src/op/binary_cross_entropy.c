/* Binary cross entropy of logits: max(x, 0) - x t + log(1 + exp(-|x|)), which does not overflow.
 *
 * binary_cross_entropy(logits, target) -> loss [samples], the mean over a sample's elements
 * binary_cross_entropy_backward(logits, target, dloss [samples]) -> dlogits */
#include "op/check.h"

#include <math.h>

static void binary_cross_entropy_reference(const wfi_call *call) {
    const float *x = call->in[0].data, *target = call->in[1].data;
    float *loss = call->out[0].data;
    int64_t n_samples = call->in[0].shape.dim[0], n = wfi_sample_size(&call->in[0].shape);
    for (int64_t s = 0; s < n_samples; s++, x += n, target += n) {
        double sum = 0;
        for (int64_t i = 0; i < n; i++) {
            double above = x[i] <= 0 ? 0 : x[i]; /* a NaN stays one */
            sum += above - (double)x[i] * target[i] + log1p(exp(-fabs((double)x[i])));
        }
        loss[s] = (float)(sum / (double)n);
    }
}

static void binary_cross_entropy_backward_reference(const wfi_call *call) {
    const float *x = call->in[0].data, *target = call->in[1].data, *dloss = call->in[2].data;
    float *dx = call->out[0].data;
    int64_t n_total = wf_shape_n_elem(&call->in[0].shape), n = wfi_sample_size(&call->in[0].shape);
    for (int64_t i = 0; i < n_total; i++)
        dx[i] = (float)((1 / (1 + exp(-(double)x[i])) - target[i]) * dloss[i / n] / (double)n);
}

static const wfi_op_sample samples[] = {
    {.n_in = 2, .in = {WFI_DIMS(4, 5), WFI_DIMS(4, 5)}, .no_gradient = 1 << 1}, {0}};

static const wfi_op_cut place[] = {{.name = "samples", .in = {1, 1}, .out = {1}}, {0}};

const wfi_op wfi_op_binary_cross_entropy = {
    .name = "binary_cross_entropy",
    .tolerance = 5e-6f,
    .check = wfi_check_pair_loss,
    .backward =
        (const wfi_op_backward[]){
            {.op = &wfi_op_binary_cross_entropy_backward, .in = {WFI_X, WFI_X + 1, WFI_DY}}, {0}},
    .work = {10, WFI_X},
    .reference = binary_cross_entropy_reference,
    .samples = samples,
    .place = place,
};

const wfi_op wfi_op_binary_cross_entropy_backward = {
    .name = "binary_cross_entropy_backward",
    .overwrites = 1 << 0 | 1 << 1,
    .tolerance = 5e-6f,
    .check = wfi_check_pair_loss_backward,
    .work = {10, WFI_X},
    .reference = binary_cross_entropy_backward_reference,
};

wf_tensor wf_binary_cross_entropy(wf_tensor logits, wf_tensor target) {
    return wfi_build(&wfi_op_binary_cross_entropy, NULL, NULL, 2, (wf_tensor[]){logits, target});
}
