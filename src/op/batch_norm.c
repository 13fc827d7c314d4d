/* Batch normalization of [n, c, h, w] in any layout, or of [n, c]; over all dims but c.
 *
 * batch_norm(x, scale, shift, addend?) -> y, mean, var (biased), workspace
 * batch_norm_inference(x, scale, shift, running_mean, running_var) -> y
 * batch_norm_backward(dy, x, mean, var, scale, passed?) -> dx, dscale, dshift, daddend
 *
 * scale, shift, mean, var and their gradients are [c]; an addend is like x, and is added before a
 * fused ReLU. The backward reads the ReLU's mask from a workspace. With an addend, it takes the
 * mask from y and also gives daddend. The reference's workspace is a byte an element, in x's
 * order. */
#include "op/plain.h"

/* ---- checks ---- */

/* Input 0 is normalized; inputs from 1 up to `end` are [c]. */
static wf_status check_channels(const wf_graph *g, const wfi_node *node, int end) {
    wf_shape x = wfi_in_shape(g, node, 0);
    if (x.n_dims != 2 && x.n_dims != 4)
        return wfi_op_fail(g, node, WF_SHAPE, "x %s is neither [n, c] nor [n, c, h, w]",
                           wfi_show(&x).text);
    if (wf_shape_n_elem(&x) == 0)
        return wfi_op_fail(g, node, WF_SHAPE, "x %s is empty and has no mean", wfi_show(&x).text);
    if (!(node->attr.norm.eps >= 0))
        return wfi_op_fail(g, node, WF_INVALID_ARG, "eps is %g", node->attr.norm.eps);
    for (int i = 1; i < end; i++) {
        wf_shape channels = wfi_in_shape(g, node, i);
        if (channels.n_dims != 1 || channels.dim[0] != x.dim[1])
            return wfi_op_fail(g, node, WF_SHAPE, "input %d %s is not one value a channel of x %s",
                               i, wfi_show(&channels).text, wfi_show(&x).text);
    }
    return WF_OK;
}

static bool has_addend(const wfi_node *node) {
    return node->n_in > 3 && node->in[3] >= 0;
}

static wf_status batch_norm_check(wf_graph *g, wfi_node *node) {
    WF_TRY(wfi_check_inputs(g, node, "ffff?"));
    WF_TRY(check_channels(g, node, 3));
    wf_shape x = wfi_in_shape(g, node, 0), channels = wfi_in_shape(g, node, 1);
    bool adds = has_addend(node);
    if (adds) WF_TRY(wfi_check_shape(g, node, 3, "the addend", x));
    WF_TRY(wfi_node_output(g, node, WF_F32, &x));
    WF_TRY(wfi_node_output(g, node, WF_F32, &channels));
    WF_TRY(wfi_node_output(g, node, WF_F32, &channels));
    bool has_workspace = node->attr.norm.relu && !adds;
    return has_workspace ? wfi_node_opaque_output(g, node, wf_shape_n_elem(&x)) : WF_OK;
}

static wf_status batch_norm_inference_check(wf_graph *g, wfi_node *node) {
    WF_TRY(wfi_check_inputs(g, node, "fffff"));
    WF_TRY(check_channels(g, node, 5));
    wf_shape x = wfi_in_shape(g, node, 0);
    return wfi_node_output(g, node, WF_F32, &x);
}

static wf_status batch_norm_backward_check(wf_graph *g, wfi_node *node) {
    bool adds = node->n_in > 5 && !g->values[node->in[5]].opaque;
    wf_shape x = wfi_in_shape(g, node, 1), channels = wfi_in_shape(g, node, 4);
    WF_TRY(wfi_node_output(g, node, WF_F32, &x));
    WF_TRY(wfi_node_output(g, node, WF_F32, &channels));
    WF_TRY(wfi_node_output(g, node, WF_F32, &channels));
    return adds ? wfi_node_output(g, node, WF_F32, &x) : WF_OK;
}

/* ---- gradient, work ---- */

static wf_status batch_norm_gradient(wfi_autodiff *ad, const wfi_node *node) {
    int32_t x = node->in[0], scale = node->in[1], shift = node->in[2];
    int32_t dy = wfi_gradient_of(ad, node->out[0]);
    bool adds = has_addend(node);
    const int32_t in[] = {dy,           x,     node->out[1],
                          node->out[2], scale, adds ? node->out[0] : node->out[3]};
    int n_in = node->attr.norm.relu ? 6 : 5;
    const wfi_node *back =
        wfi_backward_node(ad, &wfi_op_batch_norm_backward, &node->attr, NULL, n_in, in);
    if (!back) return wfi_graph_of(ad)->status;
    int32_t dx = back->out[0], dscale = back->out[1], dshift = back->out[2];
    int32_t daddend = node->attr.norm.relu ? back->out[3] : dy;
    if (adds) WF_TRY(wfi_contribute(ad, node->in[3], daddend));
    WF_TRY(wfi_contribute(ad, x, dx));
    WF_TRY(wfi_contribute(ad, scale, dscale));
    return wfi_contribute(ad, shift, dshift);
}

/* ---- references ---- */

/* Pixel i of channel c, counted through all samples: its offset in elements of that operand. */
static int64_t pixel_at(const wfi_call *call, int operand, int64_t c, int64_t i) {
    const wfi_operand *image = plain_operand(call, operand);
    int64_t n_pixels = image->shape.dim[2] * image->shape.dim[3];
    return wfi_image_at(image, i / n_pixels, c, 0, 0) + i % n_pixels * wfi_pixel_step(image);
}

#define PIXEL(operand, i) pixel_at(a.call, operand, GROUP_INDEX, i)
#include "op/batch_norm.cl"

/* [n, c] is an image of one pixel. */
static void make_image(wf_shape *shape) {
    for (int d = shape->n_dims; d < 4; d++) shape->dim[d] = 1;
    shape->n_dims = 4;
}

static wfi_numbers batch_norm_numbers(const wfi_call *call) {
    wf_shape x = call->in[0].shape;
    make_image(&x);
    const int64_t *dim = x.dim;
    return (wfi_numbers){
        .n_groups = dim[1],
        .n = {0, dim[0], dim[1], dim[2] * dim[3], call->attr->norm.relu, call->n_out > 3},
        .f = {call->attr->norm.eps}};
}

PLAIN_REFERENCE(normalize_images, batch_norm, batch_norm_numbers)
PLAIN_REFERENCE(infer_images, batch_norm_inference, batch_norm_numbers)
PLAIN_REFERENCE(images_backward, batch_norm_backward, batch_norm_numbers)

static wfi_call as_images(const wfi_call *call) {
    wfi_call images = *call;
    for (int i = 0; i < call->n_in; i++) make_image(&images.in[i].shape);
    for (int i = 0; i < call->n_out; i++) make_image(&images.out[i].shape);
    return images;
}

static void batch_norm_reference(const wfi_call *call) {
    const wfi_call images = as_images(call);
    normalize_images(&images);
}

static void batch_norm_inference_reference(const wfi_call *call) {
    const wfi_call images = as_images(call);
    infer_images(&images);
}

static void batch_norm_backward_reference(const wfi_call *call) {
    const wfi_call images = as_images(call);
    images_backward(&images);
}

/* The backward learns from a byte an element where the ReLU let the gradient pass. */
static wf_status batch_norm_with_relu(wf_graph *g, wfi_node *node) {
    node->attr.norm.relu = 1;
    if (has_addend(node)) return WF_OK;
    return wfi_node_opaque_output(g, node, wf_shape_n_elem(&g->values[node->out[0]].shape));
}

/* Where there is a kernel for it: images that are held in blocks of 16 channels. */
static bool batch_norm_with_addend(const wf_graph *g, wfi_node *node, int32_t addend) {
    wf_shape x = wfi_in_shape(g, node, 0);
    if (x.n_dims != 4 || x.dim[1] % 16 || g->values[addend].kind != WFI_VALUE_NODE) return false;
    if (node->attr.norm.relu || has_addend(node)) return false;
    node->in[node->n_in++] = addend;
    return true;
}

static wf_status batch_norm_inference_with_relu(wf_graph *g, wfi_node *node) {
    (void)g;
    node->attr.norm.relu = 1;
    return WF_OK;
}

static const wfi_op_sample batch_norm_samples[] = {
    {.n_in = 3,
     .in = {WFI_DIMS(3, 4, 2, 3), WFI_DIMS(4), WFI_DIMS(4)},
     .attr = {.norm = {1e-5, 0}}},
    {.n_in = 3, .in = {WFI_DIMS(7, 4), WFI_DIMS(4), WFI_DIMS(4)}, .attr = {.norm = {1e-5, 0}}},
    {.n_in = 4,
     .in = {WFI_DIMS(3, 4, 2, 3), WFI_DIMS(4), WFI_DIMS(4), WFI_DIMS(3, 4, 2, 3)},
     .attr = {.norm = {1e-5, 0}}},
    {0}};

static const wfi_op_cut batch_norm_place[] = {
    {.name = "channels", .in = {2, 1, 1, 2}, .out = {2, 1, 1}}, {0}};

const wfi_op wfi_op_batch_norm = {
    .name = "batch_norm",
    .flags = WFI_OP_IMAGE | WFI_OP_CHEAP | WFI_OP_ONE_TYPE,
    .overwrites = 1 << 0 | 1 << 3,
    .tolerance = 1e-5f,
    .check = batch_norm_check,
    .gradient = batch_norm_gradient,
    .with_relu = batch_norm_with_relu,
    .with_addend = batch_norm_with_addend,
    .work = {8, WFI_Y}, /* mean 1, variance 3, y 4 */
    .reference = batch_norm_reference,
    .numbers = batch_norm_numbers,
    .samples = batch_norm_samples,
    .place = batch_norm_place,
};

static const wfi_op_sample batch_norm_inference_samples[] = {
    {.n_in = 5,
     .in = {WFI_DIMS(2, 4, 2, 3), WFI_DIMS(4), WFI_DIMS(4), WFI_DIMS(4), WFI_DIMS(4)},
     .attr = {.norm = {1e-5, 0}}},
    {0}};

static const wfi_op_cut batch_norm_inference_place[] = {
    {.name = "samples", .in = {1}, .out = {1}},
    {.name = "channels", .in = {2, 1, 1, 1, 1}, .out = {2}},
    {0}};

const wfi_op wfi_op_batch_norm_inference = {
    .name = "batch_norm_inference",
    .flags = WFI_OP_IMAGE | WFI_OP_ONE_TYPE,
    .overwrites = 1 << 0,
    .tolerance = 1e-5f,
    .check = batch_norm_inference_check,
    .with_relu = batch_norm_inference_with_relu,
    .work = {4, WFI_Y},
    .reference = batch_norm_inference_reference,
    .numbers = batch_norm_numbers,
    .samples = batch_norm_inference_samples,
    .place = batch_norm_inference_place,
};

/* Differences of nearly equal sums: more is lost than in the forward. */
const wfi_op wfi_op_batch_norm_backward = {
    .name = "batch_norm_backward",
    .flags = WFI_OP_IMAGE | WFI_OP_ONE_TYPE,
    .overwrites = 1 << 0,
    .tolerance = 5e-5f,
    .check = batch_norm_backward_check,
    .work = {11, WFI_Y},
    .reference = batch_norm_backward_reference,
    .numbers = batch_norm_numbers,
};
