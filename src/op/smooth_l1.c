/* The smooth L1 loss, which is Huber's with delta 1: d^2 / 2 for |d| < 1, |d| - 1/2 beyond.
 *
 * smooth_l1(prediction, target) -> loss [samples], the mean over a sample's elements
 * smooth_l1_backward(prediction, target, dloss [samples]) -> dprediction */
#include "op/check.h"

#include <math.h>

static void smooth_l1_reference(const wfi_call *call) {
    const float *prediction = call->in[0].data, *target = call->in[1].data;
    float *loss = call->out[0].data;
    int64_t n_samples = call->in[0].shape.dim[0], n = wfi_sample_size(&call->in[0].shape);
    for (int64_t s = 0; s < n_samples; s++, prediction += n, target += n) {
        double sum = 0;
        for (int64_t i = 0; i < n; i++) {
            double d = fabs((double)prediction[i] - target[i]);
            sum += d < 1 ? d * d / 2 : d - 0.5;
        }
        loss[s] = (float)(sum / (double)n);
    }
}

static void smooth_l1_backward_reference(const wfi_call *call) {
    const float *prediction = call->in[0].data, *target = call->in[1].data;
    const float *dloss = call->in[2].data;
    float *dx = call->out[0].data;
    int64_t n_total = wf_shape_n_elem(&call->in[0].shape), n = wfi_sample_size(&call->in[0].shape);
    for (int64_t i = 0; i < n_total; i++) {
        double d = (double)prediction[i] - target[i];
        dx[i] = (float)((d < -1 ? -1 : d > 1 ? 1 : d) * dloss[i / n] / (double)n);
    }
}

static const wfi_op_sample samples[] = {{.n_in = 2, .in = {WFI_DIMS(4, 5), WFI_DIMS(4, 5)}}, {0}};

static const wfi_op_cut place[] = {{.name = "samples", .in = {1, 1}, .out = {1}}, {0}};

const wfi_op wfi_op_smooth_l1 = {
    .name = "smooth_l1",
    .tolerance = 5e-6f,
    .check = wfi_check_pair_loss,
    /* Symmetric, as the mean squared error. */
    .backward =
        (const wfi_op_backward[]){
            {.op = &wfi_op_smooth_l1_backward, .in = {WFI_X, WFI_X + 1, WFI_DY}},
            {.op = &wfi_op_smooth_l1_backward, .in = {WFI_X + 1, WFI_X, WFI_DY}, .to = 1},
            {0}},
    .work = {4, WFI_X},
    .reference = smooth_l1_reference,
    .samples = samples,
    .place = place,
};

const wfi_op wfi_op_smooth_l1_backward = {
    .name = "smooth_l1_backward",
    .overwrites = 1 << 0 | 1 << 1,
    .tolerance = 1e-6f,
    .check = wfi_check_pair_loss_backward,
    .work = {4, WFI_X},
    .reference = smooth_l1_backward_reference,
};

wf_tensor wf_smooth_l1(wf_tensor prediction, wf_tensor target) {
    return wfi_build(&wfi_op_smooth_l1, NULL, NULL, 2, (wf_tensor[]){prediction, target});
}
