/* Convolutions of images; any layout.
 *
 * conv2d(x, weight, bias?) -> y
 * conv2d_backward_data(dy, weight) -> dx, node->shape is x's
 * conv2d_backward_weight(dy, x) -> dweight, dbias?, node->shape is weight's
 *
 * x [n, c, h, w], weight [out, c / groups, kh, kw], y [n, out, oh, ow]. */
#include "op/check.h"

#include <stdio.h>

/* ---- checks ---- */

/* The limits keep sums of extents far from overflow. */
static bool are_sane(const wfi_attr *attr) {
    const int64_t most = INT32_MAX;
    return attr->conv.stride >= 1 && attr->conv.stride <= most && attr->conv.pad >= 0 &&
           attr->conv.pad <= most && attr->conv.dilation >= 1 && attr->conv.dilation <= most &&
           attr->conv.groups >= 1;
}

/* The extent of y for `size` pixels, or -1 where the kernel does not fit. */
static int64_t out_size(const wfi_attr *attr, int64_t size, int64_t kernel) {
    int64_t room = size + 2 * attr->conv.pad - 1, dilation = attr->conv.dilation;
    if (kernel - 1 > room / dilation) return -1;
    return (room - (kernel - 1) * dilation) / attr->conv.stride + 1;
}

/* Everything but the bias; y's shape follows. */
static wf_status check_shapes(const wf_graph *g, const wfi_node *node, const wf_shape *x,
                              const wf_shape *weight, wf_shape *y_out) {
    const wfi_attr *attr = &node->attr;
    int64_t groups = attr->conv.groups;
    if (!are_sane(attr))
        return wfi_op_fail(g, node, WF_INVALID_ARG,
                           "stride %lld, pad %lld, groups %lld, dilation %lld: each must be at "
                           "least 1, the pad at least 0",
                           (long long)attr->conv.stride, (long long)attr->conv.pad,
                           (long long)groups, (long long)attr->conv.dilation);
    if (weight->n_dims != 4 || wf_shape_n_elem(weight) == 0)
        return wfi_op_fail(g, node, WF_SHAPE, "the weight %s is not [out, c / groups, kh, kw]",
                           wfi_show(weight).text);
    int64_t c = x->dim[1];
    if (c % groups || c / groups != weight->dim[1])
        return wfi_op_fail(g, node, WF_SHAPE,
                           "x %s has %lld channels, but the weight %s with %lld group%s expects "
                           "%lld",
                           wfi_show(x).text, (long long)c, wfi_show(weight).text, (long long)groups,
                           groups == 1 ? "" : "s", (long long)(weight->dim[1] * groups));
    if (weight->dim[0] % groups)
        return wfi_op_fail(g, node, WF_SHAPE, "%lld groups do not divide the outputs of weight %s",
                           (long long)groups, wfi_show(weight).text);
    int64_t oh = out_size(attr, x->dim[2], weight->dim[2]);
    int64_t ow = out_size(attr, x->dim[3], weight->dim[3]);
    char apart[40] = "";
    if (attr->conv.dilation > 1)
        snprintf(apart, sizeof apart, ", %lld apart,", (long long)attr->conv.dilation);
    if (oh < 1 || ow < 1)
        return wfi_op_fail(
            g, node, WF_SHAPE, "the kernel of weight %s%s is larger than x %s with pad %lld",
            wfi_show(weight).text, apart, wfi_show(x).text, (long long)attr->conv.pad);
    *y_out = WF_SHAPE(x->dim[0], weight->dim[0], oh, ow);
    return WF_OK;
}

static wf_status conv2d_check(wf_graph *g, wfi_node *node) {
    WF_TRY(wfi_check_inputs(g, node, "fff?"));
    WF_TRY(wfi_check_image(g, node, 0));
    wf_shape x = wfi_in_shape(g, node, 0), weight = wfi_in_shape(g, node, 1), y;
    WF_TRY(check_shapes(g, node, &x, &weight, &y));
    WF_TRY(wfi_check_bias(g, node, weight.dim[0]));
    return wfi_node_output(g, node, WF_F32, &y);
}

static wf_status conv2d_backward_weight_check(wf_graph *g, wfi_node *node) {
    WF_TRY(wfi_node_output(g, node, WF_F32, &node->shape));
    if (!node->attr.conv.bias) return WF_OK;
    return wfi_node_output(g, node, WF_F32, &WF_SHAPE(node->shape.dim[0]));
}

/* The input must have the shape of a convolution's output for the node's shape and the weight. */
static wf_status conv_transpose2d_check(wf_graph *g, wfi_node *node) {
    WF_TRY(wfi_check_inputs(g, node, "ff"));
    wf_shape dy = wfi_in_shape(g, node, 0), weight = wfi_in_shape(g, node, 1), y;
    if (node->shape.n_dims != 4)
        return wfi_op_fail(g, node, WF_SHAPE, "x %s is not an image", wfi_show(&node->shape).text);
    WF_TRY(check_shapes(g, node, &node->shape, &weight, &y));
    if (!wfi_shape_equal(&dy, &y))
        return wfi_op_fail(g, node, WF_SHAPE, "dy is %s, but y is %s", wfi_show(&dy).text,
                           wfi_show(&y).text);
    return wfi_node_output(g, node, WF_F32, &node->shape);
}

/* ---- gradient, work ---- */

static wf_status conv2d_gradient(wfi_autodiff *ad, const wfi_node *node) {
    wfi_attr attr = node->attr;
    attr.conv.bias = node->in[2] >= 0;
    return wfi_pass_weighted(ad, node, &wfi_op_conv2d_backward_data, &wfi_op_conv2d_backward_weight,
                             &attr);
}

static double flops_of(const wf_shape *weight, const wf_shape *y) {
    double window = (double)(weight->dim[1] * weight->dim[2] * weight->dim[3]);
    return 2 * window * (double)wf_shape_n_elem(y);
}

static double conv2d_flops(const wf_graph *g, const wfi_node *node) {
    wf_shape weight = wfi_in_shape(g, node, 1), y = wfi_out_shape(g, node, 0);
    return flops_of(&weight, &y);
}

static double conv2d_backward_data_flops(const wf_graph *g, const wfi_node *node) {
    wf_shape weight = wfi_in_shape(g, node, 1), y = wfi_in_shape(g, node, 0);
    return flops_of(&weight, &y);
}

static double conv2d_backward_weight_flops(const wf_graph *g, const wfi_node *node) {
    wf_shape y = wfi_in_shape(g, node, 0);
    return flops_of(&node->shape, &y);
}

/* ---- references ---- */

/* Places [first, end) along one extent of y from which the kernel's element `k` sees
 * a pixel that is there: place * stride + offset in [0, size). */
typedef struct reach {
    int64_t first, end, offset;
} reach;

static reach reach_of(const wfi_attr *attr, int64_t k, int64_t size, int64_t n_out) {
    int64_t stride = attr->conv.stride, offset = k * attr->conv.dilation - attr->conv.pad;
    int64_t last = size - 1 - offset;
    reach r = {offset < 0 ? (-offset + stride - 1) / stride : 0, 0, offset};
    r.end = last < 0 ? 0 : wfi_min_i64(n_out, last / stride + 1);
    return r;
}

typedef struct row { /* of an image, pixels `step` elements apart */
    float *data;
    int64_t step;
} row;

static row row_of(const wfi_operand *image, int64_t n, int64_t c, int64_t h) {
    return (row){(float *)image->data + wfi_image_at(image, n, c, h, 0), wfi_pixel_step(image)};
}

static void store(row to, int64_t n_pixels, const double *sum) {
    for (int64_t i = 0; i < n_pixels; i++) to.data[i * to.step] = (float)sum[i];
}

static const float *kernel_row(const wfi_operand *weight, int64_t out, int64_t in, int64_t ky) {
    const int64_t *dim = weight->shape.dim;
    return (float *)weight->data + ((out * dim[1] + in) * dim[2] + ky) * dim[3];
}

/* One row of y: its sums run over channels, then the kernel's rows and columns. */
static void conv2d_row(const wfi_call *call, int64_t n, int64_t out, int64_t oy, double *sum) {
    const wfi_operand *x = &call->in[0], *weight = &call->in[1], *y = &call->out[0];
    const int64_t *w_dim = weight->shape.dim;
    int64_t h = x->shape.dim[2], w = x->shape.dim[3], ow = y->shape.dim[3];
    int64_t stride = call->attr->conv.stride;
    int64_t first_in = out / (w_dim[0] / call->attr->conv.groups) * w_dim[1];
    for (int64_t i = 0; i < ow; i++) sum[i] = 0;
    for (int64_t in = 0; in < w_dim[1]; in++)
        for (int64_t ky = 0; ky < w_dim[2]; ky++) {
            int64_t iy = oy * stride + ky * call->attr->conv.dilation - call->attr->conv.pad;
            if (iy < 0 || iy >= h) continue;
            row from = row_of(x, n, first_in + in, iy);
            for (int64_t kx = 0; kx < w_dim[3]; kx++) {
                double factor = kernel_row(weight, out, in, ky)[kx];
                reach r = reach_of(call->attr, kx, w, ow);
                for (int64_t ox = r.first; ox < r.end; ox++)
                    sum[ox] += factor * from.data[(ox * stride + r.offset) * from.step];
            }
        }
}

static void conv2d_reference(const wfi_call *call) {
    const wfi_operand *y = &call->out[0];
    const int64_t *dim = y->shape.dim;
    const float *bias = call->n_in > 2 ? call->in[2].data : NULL;
    double *sum = call->scratch; /* [ow] */
    for (int64_t n = 0; n < dim[0]; n++)
        for (int64_t out = 0; out < dim[1]; out++)
            for (int64_t oy = 0; oy < dim[2]; oy++) {
                conv2d_row(call, n, out, oy, sum);
                for (int64_t i = 0; i < dim[3] && bias; i++) sum[i] += bias[out];
                store(row_of(y, n, out, oy), dim[3], sum);
            }
}

/* One row of the first output's. */
static size_t row_scratch_bytes(const wf_graph *g, const wfi_node *node) {
    return (size_t)wfi_out_shape(g, node, 0).dim[3] * sizeof(double);
}

/* One row of dx: its sums run over outputs, then the kernel's rows and columns. */
static void backward_data_row(const wfi_call *call, int64_t n, int64_t c, int64_t iy, double *sum) {
    const wfi_operand *dy = &call->in[0], *weight = &call->in[1], *dx = &call->out[0];
    const int64_t *w_dim = weight->shape.dim, *y_dim = dy->shape.dim;
    int64_t w = dx->shape.dim[3], stride = call->attr->conv.stride;
    int64_t n_outs = w_dim[0] / call->attr->conv.groups, first_out = c / w_dim[1] * n_outs;
    for (int64_t i = 0; i < w; i++) sum[i] = 0;
    for (int64_t out = first_out; out < first_out + n_outs; out++)
        for (int64_t ky = 0; ky < w_dim[2]; ky++) {
            int64_t place = iy + call->attr->conv.pad - ky * call->attr->conv.dilation;
            if (place < 0 || place % stride || place / stride >= y_dim[2]) continue;
            row from = row_of(dy, n, out, place / stride);
            for (int64_t kx = 0; kx < w_dim[3]; kx++) {
                double factor = kernel_row(weight, out, c % w_dim[1], ky)[kx];
                reach r = reach_of(call->attr, kx, w, y_dim[3]);
                for (int64_t ox = r.first; ox < r.end; ox++)
                    sum[ox * stride + r.offset] += factor * from.data[ox * from.step];
            }
        }
}

static void conv2d_backward_data_reference(const wfi_call *call) {
    const wfi_operand *dx = &call->out[0];
    const int64_t *dim = dx->shape.dim;
    double *sum = call->scratch; /* [w] */
    for (int64_t n = 0; n < dim[0]; n++)
        for (int64_t c = 0; c < dim[1]; c++)
            for (int64_t iy = 0; iy < dim[2]; iy++) {
                backward_data_row(call, n, c, iy, sum);
                store(row_of(dx, n, c, iy), dim[3], sum);
            }
}

/* One element of dweight: the sum runs over samples, rows, columns of y. */
static double backward_weight_sum(const wfi_call *call, int64_t out, int64_t c, int64_t ky,
                                  int64_t kx) {
    const wfi_operand *dy = &call->in[0], *x = &call->in[1];
    const int64_t *x_dim = x->shape.dim, *y_dim = dy->shape.dim;
    reach rows = reach_of(call->attr, ky, x_dim[2], y_dim[2]);
    reach cols = reach_of(call->attr, kx, x_dim[3], y_dim[3]);
    int64_t stride = call->attr->conv.stride;
    double sum = 0;
    for (int64_t n = 0; n < y_dim[0]; n++)
        for (int64_t oy = rows.first; oy < rows.end; oy++) {
            row above = row_of(dy, n, out, oy);
            row below = row_of(x, n, c, oy * stride + rows.offset);
            for (int64_t ox = cols.first; ox < cols.end; ox++)
                sum += (double)above.data[ox * above.step] *
                       below.data[(ox * stride + cols.offset) * below.step];
        }
    return sum;
}

static double channel_sum(const wfi_operand *image, int64_t c) {
    const int64_t *dim = image->shape.dim;
    double sum = 0;
    for (int64_t n = 0; n < dim[0]; n++) {
        const float *plane = wfi_plane(image, n, c);
        for (int64_t i = 0; i < dim[2] * dim[3]; i++) sum += plane[i * wfi_pixel_step(image)];
    }
    return sum;
}

static void conv2d_backward_weight_reference(const wfi_call *call) {
    const wfi_operand *dweight = &call->out[0];
    const int64_t *dim = dweight->shape.dim;
    int64_t outs_per_group = dim[0] / call->attr->conv.groups;
    float *to = dweight->data;
    for (int64_t out = 0; out < dim[0]; out++)
        for (int64_t in = 0; in < dim[1]; in++)
            for (int64_t ky = 0; ky < dim[2]; ky++)
                for (int64_t kx = 0; kx < dim[3]; kx++)
                    *to++ = (float)backward_weight_sum(call, out,
                                                       out / outs_per_group * dim[1] + in, ky, kx);
    if (call->n_out < 2) return;
    float *dbias = call->out[1].data;
    for (int64_t out = 0; out < dim[0]; out++) dbias[out] = (float)channel_sum(&call->in[0], out);
}

static bool has_one_group(const wf_graph *g, const wfi_node *node) {
    (void)g;
    return node->attr.conv.groups == 1;
}
/* A bias would be added once a part. */
static bool is_plain(const wf_graph *g, const wfi_node *node) {
    return has_one_group(g, node) && node->n_in == 2;
}

static const wfi_op_sample conv2d_samples[] = {
    {.n_in = 3,
     .in = {WFI_DIMS(2, 4, 5, 3), WFI_DIMS(6, 4, 3, 3), WFI_DIMS(6)},
     .attr = {.conv = {1, 1, 1, 1, 0}}},
    {.n_in = 2,
     .in = {WFI_DIMS(2, 4, 7, 5), WFI_DIMS(6, 2, 3, 2)},
     .attr = {.conv = {2, 1, 2, 1, 0}}},
    {.n_in = 2,
     .in = {WFI_DIMS(2, 4, 5, 3), WFI_DIMS(6, 4, 3, 3)},
     .attr = {.conv = {1, 0, 1, 1, 0}}},
    {.n_in = 2,
     .in = {WFI_DIMS(2, 4, 8, 7), WFI_DIMS(6, 4, 2, 3)},
     .attr = {.conv = {2, 2, 1, 3, 0}}},
    {0}};

static const wfi_op_cut conv2d_place[] = {
    {.name = "samples", .in = {1}, .out = {1}},
    {.name = "columns", .in = {WFI_WHOLE, 1, 1}, .out = {2}, .applies = has_one_group},
    {.name = "inner", .in = {2, 2}, .out = {WFI_SUMMED}, .applies = is_plain},
    {0}};

/* Winograd's transforms lose a digit against the direct sum. */
const wfi_op wfi_op_conv2d = {
    .name = "conv2d",
    .flags = WFI_OP_IMAGE | WFI_OP_ONE_TYPE,
    .roles = {.weight_in = 1 << 1},
    .tolerance = 2e-5f,
    .check = conv2d_check,
    .gradient = conv2d_gradient,
    .flops = conv2d_flops,
    .scratch_bytes = row_scratch_bytes,
    .reference = conv2d_reference,
    .samples = conv2d_samples,
    .place = conv2d_place,
};

const wfi_op wfi_op_conv2d_backward_data = {
    .name = "conv2d_backward_data",
    .flags = WFI_OP_IMAGE | WFI_OP_ONE_TYPE,
    .roles = {.weight_in = 1 << 1},
    .tolerance = 2e-5f,
    .makes = {WFI_OWN_SHAPE},
    .flops = conv2d_backward_data_flops,
    .scratch_bytes = row_scratch_bytes,
    .reference = conv2d_backward_data_reference,
};

const wfi_op wfi_op_conv2d_backward_weight = {
    .name = "conv2d_backward_weight",
    .flags = WFI_OP_IMAGE | WFI_OP_WEIGHT_GRADIENT | WFI_OP_ONE_TYPE,
    .roles = {.weight_out = 1 << 0},
    .tolerance = 2e-5f,
    .check = conv2d_backward_weight_check,
    .flops = conv2d_backward_weight_flops,
    .reference = conv2d_backward_weight_reference,
};

/* ---- transposed: a convolution's gradient of x, forward ---- */

static const wfi_op_sample transposed_samples[] = {
    {.n_in = 2,
     .in = {WFI_DIMS(2, 6, 5, 3), WFI_DIMS(6, 4, 3, 3)},
     .shape = WFI_DIMS(2, 4, 5, 3),
     .attr = {.conv = {1, 1, 1, 1, 0}}},
    {.n_in = 2,
     .in = {WFI_DIMS(2, 6, 3, 4), WFI_DIMS(6, 2, 4, 3)},
     .shape = WFI_DIMS(2, 4, 6, 7),
     .attr = {.conv = {2, 1, 2, 1, 0}}},
    {.n_in = 2,
     .in = {WFI_DIMS(2, 6, 3, 4), WFI_DIMS(6, 2, 2, 3)},
     .shape = WFI_DIMS(2, 4, 6, 11),
     .attr = {.conv = {2, 1, 2, 3, 0}}},
    {0}};

const wfi_op wfi_op_conv_transpose2d = {
    .name = "conv_transpose2d",
    .flags = WFI_OP_IMAGE | WFI_OP_ONE_TYPE,
    .roles = {.weight_in = 1 << 1},
    .tolerance = 2e-5f,
    .check = conv_transpose2d_check,
    /* The op is linear in both inputs: its gradients are the convolution and the convolution's
     * gradient of weights.
     */
    .backward = (const wfi_op_backward[]){{.op = &wfi_op_conv2d, .in = {WFI_DY, WFI_X + 1}},
                                          {.op = &wfi_op_conv2d_backward_weight,
                                           .in = {WFI_X, WFI_DY},
                                           .to = 1,
                                           .has_shape = true},
                                          {0}},
    .flops = conv2d_backward_data_flops,
    .scratch_bytes = row_scratch_bytes,
    .reference = conv2d_backward_data_reference,
    .samples = transposed_samples,
};

static wfi_attr attr_of(wf_conv2d_shape s) {
    return (wfi_attr){.conv = {.stride = s.stride ? s.stride : 1,
                               .pad = s.pad,
                               .groups = s.groups ? s.groups : 1,
                               .dilation = s.dilation ? s.dilation : 1}};
}

static int64_t widened(int64_t n, int64_t kernel, const wfi_attr *attr) {
    return (n - 1) * attr->conv.stride - 2 * attr->conv.pad + (kernel - 1) * attr->conv.dilation +
           1;
}

wf_tensor wf_conv_transpose2d_with(wf_tensor x, wf_tensor weight, wf_conv2d_shape s) {
    wfi_attr attr = attr_of(s);
    wf_shape from = wf_tensor_shape(x), w = wf_tensor_shape(weight), to = from;
    if (from.n_dims == 4 && w.n_dims == 4 && are_sane(&attr)) { /* else the check says why */
        to.dim[1] = w.dim[1] * attr.conv.groups;
        for (int d = 2; d < 4; d++) to.dim[d] = widened(from.dim[d], w.dim[d], &attr);
    }
    return wfi_build(&wfi_op_conv_transpose2d, &attr, &to, 2, (wf_tensor[]){x, weight});
}

/* ---- for models ---- */

wf_tensor wf_conv2d_with(wf_tensor x, wf_tensor weight, wf_tensor bias, wf_conv2d_shape s) {
    wfi_attr attr = attr_of(s);
    int n_in = bias.graph && bias.id >= 0 ? 3 : 2;
    return wfi_build(&wfi_op_conv2d, &attr, NULL, n_in, (wf_tensor[]){x, weight, bias});
}
