/* Ops that move elements and change none.
 *
 * reshape(x) -> the same bytes; reorder(x) -> another layout; transpose(x);
 * concat(parts...); slice(x); slice_backward(dy) -> dx, zero outside the slice */
#include "op/check.h"

#include <string.h>

/* ---- reshape ---- */

static wf_status reshape_check(wf_graph *g, wfi_node *node) {
    if (node->in[0] < 0)
        return wfi_op_fail(g, node, WF_INVALID_ARG, "the input is not a tensor of this graph");
    wf_shape x = wfi_in_shape(g, node, 0), y = node->shape;
    int64_t known = 1;
    int unknown = -1;
    bool fits = y.n_dims >= 0 && y.n_dims <= WF_MAX_DIMS;
    for (int d = 0; d < y.n_dims && fits; d++) {
        if (y.dim[d] == -1 && unknown < 0)
            unknown = d;
        else
            fits = y.dim[d] >= 0 && !__builtin_mul_overflow(known, y.dim[d], &known);
    }
    int64_t n = wf_shape_n_elem(&x);
    if (fits && unknown >= 0) {
        fits = known > 0 && n % known == 0;
        if (fits) y.dim[unknown] = n / known;
    }
    if (!fits || wf_shape_n_elem(&y) != n)
        return wfi_op_fail(g, node, WF_SHAPE, "%s has %lld elements and cannot become %s",
                           wfi_show(&x).text, (long long)n, wfi_show(&node->shape).text);
    node->shape = y;
    return wfi_node_output(g, node, g->values[node->in[0]].dtype, &y);
}

static wf_status reshape_gradient(wfi_autodiff *ad, const wfi_node *node) {
    wf_shape x = wfi_in_shape(wfi_graph_of(ad), node, 0);
    return wfi_pass(ad, node->in[0], &wfi_op_reshape, NULL, &x, 1,
                    (int32_t[]){wfi_gradient_of(ad, node->out[0])});
}

static double no_flops(const wf_graph *g, const wfi_node *node) {
    (void)g, (void)node;
    return 0;
}

static void reshape_reference(const wfi_call *call) {
    const wfi_operand *x = &call->in[0];
    size_t bytes = (size_t)wf_shape_n_elem(&x->shape) * wf_dtype_bytes(x->dtype);
    if (call->out[0].data != x->data) memcpy(call->out[0].data, x->data, bytes);
}

const wfi_op wfi_op_reshape = {
    .name = "reshape",
    .flags = WFI_OP_ALIAS,
    .check = reshape_check,
    .gradient = reshape_gradient,
    .flops = no_flops,
    .reference = reshape_reference,
};

wf_tensor wf_reshape(wf_tensor x, wf_shape shape) {
    return wfi_build(&wfi_op_reshape, NULL, &shape, 1, &x);
}

/* ---- reorder ---- */

static wf_status reorder_check(wf_graph *g, wfi_node *node) {
    WF_TRY(wfi_check_inputs(g, node, "f"));
    WF_TRY(wfi_check_image(g, node, 0));
    wf_shape x = wfi_in_shape(g, node, 0);
    return wfi_node_output(g, node, WF_F32, &x);
}

static void reorder_reference(const wfi_call *call) {
    const wfi_operand *x = &call->in[0], *y = &call->out[0];
    const int64_t *dim = x->shape.dim;
    for (int64_t n = 0; n < dim[0]; n++)
        for (int64_t c = 0; c < dim[1]; c++)
            for (int64_t h = 0; h < dim[2]; h++)
                for (int64_t w = 0; w < dim[3]; w++)
                    ((float *)y->data)[wfi_image_at(y, n, c, h, w)] =
                        ((const float *)x->data)[wfi_image_at(x, n, c, h, w)];
}

/* Inserted by the layout pass, after differentiation: it needs no gradient. */
const wfi_op wfi_op_reorder = {
    .name = "reorder",
    .check = reorder_check,
    .flops = no_flops,
    .reference = reorder_reference,
};

/* ---- transpose ---- */

static wf_status transpose_check(wf_graph *g, wfi_node *node) {
    WF_TRY(wfi_check_inputs(g, node, "f"));
    wf_shape x = wfi_in_shape(g, node, 0), y = x;
    int a = node->attr.transpose.dim_a, b = node->attr.transpose.dim_b;
    if (a < 0 || b < 0 || a >= x.n_dims || b >= x.n_dims)
        return wfi_op_fail(g, node, WF_SHAPE, "%s has no dims %d and %d", wfi_show(&x).text, a, b);
    y.dim[a] = x.dim[b];
    y.dim[b] = x.dim[a];
    return wfi_node_output(g, node, WF_F32, &y);
}

static wf_status transpose_gradient(wfi_autodiff *ad, const wfi_node *node) {
    return wfi_pass(ad, node->in[0], &wfi_op_transpose, &node->attr, NULL, 1,
                    (int32_t[]){wfi_gradient_of(ad, node->out[0])});
}

static void transpose_reference(const wfi_call *call) {
    const wf_shape *shape = &call->out[0].shape, *from = &call->in[0].shape;
    int64_t step[WF_MAX_DIMS], at[WF_MAX_DIMS] = {0}, run = 1;
    for (int d = from->n_dims - 1; d >= 0; d--) {
        step[d] = run;
        run *= from->dim[d];
    }
    int a = call->attr->transpose.dim_a, b = call->attr->transpose.dim_b;
    int64_t kept = step[a];
    step[a] = step[b];
    step[b] = kept;
    const float *x = call->in[0].data;
    float *y = call->out[0].data;
    int64_t n = wf_shape_n_elem(shape), source = 0;
    for (int64_t i = 0; i < n; i++) {
        y[i] = x[source];
        for (int d = shape->n_dims - 1; d >= 0; d--) { /* the next index, last dim first */
            source += step[d];
            if (++at[d] < shape->dim[d]) break;
            source -= step[d] * at[d];
            at[d] = 0;
        }
    }
}

const wfi_op wfi_op_transpose = {
    .name = "transpose",
    .check = transpose_check,
    .gradient = transpose_gradient,
    .flops = no_flops,
    .reference = transpose_reference,
};

wf_tensor wf_transpose(wf_tensor x, int dim_a, int dim_b) {
    wfi_attr attr = {.transpose = {dim_a, dim_b}};
    return wfi_build(&wfi_op_transpose, &attr, NULL, 1, &x);
}

/* ---- concat and slice: rows of `inner` elements ---- */

static int64_t inner_of(const wf_shape *shape, int dim) {
    int64_t n = 1;
    for (int d = dim + 1; d < shape->n_dims; d++) n *= shape->dim[d];
    return n;
}

static int64_t outer_of(const wf_shape *shape, int dim) {
    int64_t n = 1;
    for (int d = 0; d < dim; d++) n *= shape->dim[d];
    return n;
}

static wf_status concat_check(wf_graph *g, wfi_node *node) {
    static const char kinds[WFI_MAX_INPUTS + 1] = "ffffffff";
    if (node->n_in < 1) return wfi_op_fail(g, node, WF_INVALID_ARG, "no parts");
    WF_TRY(wfi_check_inputs(g, node, kinds + WFI_MAX_INPUTS - node->n_in));
    wf_shape y = wfi_in_shape(g, node, 0);
    int dim = node->attr.slice.dim;
    for (int i = 0; i < node->n_in; i++) {
        wf_shape part = wfi_in_shape(g, node, i);
        bool fits = dim >= 0 && dim < y.n_dims && part.n_dims == y.n_dims;
        for (int d = 0; d < y.n_dims && fits; d++) fits = d == dim || part.dim[d] == y.dim[d];
        if (!fits)
            return wfi_op_fail(g, node, WF_SHAPE, "%s does not continue %s along dim %d",
                               wfi_show(&part).text, wfi_show(&y).text, dim);
        if (i) y.dim[dim] += part.dim[dim];
    }
    return wfi_node_output(g, node, WF_F32, &y);
}

static wf_status concat_gradient(wfi_autodiff *ad, const wfi_node *node) {
    int32_t dy = wfi_gradient_of(ad, node->out[0]);
    wfi_attr attr = node->attr;
    attr.slice.start = 0;
    for (int i = 0; i < node->n_in; i++) {
        wf_shape part = wfi_in_shape(wfi_graph_of(ad), node, i);
        WF_TRY(wfi_pass(ad, node->in[i], &wfi_op_slice, &attr, &part, 1, &dy));
        attr.slice.start += part.dim[attr.slice.dim];
    }
    return WF_OK;
}

static void concat_reference(const wfi_call *call) {
    int dim = call->attr->slice.dim;
    const wf_shape *shape = &call->out[0].shape;
    int64_t inner = inner_of(shape, dim), outer = outer_of(shape, dim), start = 0;
    for (int i = 0; i < call->n_in; i++) {
        int64_t n = call->in[i].shape.dim[dim];
        for (int64_t o = 0; o < outer; o++)
            memcpy((float *)call->out[0].data + (o * shape->dim[dim] + start) * inner,
                   (const float *)call->in[i].data + o * n * inner,
                   (size_t)(n * inner) * sizeof(float));
        start += n;
    }
}

const wfi_op wfi_op_concat = {
    .name = "concat",
    .check = concat_check,
    .gradient = concat_gradient,
    .flops = no_flops,
    .reference = concat_reference,
};

wf_tensor wf_concat(const wf_tensor *parts, int n_parts, int dim) {
    wfi_attr attr = {.slice = {dim, 0}};
    if (n_parts > WFI_MAX_INPUTS) {
        wfi_graph_fail(parts[0].graph, WF_INVALID_ARG, "concat: %d parts, it takes at most %d",
                       n_parts, WFI_MAX_INPUTS);
        return wfi_inert(parts[0].graph);
    }
    return wfi_build(&wfi_op_concat, &attr, NULL, n_parts, parts);
}

/* node->shape is the slice's whole shape. */
static wf_status slice_check(wf_graph *g, wfi_node *node) {
    WF_TRY(wfi_check_inputs(g, node, "f"));
    wf_shape x = wfi_in_shape(g, node, 0);
    int dim = node->attr.slice.dim;
    int64_t start = node->attr.slice.start;
    int64_t length = dim >= 0 && dim < node->shape.n_dims ? node->shape.dim[dim] : -1;
    if (dim < 0 || dim >= x.n_dims || start < 0 || length < 0 || start > x.dim[dim] - length)
        return wfi_op_fail(g, node, WF_SHAPE, "%lld elements from %lld on along dim %d of %s",
                           (long long)length, (long long)start, dim, wfi_show(&x).text);
    return wfi_node_output(g, node, WF_F32, &node->shape);
}

static wf_status slice_gradient(wfi_autodiff *ad, const wfi_node *node) {
    wf_shape x = wfi_in_shape(wfi_graph_of(ad), node, 0);
    return wfi_pass(ad, node->in[0], &wfi_op_slice_backward, &node->attr, &x, 1,
                    (int32_t[]){wfi_gradient_of(ad, node->out[0])});
}

static void slice_reference(const wfi_call *call) {
    int dim = call->attr->slice.dim;
    const wf_shape *x = &call->in[0].shape, *y = &call->out[0].shape;
    int64_t inner = inner_of(x, dim), outer = outer_of(x, dim), n = y->dim[dim];
    for (int64_t o = 0; o < outer; o++)
        memcpy((float *)call->out[0].data + o * n * inner,
               (const float *)call->in[0].data +
                   (o * x->dim[dim] + call->attr->slice.start) * inner,
               (size_t)(n * inner) * sizeof(float));
}

const wfi_op wfi_op_slice = {
    .name = "slice",
    .check = slice_check,
    .gradient = slice_gradient,
    .flops = no_flops,
    .reference = slice_reference,
};

static wf_status slice_backward_check(wf_graph *g, wfi_node *node) {
    WF_TRY(wfi_check_inputs(g, node, "f"));
    return wfi_node_output(g, node, WF_F32, &node->shape);
}

static void slice_backward_reference(const wfi_call *call) {
    int dim = call->attr->slice.dim;
    const wf_shape *dx = &call->out[0].shape, *dy = &call->in[0].shape;
    int64_t inner = inner_of(dx, dim), outer = outer_of(dx, dim), n = dy->dim[dim];
    memset(call->out[0].data, 0, (size_t)wf_shape_n_elem(dx) * sizeof(float));
    for (int64_t o = 0; o < outer; o++)
        memcpy((float *)call->out[0].data + (o * dx->dim[dim] + call->attr->slice.start) * inner,
               (const float *)call->in[0].data + o * n * inner,
               (size_t)(n * inner) * sizeof(float));
}

const wfi_op wfi_op_slice_backward = {
    .name = "slice_backward",
    .check = slice_backward_check,
    .flops = no_flops,
    .reference = slice_backward_reference,
};

wf_tensor wf_slice(wf_tensor x, int dim, int64_t start, int64_t length) {
    wfi_attr attr = {.slice = {dim, start}};
    wf_shape shape = wf_tensor_shape(x);
    if (dim >= 0 && dim < shape.n_dims) shape.dim[dim] = length;
    return wfi_build(&wfi_op_slice, &attr, &shape, 1, &x);
}

void wf_split(wf_tensor x, int dim, int n_parts, wf_tensor *parts_out) {
    wf_shape shape = wf_tensor_shape(x);
    for (int i = 0; i < n_parts; i++) parts_out[i] = wfi_inert(x.graph);
    if (x.id < 0) return;
    if (dim < 0 || dim >= shape.n_dims || n_parts < 1 || shape.dim[dim] % n_parts) {
        wfi_graph_fail(x.graph, WF_SHAPE, "split: %s does not divide into %d parts along dim %d",
                       wfi_show(&shape).text, n_parts, dim);
        return;
    }
    int64_t length = shape.dim[dim] / n_parts;
    for (int i = 0; i < n_parts; i++) parts_out[i] = wf_slice(x, dim, i * length, length);
}
