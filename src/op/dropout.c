/* Dropout. The mask is a function of (seed, name, step, global sample, element), so it
 * is the same under every plan and is computed again in the backward.
 *
 * dropout(x) -> y; dropout_backward(dy) -> dx */
#include "op/check.h"

static wf_status dropout_check(wf_graph *g, wfi_node *node) {
    double p = node->attr.dropout.p;
    if (!(p >= 0 && p < 1))
        return wfi_op_fail(g, node, WF_INVALID_ARG, "p = %g; it must be at least 0 and below 1", p);
    WF_TRY(wfi_check_elementwise(g, node));
    wf_shape x = wfi_in_shape(g, node, 0);
    if (x.n_dims < 1 || x.dim[0] != g->batch)
        return wfi_op_fail(g, node, WF_SHAPE, "%s does not begin with the samples",
                           wfi_show(&x).text);
    return WF_OK;
}

static wf_status dropout_gradient(wfi_autodiff *ad, const wfi_node *node) {
    return wfi_pass(ad, node->in[0], &wfi_op_dropout_backward, &node->attr, NULL, 1,
                    (int32_t[]){wfi_gradient_of(ad, node->out[0])});
}

static void dropout_reference(const wfi_call *call) {
    const wfi_step_args *step = call->step;
    const float *x = call->in[0].data;
    float *y = call->out[0].data;
    double p = call->attr->dropout.p;
    float factor = (float)(1 / (1 - p));
    wfi_random_key key = {step->seed, call->attr->dropout.name};
    int64_t n = wf_shape_n_elem(&call->in[0].shape);
    int64_t per_sample = n / wfi_max_i64(call->in[0].shape.dim[0], 1);
    uint64_t first = (uint64_t)(step->first_sample * per_sample);
    for (int64_t i = 0; i < n; i++)
        y[i] = wfi_random_uniform(key, step->step, first + (uint64_t)i) >= p ? x[i] * factor : 0;
}

const wfi_op wfi_op_dropout = {
    .name = "dropout",
    .tolerance = 1e-6f,
    .check = dropout_check,
    .gradient = dropout_gradient,
    .reference = dropout_reference,
};

const wfi_op wfi_op_dropout_backward = {
    .name = "dropout_backward",
    .tolerance = 1e-6f,
    .check = dropout_check,
    .reference = dropout_reference,
};

wf_tensor wf_dropout(wf_tensor x, const char *name, float p) {
    wf_graph *g = x.graph;
    if (!wf_graph_is_training(g)) return x;
    wfi_attr attr = {.dropout = {p, wfi_random_name(name)}};
    return wfi_build(&wfi_op_dropout, &attr, NULL, 1, &x);
}
