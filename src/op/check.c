#include "op/check.h"

#include <stdio.h>

wfi_shown wfi_show(const wf_shape *shape) {
    wfi_shown shown;
    wfi_shape_text(shape, shown.text);
    return shown;
}

wf_status wfi_op_fail(const wf_graph *g, const wfi_node *node, wf_status status, const char *format,
                      ...) {
    char sentence[600];
    va_list args;
    va_start(args, format);
    vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    return wfi_fail(g->ctx, status, "%s: %s", node->op->name, sentence);
}

wf_status wfi_check_inputs(const wf_graph *g, const wfi_node *node, const char *kinds) {
    int i = 0;
    for (; *kinds; kinds++, i++) {
        char kind = *kinds;
        bool may_be_absent = kinds[1] == '?';
        kinds += may_be_absent;
        if (i >= node->n_in || node->in[i] < 0) {
            if (may_be_absent) continue;
            return wfi_op_fail(g, node, WF_INVALID_ARG, "input %d is not a tensor of this graph",
                               i);
        }
        const wfi_value *value = wfi_value_at(g, node->in[i]);
        wf_dtype wanted = kind == 'i' ? WF_I32 : WF_F32;
        if (value->dtype != wanted)
            return wfi_op_fail(g, node, WF_SHAPE, "input %d %s is %s, but %s is expected", i,
                               wfi_show(&value->shape).text, wf_dtype_name(value->dtype),
                               wf_dtype_name(wanted));
    }
    if (node->n_in > i)
        return wfi_op_fail(g, node, WF_INVALID_ARG, "%d inputs, but it takes %d", node->n_in, i);
    return WF_OK;
}

wf_status wfi_check_elementwise(wf_graph *g, wfi_node *node) {
    static const char kinds[WFI_MAX_INPUTS + 1] = "ffffffff";
    WF_TRY(wfi_check_inputs(g, node, kinds + WFI_MAX_INPUTS - node->n_in));
    wf_shape shape = wfi_in_shape(g, node, 0);
    for (int i = 1; i < node->n_in; i++) {
        wf_shape other = wfi_in_shape(g, node, i);
        if (!wfi_shape_equal(&shape, &other))
            return wfi_op_fail(g, node, WF_SHAPE, "the shapes %s and %s differ",
                               wfi_show(&shape).text, wfi_show(&other).text);
    }
    return wfi_node_output(g, node, WF_F32, &shape);
}

wf_status wfi_check_rowwise(wf_graph *g, wfi_node *node) {
    WF_TRY(wfi_check_elementwise(g, node));
    wf_shape shape = wfi_in_shape(g, node, 0);
    if (shape.n_dims < 1 || wfi_last_dim(&shape) == 0)
        return wfi_op_fail(g, node, WF_SHAPE, "works along the last dim, which %s does not have",
                           wfi_show(&shape).text);
    return WF_OK;
}

wf_status wfi_check_image(const wf_graph *g, const wfi_node *node, int i) {
    wf_shape shape = wfi_in_shape(g, node, i);
    if (shape.n_dims != 4)
        return wfi_op_fail(g, node, WF_SHAPE, "input %d %s is not an image [n, c, h, w]", i,
                           wfi_show(&shape).text);
    if (wf_shape_n_elem(&shape) == 0)
        return wfi_op_fail(g, node, WF_SHAPE, "input %d %s is empty", i, wfi_show(&shape).text);
    return WF_OK;
}

wf_status wfi_check_shape(const wf_graph *g, const wfi_node *node, int i, const char *name,
                          wf_shape want) {
    wf_shape shape = wfi_in_shape(g, node, i);
    if (wfi_shape_equal(&shape, &want)) return WF_OK;
    return wfi_op_fail(g, node, WF_SHAPE, "%s is %s, not %s", name, wfi_show(&shape).text,
                       wfi_show(&want).text);
}

wf_status wfi_check_bias(const wf_graph *g, const wfi_node *node, int64_t n_out) {
    if (node->in[2] < 0) return WF_OK;
    wf_shape bias = wfi_in_shape(g, node, 2), weight = wfi_in_shape(g, node, 1);
    if (bias.n_dims == 1 && bias.dim[0] == n_out) return WF_OK;
    return wfi_op_fail(g, node, WF_SHAPE, "the bias %s is not one value an output of %s",
                       wfi_show(&bias).text, wfi_show(&weight).text);
}

wf_status wfi_pass(wfi_autodiff *ad, int32_t v, const wfi_op *op, const wfi_attr *attr,
                   const wf_shape *shape, int n_in, const int32_t *in) {
    if (!wfi_wants_gradient(ad, v)) return WF_OK;
    const wfi_node *node = wfi_backward_node(ad, op, attr, shape, n_in, in);
    return node ? wfi_contribute(ad, v, node->out[0]) : wfi_graph_of(ad)->status;
}

wf_status wfi_pass_weighted(wfi_autodiff *ad, const wfi_node *node, const wfi_op *data,
                            const wfi_op *weights, const wfi_attr *attr) {
    int32_t x = node->in[0], weight = node->in[1], bias = node->in[2];
    int32_t dy = wfi_gradient_of(ad, node->out[0]);
    wf_shape x_shape = wfi_in_shape(wfi_graph_of(ad), node, 0),
             weight_shape = wfi_in_shape(wfi_graph_of(ad), node, 1);
    WF_TRY(wfi_pass(ad, x, data, &node->attr, &x_shape, 2, (int32_t[]){dy, weight}));
    if (!wfi_wants_gradient(ad, weight) && !wfi_wants_gradient(ad, bias)) return WF_OK;
    const wfi_node *back =
        wfi_backward_node(ad, weights, attr, &weight_shape, 2, (int32_t[]){dy, x});
    if (!back) return wfi_graph_of(ad)->status;
    int32_t dweight = back->out[0], dbias = back->out[1];
    WF_TRY(wfi_contribute(ad, weight, dweight));
    return wfi_contribute(ad, bias, dbias);
}

wf_tensor wfi_build(const wfi_op *op, const wfi_attr *attr, const wf_shape *shape, int n_in,
                    const wf_tensor *in) {
    wf_graph *g = in[0].graph;
    if (!g || in[0].id < 0) return wfi_inert(g);
    return wfi_graph_op(g, op, attr, shape, n_in, in);
}

double wfi_flops_of_output(const wf_graph *g, const wfi_node *node, double factor) {
    return factor * (double)wf_shape_n_elem(&g->values[node->out[0]].shape);
}

/* ---- placement that many ops share ---- */

wfi_op_part wfi_op_part_of(const wf_shape *shape, int dim, int n_blocks, int64_t number,
                           int64_t n) {
    int64_t length = shape->dim[dim] / n_blocks;
    wfi_op_part part = {.number = number, .n = n, .length = length, .inner = 1};
    part.begin = wfi_part_begin(length, number, n);
    part.end = wfi_part_begin(length, number + 1, n);
    for (int d = dim + 1; d < shape->n_dims; d++) part.inner *= shape->dim[d];
    return part;
}

const wfi_op_cut wfi_place_elements[] = {
    {.name = "elements", .in = {WFI_ANY_DIM, WFI_ANY_DIM}, .out = {WFI_ANY_DIM}}, {0}};

static bool has_rows(const wf_graph *g, const wfi_node *node) {
    return g->values[node->in[0]].shape.n_dims > 1;
}

const wfi_op_cut wfi_place_rows[] = {
    {.name = "rows", .in = {1}, .out = {1, 1, 1}, .applies = has_rows, .is_even = true}, {0}};

const wfi_op_cut wfi_place_images[] = {
    {.name = "samples", .in = {1}, .out = {1}}, {.name = "channels", .in = {2}, .out = {2}}, {0}};

wf_status wfi_check_normalized(const wf_graph *g, const wfi_node *node, int along) {
    wf_shape shape = wfi_in_shape(g, node, 0), vector = wfi_in_shape(g, node, along);
    if (shape.n_dims < 1 || wfi_last_dim(&shape) == 0)
        return wfi_op_fail(g, node, WF_SHAPE, "works along the last dim, which %s does not have",
                           wfi_show(&shape).text);
    if (vector.n_dims != 1 || vector.dim[0] != wfi_last_dim(&shape))
        return wfi_op_fail(g, node, WF_SHAPE, "input %d %s is not the last dim of x %s", along,
                           wfi_show(&vector).text, wfi_show(&shape).text);
    if (!(node->attr.norm.eps >= 0))
        return wfi_op_fail(g, node, WF_INVALID_ARG, "eps is %g", node->attr.norm.eps);
    return WF_OK;
}
