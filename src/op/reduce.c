/* Sums and means over one dim, which disappears.
 *
 * reduce(x) -> y, y = factor * sum; reduce_backward(dy) -> dx, broadcast */
#include "op/check.h"

/* x seen as [outer, n, inner] around dim d. */
typedef struct span {
    int64_t outer, n, inner;
} span;

static span span_of(const wf_shape *x, int d) {
    span s = {1, x->dim[d], 1};
    for (int i = 0; i < d; i++) s.outer *= x->dim[i];
    for (int i = d + 1; i < x->n_dims; i++) s.inner *= x->dim[i];
    return s;
}

static wf_shape without(const wf_shape *x, int d) {
    wf_shape y = {x->n_dims - 1, {0}};
    for (int i = 0; i < y.n_dims; i++) y.dim[i] = x->dim[i + (i >= d)];
    return y;
}

static wf_status reduce_check(wf_graph *g, wfi_node *node) {
    WF_TRY(wfi_check_inputs(g, node, "f"));
    wf_shape x = wfi_in_shape(g, node, 0);
    int d = node->attr.reduce.dim;
    if (d < 0 || d >= x.n_dims)
        return wfi_op_fail(g, node, WF_SHAPE, "%s has no dim %d", wfi_show(&x).text, d);
    wf_shape y = without(&x, d);
    return wfi_node_output(g, node, WF_F32, &y);
}

static wf_status reduce_gradient(wfi_autodiff *ad, const wfi_node *node) {
    wf_shape x = wfi_in_shape(wfi_graph_of(ad), node, 0);
    return wfi_pass(ad, node->in[0], &wfi_op_reduce_backward, &node->attr, &x, 1,
                    (int32_t[]){wfi_gradient_of(ad, node->out[0])});
}

static double reduce_flops(const wf_graph *g, const wfi_node *node) {
    wf_shape x = wfi_in_shape(g, node, 0);
    return (double)wf_shape_n_elem(&x);
}

static void reduce_reference(const wfi_call *call) {
    span s = span_of(&call->in[0].shape, call->attr->reduce.dim);
    const float *x = call->in[0].data;
    float *y = call->out[0].data;
    for (int64_t o = 0; o < s.outer; o++)
        for (int64_t i = 0; i < s.inner; i++) {
            double sum = 0;
            for (int64_t k = 0; k < s.n; k++) sum += x[(o * s.n + k) * s.inner + i];
            y[o * s.inner + i] = (float)(sum * call->attr->reduce.factor);
        }
}

const wfi_op wfi_op_reduce = {
    .name = "reduce",
    .tolerance = 1e-6f,
    .check = reduce_check,
    .gradient = reduce_gradient,
    .flops = reduce_flops,
    .reference = reduce_reference,
};

static wf_status reduce_backward_check(wf_graph *g, wfi_node *node) {
    WF_TRY(wfi_check_inputs(g, node, "f"));
    return wfi_node_output(g, node, WF_F32, &node->shape);
}

static void reduce_backward_reference(const wfi_call *call) {
    span s = span_of(&call->out[0].shape, call->attr->reduce.dim);
    const float *dy = call->in[0].data;
    float *dx = call->out[0].data, factor = (float)call->attr->reduce.factor;
    for (int64_t o = 0; o < s.outer; o++)
        for (int64_t k = 0; k < s.n; k++)
            for (int64_t i = 0; i < s.inner; i++)
                dx[(o * s.n + k) * s.inner + i] = dy[o * s.inner + i] * factor;
}

const wfi_op wfi_op_reduce_backward = {
    .name = "reduce_backward",
    .tolerance = 1e-6f,
    .check = reduce_backward_check,
    .reference = reduce_backward_reference,
};

static wf_tensor build_reduce(wf_tensor x, int dim, bool mean) {
    wf_shape shape = wf_tensor_shape(x);
    int64_t n = dim >= 0 && dim < shape.n_dims ? shape.dim[dim] : 1;
    wfi_attr attr = {.reduce = {dim, mean && n > 0 ? 1.0 / (double)n : 1.0}};
    return wfi_build(&wfi_op_reduce, &attr, NULL, 1, &x);
}

wf_tensor wf_sum(wf_tensor x, int dim) {
    return build_reduce(x, dim, false);
}

wf_tensor wf_mean(wf_tensor x, int dim) {
    return build_reduce(x, dim, true);
}
