/* Sums and products, element by element.
 *
 * add(a, b), add_relu(a, b), mul(a, b) -> y    equal shapes
 * add_broadcast(a, b) -> y                     b's dims are a's last ones
 * sum_leading(x) -> y                          its gradient: node->shape is x's last dims
 * scale(x) -> y                                attr.scale.factor */
#include "op/check.h"

static int64_t n_elem_of(const wfi_call *call) {
    return wf_shape_n_elem(&call->out[0].shape);
}

/* An op with inputs and an output of one shape; its `backward` or `gradient`, numbers and others
 * are last. */
#define ELEMENTWISE(label, n_inputs, its_samples, ...)                                             \
    const wfi_op wfi_op_##label = {                                                                \
        .name = #label,                                                                            \
        .flags = WFI_OP_ELEMENTWISE | WFI_OP_CHEAP,                                                \
        .overwrites = (1 << (n_inputs)) - 1,                                                       \
        .tolerance = 1e-7f,                                                                        \
        .check = wfi_check_elementwise,                                                            \
        .reference = wfi_##label##_reference,                                                      \
        .samples = its_samples,                                                                    \
        .place = wfi_place_elements,                                                               \
        __VA_ARGS__,                                                                               \
    };

/* ---- add, add_relu ---- */

static wf_status add_relu_gradient(wfi_autodiff *ad, const wfi_node *node) {
    int32_t dy = wfi_gradient_of(ad, node->out[0]);
    const wfi_node *back =
        wfi_backward_node(ad, &wfi_op_relu_backward, NULL, NULL, 2, (int32_t[]){dy, node->out[0]});
    if (!back) return wfi_graph_of(ad)->status;
    int32_t dsum = back->out[0];
    WF_TRY(wfi_contribute(ad, node->in[0], dsum));
    return wfi_contribute(ad, node->in[1], dsum);
}

static wf_status add_with_relu(wf_graph *g, wfi_node *node) {
    (void)g;
    node->op = &wfi_op_add_relu;
    return WF_OK;
}

static const wfi_op_sample add_samples[] = {{.n_in = 2, .in = {WFI_DIMS(4, 6), WFI_DIMS(4, 6)}},
                                            {0}};

ELEMENTWISE(add, 2, add_samples, .with_relu = add_with_relu,
            .backward = (const wfi_op_backward[]){{.in = {WFI_DY}}, {.in = {WFI_DY}, .to = 1}, {0}})

static const wfi_op_sample add_relu_samples[] = {
    {.n_in = 2, .in = {WFI_DIMS(4, 6), WFI_DIMS(4, 6)}, .bend = WFI_BENDS_AT_ZERO}, {0}};

ELEMENTWISE(add_relu, 2, add_relu_samples, .gradient = add_relu_gradient, .work = {2, WFI_Y})

/* ---- add_broadcast, sum_leading ---- */

static bool is_tail(const wf_shape *tail, const wf_shape *shape) {
    int skipped = shape->n_dims - tail->n_dims;
    for (int d = 0; d < tail->n_dims; d++)
        if (skipped < 0 || tail->dim[d] != shape->dim[skipped + d]) return false;
    return skipped >= 0;
}

static wf_status add_broadcast_check(wf_graph *g, wfi_node *node) {
    WF_TRY(wfi_check_inputs(g, node, "ff"));
    wf_shape a = wfi_in_shape(g, node, 0), b = wfi_in_shape(g, node, 1);
    if (!is_tail(&b, &a))
        return wfi_op_fail(g, node, WF_SHAPE, "the dims of %s are not the last ones of %s",
                           wfi_show(&b).text, wfi_show(&a).text);
    return wfi_node_output(g, node, WF_F32, &a);
}

static wfi_numbers add_broadcast_numbers(const wfi_call *call) {
    wfi_numbers own = wfi_element_numbers(&call->out[0].shape, wf_shape_n_elem(&call->in[1].shape));
    own.n[2] = 1;
    return own;
}

static void add_broadcast_reference(const wfi_call *call) {
    const float *a = call->in[0].data, *b = call->in[1].data;
    float *y = call->out[0].data;
    int64_t n = wf_shape_n_elem(&call->in[1].shape);
    for (int64_t i = 0; i < n_elem_of(call); i += n)
        for (int64_t k = 0; k < n; k++) y[i + k] = a[i + k] + b[k];
}

/* A reduction (reduce.cl) over the leading dims. */
static wfi_numbers sum_leading_numbers(const wfi_call *call) {
    int64_t n = n_elem_of(call), n_total = wf_shape_n_elem(&call->in[0].shape);
    return (wfi_numbers){.n_threads = n, .n = {n, n ? n_total / n : 0, n}, .f = {1}};
}

/* Row by row, some columns at once. */
static void sum_leading_reference(const wfi_call *call) {
    enum { N_AT_ONCE = 64 };
    float *y = call->out[0].data;
    int64_t n = n_elem_of(call), n_total = wf_shape_n_elem(&call->in[0].shape);
    for (int64_t first = 0; first < n; first += N_AT_ONCE) {
        const float *x = (const float *)call->in[0].data + first;
        double sums[N_AT_ONCE] = {0};
        int64_t n_now = wfi_min_i64(n - first, N_AT_ONCE);
        for (int64_t j = 0; j < n_total; j += n)
            for (int64_t k = 0; k < n_now; k++) sums[k] += x[j + k];
        for (int64_t k = 0; k < n_now; k++) y[first + k] = (float)sums[k];
    }
}

static const wfi_op_sample add_broadcast_samples[] = {
    {.n_in = 2, .in = {WFI_DIMS(4, 2, 6), WFI_DIMS(2, 6)}}, {0}};

static const wfi_op_cut add_broadcast_place[] = {{.name = "samples", .in = {1}, .out = {1}},
                                                 {.name = "columns", .in = {-1, -1}, .out = {-1}},
                                                 {0}};

const wfi_op wfi_op_add_broadcast = {
    .name = "add_broadcast",
    .flags = WFI_OP_CHEAP,
    .overwrites = 1 << 0,
    .tolerance = 1e-7f,
    .check = add_broadcast_check,
    .backward =
        (const wfi_op_backward[]){
            {.in = {WFI_DY}},
            {.op = &wfi_op_sum_leading, .in = {WFI_DY}, .to = 1, .has_shape = true},
            {0}},
    .reference = add_broadcast_reference,
    .numbers = add_broadcast_numbers,
    .samples = add_broadcast_samples,
    .place = add_broadcast_place,
};

const wfi_op wfi_op_sum_leading = {
    .name = "sum_leading",
    .tolerance = 5e-6f,
    .makes = {WFI_OWN_SHAPE},
    .work = {1, WFI_X},
    .reference = sum_leading_reference,
    .numbers = sum_leading_numbers,
};

wf_tensor wf_add(wf_tensor a, wf_tensor b) {
    wf_shape a_shape = wf_tensor_shape(a), b_shape = wf_tensor_shape(b);
    const wfi_op *op = a_shape.n_dims == b_shape.n_dims ? &wfi_op_add : &wfi_op_add_broadcast;
    return wfi_build(op, NULL, NULL, 2, (wf_tensor[]){a, b});
}

/* ---- mul, scale ---- */

ELEMENTWISE(mul, 2, add_samples,
            .backward = (const wfi_op_backward[]){
                {.op = &wfi_op_mul, .in = {WFI_DY, WFI_X + 1}},
                {.op = &wfi_op_mul, .in = {WFI_DY, WFI_X}, .to = 1},
                {0}})

static const wfi_op_sample scale_samples[] = {
    {.n_in = 1, .in = {WFI_DIMS(4, 6)}, .attr = {.scale = {0.3}}}, {0}};

ELEMENTWISE(scale, 1, scale_samples, .numbers = wfi_scale_numbers,
            .backward = (const wfi_op_backward[]){{.op = &wfi_op_scale, .in = {WFI_DY}}, {0}})

wf_tensor wf_mul(wf_tensor a, wf_tensor b) {
    return wfi_build(&wfi_op_mul, NULL, NULL, 2, (wf_tensor[]){a, b});
}

wf_tensor wf_scale(wf_tensor x, float factor) {
    wfi_attr attr = {.scale = {.factor = factor}};
    return wfi_build(&wfi_op_scale, &attr, NULL, 1, &x);
}
