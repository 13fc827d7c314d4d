/* Sums and means along one dim, which is removed.
 *
 * reduce(x) -> y = attr.reduce.factor * sum over attr.reduce.dim
 * reduce_backward(dy) -> dx, node->shape is x's */
#include "op/plain.h"

#include "op/reduce.cl"

static wf_status reduce_check(wf_graph *g, wfi_node *node) {
    WF_TRY(wfi_check_inputs(g, node, "f"));
    wf_shape x = wfi_in_shape(g, node, 0), y = {.n_dims = 0};
    int dim = node->attr.reduce.dim;
    if (dim < 0 || dim >= x.n_dims)
        return wfi_op_fail(g, node, WF_INVALID_ARG, "dim %d of %s", dim, wfi_show(&x).text);
    for (int d = 0; d < x.n_dims; d++)
        if (d != dim) y.dim[y.n_dims++] = x.dim[d];
    return wfi_node_output(g, node, WF_F32, &y);
}

/* y's elements, or x's, which are the node's output; x is [n_outer, n, n_inner]. */
static wfi_numbers numbers_of(const wfi_call *call, const wf_shape *x) {
    int dim = call->attr->reduce.dim;
    wfi_numbers own = wfi_element_numbers(&call->out[0].shape, x->dim[dim]);
    own.n[2] = wfi_size_of(x, dim + 1, x->n_dims);
    own.f[0] = call->attr->reduce.factor;
    return own;
}

static wfi_numbers reduce_numbers(const wfi_call *call) {
    return numbers_of(call, &call->in[0].shape);
}

static wfi_numbers backward_numbers(const wfi_call *call) {
    return numbers_of(call, &call->out[0].shape);
}

PLAIN_REFERENCE(reduce_reference, reduce, reduce_numbers)
PLAIN_REFERENCE(reduce_backward_reference, reduce_backward, backward_numbers)

static const wfi_op_sample reduce_samples[] = {
    {.n_in = 1, .in = {WFI_DIMS(2, 5, 3)}, .attr = {.reduce = {1, 0.2}}}, {0}};

const wfi_op wfi_op_reduce = {
    .name = "reduce",
    .tolerance = 5e-6f,
    .check = reduce_check,
    .backward =
        (const wfi_op_backward[]){
            {.op = &wfi_op_reduce_backward, .in = {WFI_DY}, .has_shape = true}, {0}},
    .work = {1, WFI_X},
    .reference = reduce_reference,
    .numbers = reduce_numbers,
    .samples = reduce_samples,
};

const wfi_op wfi_op_reduce_backward = {
    .name = "reduce_backward",
    .tolerance = 1e-7f,
    .makes = {WFI_OWN_SHAPE},
    .reference = reduce_backward_reference,
    .numbers = backward_numbers,
};

wf_tensor wf_sum(wf_tensor x, int dim) {
    wfi_attr attr = {.reduce = {.dim = dim, .factor = 1}};
    return wfi_build(&wfi_op_reduce, &attr, NULL, 1, &x);
}

wf_tensor wf_mean(wf_tensor x, int dim) {
    wf_shape shape = wf_tensor_shape(x);
    bool exists = dim >= 0 && dim < shape.n_dims;
    if (exists && shape.dim[dim] == 0) {
        wfi_graph_fail(x.graph, WF_SHAPE, "reduce: the mean along dim %d of %s, which is empty",
                       dim, wfi_show(&shape).text);
        return wfi_inert(x.graph);
    }
    wfi_attr attr = {.reduce = {.dim = dim, .factor = exists ? 1.0 / (double)shape.dim[dim] : 0}};
    return wfi_build(&wfi_op_reduce, &attr, NULL, 1, &x);
}
