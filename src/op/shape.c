/* Ops that only move elements.
 *
 * reshape(x) -> y            the same bytes; node->shape, one dim may be -1
 * reorder(x) -> y            attr.reorder.to, a layout
 * cast(x) -> y               of another type
 * transpose(x) -> y          attr.transpose, two dims change places
 * concat(x...) -> y          along attr.slice.dim
 * slice(x) -> y              node->shape from attr.slice.start along attr.slice.dim
 * slice_backward(dy) -> dx   node->shape is x's; zero elsewhere */
#include "op/check.h"

#include <string.h>

/* ---- reshape ---- */

static wf_status reshape_check(wf_graph *g, wfi_node *node) {
    WF_TRY(wfi_check_inputs(g, node, g->values[node->in[0]].dtype == WF_I32 ? "i" : "f"));
    wf_shape x = wfi_in_shape(g, node, 0), *y = &node->shape, wanted = node->shape;
    int64_t n_known = 1;
    int n_free = 0, free_dim = 0;
    bool legal = y->n_dims >= 0 && y->n_dims <= WF_MAX_DIMS;
    for (int d = 0; legal && d < y->n_dims; d++) {
        if (y->dim[d] == -1)
            n_free++, free_dim = d;
        else
            legal = y->dim[d] >= 0 && !__builtin_mul_overflow(n_known, y->dim[d], &n_known);
    }
    int64_t n = wf_shape_n_elem(&x);
    if (legal && n_free == 1 && n_known > 0 && n % n_known == 0)
        y->dim[free_dim] = n / n_known;
    else
        legal = legal && n_free == 0 && n_known == n;
    if (!legal)
        return wfi_op_fail(
            g, node, WF_SHAPE, "%s and %s have different numbers of elements", wfi_show(&x).text,
            wanted.n_dims >= 0 && wanted.n_dims <= WF_MAX_DIMS ? wfi_show(&wanted).text
                                                               : "a shape with too many dims");
    return wfi_node_output(g, node, g->values[node->in[0]].dtype, &node->shape);
}

static size_t bytes_of(const wfi_operand *operand) {
    return (size_t)wf_shape_n_elem(&operand->shape) * wf_dtype_bytes(operand->dtype);
}

static void reshape_reference(const wfi_call *call) {
    const wfi_operand *x = &call->in[0], *y = &call->out[0];
    if (x->data != y->data && bytes_of(x)) memcpy(y->data, x->data, bytes_of(x));
}

static const wfi_op_sample reshape_samples[] = {
    {.n_in = 1, .in = {WFI_DIMS(2, 6)}, .shape = WFI_DIMS(3, 4)}, {0}};

const wfi_op wfi_op_reshape = {
    .name = "reshape",
    .flags = WFI_OP_ALIAS,
    .tolerance = 0,
    .check = reshape_check,
    .backward =
        (const wfi_op_backward[]){{.op = &wfi_op_reshape, .in = {WFI_DY}, .has_shape = true}, {0}},
    .work = {0, WFI_Y},
    .reference = reshape_reference,
    .samples = reshape_samples,
};

wf_tensor wf_reshape(wf_tensor x, wf_shape shape) {
    return wfi_build(&wfi_op_reshape, NULL, &shape, 1, &x);
}

/* ---- reorder ---- */

static wf_status reorder_check(wf_graph *g, wfi_node *node) {
    WF_TRY(wfi_check_inputs(g, node, "f"));
    WF_TRY(wfi_check_image(g, node, 0));
    wf_shape x = wfi_in_shape(g, node, 0);
    if (node->attr.reorder.to == WFI_C16 && x.dim[1] % 16)
        return wfi_op_fail(g, node, WF_SHAPE, "the channels of %s are not a multiple of 16",
                           wfi_show(&x).text);
    return wfi_node_output(g, node, WF_F32, &x);
}

static void reorder_reference(const wfi_call *call) {
    const wfi_operand *x = &call->in[0], *y = &call->out[0];
    const int64_t *dim = x->shape.dim;
    int64_t n_pixels = dim[2] * dim[3], from_step = wfi_pixel_step(x), to_step = wfi_pixel_step(y);
    for (int64_t n = 0; n < dim[0]; n++)
        for (int64_t c = 0; c < dim[1]; c++) {
            const float *from = wfi_plane(x, n, c);
            float *to = wfi_plane(y, n, c);
            for (int64_t i = 0; i < n_pixels; i++) to[i * to_step] = from[i * from_step];
        }
}

static const wfi_op_sample reorder_samples[] = {
    {.n_in = 1, .in = {WFI_DIMS(2, 16, 3, 2)}, .attr = {.reorder = {WFI_C16}}}, {0}};

/* Made by the layout pass, after differentiation: no gradient. */
const wfi_op wfi_op_reorder = {
    .name = "reorder",
    .flags = WFI_OP_IMAGE | WFI_OP_CHEAP,
    .tolerance = 0,
    .check = reorder_check,
    .work = {0, WFI_Y},
    .reference = reorder_reference,
    .samples = reorder_samples,
};

/* ---- cast ---- */

/* Plain C kernels see numbers of other types as F32, and round their outputs. */
static void cast_reference(const wfi_call *call) {
    size_t bytes = (size_t)wf_shape_n_elem(&call->out[0].shape) * sizeof(float);
    if (bytes) memmove(call->out[0].data, call->in[0].data, bytes);
}

static const wfi_op_sample cast_samples[] = {{.n_in = 1, .in = {WFI_DIMS(4, 6)}}, {0}};

/* Made by the cast pass, after differentiation: no gradient. */
const wfi_op wfi_op_cast = {
    .name = "cast",
    .flags = WFI_OP_ELEMENTWISE | WFI_OP_CHEAP,
    .tolerance = 0,
    .check = wfi_check_elementwise,
    .work = {0, WFI_Y},
    .reference = cast_reference,
    .samples = cast_samples,
    .place = wfi_place_elements,
};

/* ---- transpose ---- */

static wf_status transpose_check(wf_graph *g, wfi_node *node) {
    WF_TRY(wfi_check_inputs(g, node, "f"));
    wf_shape y = wfi_in_shape(g, node, 0);
    int a = node->attr.transpose.dim_a, b = node->attr.transpose.dim_b;
    if (a < 0 || b < 0 || a >= y.n_dims || b >= y.n_dims)
        return wfi_op_fail(g, node, WF_INVALID_ARG, "dims %d and %d of %s", a, b,
                           wfi_show(&y).text);
    int64_t kept = y.dim[a];
    y.dim[a] = y.dim[b];
    y.dim[b] = kept;
    return wfi_node_output(g, node, WF_F32, &y);
}

/* y [.., n[1], n[2], n[3], n[4]] of x [.., n[3], n[2], n[1], n[4]] */
static wfi_numbers transpose_numbers(const wfi_call *call) {
    const wf_shape *y = &call->out[0].shape;
    int a = call->attr->transpose.dim_a, b = call->attr->transpose.dim_b;
    int first = a < b ? a : b, second = a < b ? b : a;
    wfi_numbers own = wfi_element_numbers(y, y->dim[first]);
    own.n[2] = wfi_size_of(y, first + 1, second);
    own.n[3] = first == second ? 1 : y->dim[second];
    own.n[4] = wfi_size_of(y, second + 1, y->n_dims);
    return own;
}

static void transpose_reference(const wfi_call *call) {
    const wfi_numbers t = transpose_numbers(call);
    const int64_t *n = t.n, step = n[2] * n[1] * n[4], block = n[3] * step;
    const float *x = call->in[0].data;
    float *y = call->out[0].data;
    for (const float *end = x + n[0]; x < end; x += block)
        for (int64_t first = 0; first < n[1]; first++)
            for (int64_t between = 0; between < n[2]; between++) {
                const float *from = x + (between * n[1] + first) * n[4];
                for (int64_t second = 0; second < n[3]; second++, from += step)
                    for (int64_t e = 0; e < n[4]; e++) *y++ = from[e];
            }
}

static const wfi_op_sample transpose_samples[] = {
    {.n_in = 1, .in = {WFI_DIMS(2, 3, 5)}, .attr = {.transpose = {0, 2}}}, {0}};

const wfi_op wfi_op_transpose = {
    .name = "transpose",
    .flags = WFI_OP_CHEAP,
    .tolerance = 0,
    .check = transpose_check,
    .backward = (const wfi_op_backward[]){{.op = &wfi_op_transpose, .in = {WFI_DY}}, {0}},
    .work = {0, WFI_Y},
    .reference = transpose_reference,
    .numbers = transpose_numbers,
    .samples = transpose_samples,
};

wf_tensor wf_transpose(wf_tensor x, int dim_a, int dim_b) {
    wfi_attr attr = {.transpose = {dim_a, dim_b}};
    return wfi_build(&wfi_op_transpose, &attr, NULL, 1, &x);
}

/* ---- concat, slice ---- */

/* From [.., n[1], n[2]], places n[3] on along n[1], to [.., n[4], n[2]], places n[5] on; n[6] of
 * them: of a part and the whole, as many as the part has. */
static wfi_numbers along_numbers(const wf_shape *x, int64_t from, const wf_shape *y, int64_t to,
                                 int dim) {
    const wf_shape *part = x->dim[dim] < y->dim[dim] ? x : y;
    wfi_numbers own = wfi_element_numbers(part, x->dim[dim]);
    own.n[2] = wfi_size_of(x, dim + 1, x->n_dims);
    own.n[3] = from;
    own.n[4] = y->dim[dim];
    own.n[5] = to;
    own.n[6] = part->dim[dim];
    return own;
}

static wfi_numbers slice_numbers(const wfi_call *call) {
    return along_numbers(&call->in[0].shape, call->attr->slice.start, &call->out[0].shape, 0,
                         call->attr->slice.dim);
}

static wfi_numbers slice_backward_numbers(const wfi_call *call) {
    return along_numbers(&call->in[0].shape, 0, &call->out[0].shape, call->attr->slice.start,
                         call->attr->slice.dim);
}

static void copy_along(const float *x, float *y, const wfi_numbers *told) {
    const int64_t *n = told->n;
    size_t bytes = (size_t)(n[6] * n[2]) * sizeof *x;
    int64_t n_outer = bytes ? n[0] / (n[6] * n[2]) : 0;
    for (int64_t i = 0; i < n_outer; i++)
        memcpy(y + (i * n[4] + n[5]) * n[2], x + (i * n[1] + n[3]) * n[2], bytes);
}

/* Everything but `dim` is equal. */
static bool fits_along(const wf_shape *a, const wf_shape *b, int dim) {
    if (dim < 0 || dim >= a->n_dims || a->n_dims != b->n_dims) return false;
    for (int d = 0; d < a->n_dims; d++)
        if (d != dim && a->dim[d] != b->dim[d]) return false;
    return true;
}

static wf_status concat_check(wf_graph *g, wfi_node *node) {
    static const char kinds[WFI_MAX_INPUTS + 1] = "ffffffff";
    WF_TRY(wfi_check_inputs(g, node, kinds + WFI_MAX_INPUTS - node->n_in));
    int dim = node->attr.slice.dim;
    wf_shape y = wfi_in_shape(g, node, 0);
    for (int i = 0; i < node->n_in; i++) {
        wf_shape part = wfi_in_shape(g, node, i);
        if (!fits_along(&y, &part, dim))
            return wfi_op_fail(g, node, WF_SHAPE, "%s and %s along dim %d", wfi_show(&y).text,
                               wfi_show(&part).text, dim);
        if (i && __builtin_add_overflow(y.dim[dim], part.dim[dim], &y.dim[dim]))
            return wfi_op_fail(g, node, WF_SHAPE, "the result is far too large");
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
    int64_t start = 0;
    for (int i = 0; i < call->n_in; i++) {
        const wf_shape *part = &call->in[i].shape;
        const wfi_numbers told = along_numbers(part, 0, &call->out[0].shape, start, dim);
        copy_along(call->in[i].data, call->out[0].data, &told);
        start += part->dim[dim];
    }
}

/* A part of x from attr.slice.start on. */
static wf_status slice_check(wf_graph *g, wfi_node *node) {
    WF_TRY(wfi_check_inputs(g, node, "f"));
    wf_shape x = wfi_in_shape(g, node, 0), part = node->shape;
    int dim = node->attr.slice.dim;
    int64_t start = node->attr.slice.start;
    if (!fits_along(&x, &part, dim) || start < 0 || part.dim[dim] < 0 || start > x.dim[dim] ||
        part.dim[dim] > x.dim[dim] - start)
        return wfi_op_fail(g, node, WF_SHAPE, "%s from %lld along dim %d is not a part of %s",
                           wfi_show(&part).text, (long long)start, dim, wfi_show(&x).text);
    return wfi_node_output(g, node, WF_F32, &part);
}

static void slice_reference(const wfi_call *call) {
    const wfi_numbers told = slice_numbers(call);
    copy_along(call->in[0].data, call->out[0].data, &told);
}

static void slice_backward_reference(const wfi_call *call) {
    const wfi_numbers told = slice_backward_numbers(call);
    if (bytes_of(&call->out[0])) memset(call->out[0].data, 0, bytes_of(&call->out[0]));
    copy_along(call->in[0].data, call->out[0].data, &told);
}

static const wfi_op_sample concat_samples[] = {
    {.n_in = 2, .in = {WFI_DIMS(2, 3), WFI_DIMS(2, 4)}, .attr = {.slice = {1, 0}}}, {0}};

const wfi_op wfi_op_concat = {
    .name = "concat",
    .flags = WFI_OP_CHEAP,
    .tolerance = 0,
    .check = concat_check,
    .gradient = concat_gradient,
    .work = {0, WFI_Y},
    .reference = concat_reference,
    .samples = concat_samples,
};

static const wfi_op_sample slice_samples[] = {
    {.n_in = 1, .in = {WFI_DIMS(2, 7, 3)}, .attr = {.slice = {1, 2}}, .shape = WFI_DIMS(2, 3, 3)},
    {0}};

const wfi_op wfi_op_slice = {
    .name = "slice",
    .flags = WFI_OP_CHEAP,
    .tolerance = 0,
    .check = slice_check,
    .backward =
        (const wfi_op_backward[]){{.op = &wfi_op_slice_backward, .in = {WFI_DY}, .has_shape = true},
                                  {0}},
    .work = {0, WFI_Y},
    .reference = slice_reference,
    .numbers = slice_numbers,
    .samples = slice_samples,
};

static const wfi_op_sample slice_backward_samples[] = {
    {.n_in = 1, .in = {WFI_DIMS(2, 3, 5)}, .attr = {.slice = {2, 1}}, .shape = WFI_DIMS(2, 3, 7)},
    {0}};

static bool is_along_last(const wf_graph *g, const wfi_node *node) {
    return node->attr.slice.dim == g->values[node->in[0]].shape.n_dims - 1;
}

static bool divide_columns(wfi_attr *attr, const wfi_op_part *part) {
    attr->slice.start += part->begin;
    return true;
}

/* Each part writes its columns of the whole; the other columns are zero, so sums are exact. */
static const wfi_op_cut slice_backward_place[] = {{.name = "columns",
                                                   .in = {-1},
                                                   .out = {WFI_SUMMED},
                                                   .applies = is_along_last,
                                                   .divide = divide_columns},
                                                  {0}};

const wfi_op wfi_op_slice_backward = {
    .name = "slice_backward",
    .tolerance = 0,
    .makes = {WFI_OWN_SHAPE},
    .work = {0, WFI_Y},
    .reference = slice_backward_reference,
    .numbers = slice_backward_numbers,
    .samples = slice_backward_samples,
    .place = slice_backward_place,
};

wf_tensor wf_concat(const wf_tensor *parts, int n_parts, int dim) {
    if (n_parts < 1) return wfi_inert(NULL);
    wfi_attr attr = {.slice = {.dim = dim}};
    wf_tensor in[WFI_MAX_INPUTS], y = parts[0];
    for (int i = 1; i < n_parts;) { /* a node takes so many; more are a chain */
        int n = 0;
        in[n++] = y;
        while (n < WFI_MAX_INPUTS && i < n_parts) in[n++] = parts[i++];
        y = wfi_build(&wfi_op_concat, &attr, NULL, n, in);
    }
    return y;
}

wf_tensor wf_slice(wf_tensor x, int dim, int64_t start, int64_t length) {
    wfi_attr attr = {.slice = {dim, start}};
    wf_shape shape = wf_tensor_shape(x);
    if (dim >= 0 && dim < shape.n_dims) shape.dim[dim] = length;
    return wfi_build(&wfi_op_slice, &attr, &shape, 1, &x);
}

void wf_split(wf_tensor x, int dim, int n_parts, wf_tensor *parts_out) {
    wf_shape shape = wf_tensor_shape(x);
    bool legal = dim >= 0 && dim < shape.n_dims && n_parts > 0 && shape.dim[dim] % n_parts == 0;
    if (!legal && x.graph && x.id >= 0)
        wfi_graph_fail(x.graph, WF_SHAPE, "split: dim %d of %s into %d equal parts", dim,
                       wfi_show(&shape).text, n_parts);
    for (int i = 0; i < n_parts; i++) {
        int64_t length = legal ? shape.dim[dim] / n_parts : 0;
        parts_out[i] = legal ? wf_slice(x, dim, i * length, length) : wfi_inert(x.graph);
    }
}
