/* Pooling of images.
 *
 * max_pool(x) -> y, workspace (where each maximum stands)
 * max_pool_backward(dy, workspace) -> dx
 * avg_pool(x) -> y, padding counts; avg_pool_backward(dy) -> dx
 * global_avg_pool(x [n, c, h, w]) -> y [n, c]; global_avg_pool_backward(dy) -> dx */
#include "op/check.h"

#include <math.h>
#include <string.h>

static int64_t pooled(int64_t n, const wfi_attr *attr) {
    return (n + 2 * attr->pool.pad - attr->pool.kernel) / attr->pool.stride + 1;
}

/* Checks the window; *y_out gets the pooled shape. */
static wf_status check_window(const wf_graph *g, const wfi_node *node, const wf_shape *x,
                              wf_shape *y_out) {
    const wfi_attr *a = &node->attr;
    int64_t kernel = a->pool.kernel, pad = a->pool.pad;
    bool fits = kernel >= 1 && a->pool.stride >= 1 && pad >= 0 && pad < kernel && kernel <= 1024;
    for (int d = 2; d < 4 && fits; d++) fits = x->dim[d] + 2 * pad >= kernel;
    if (!fits)
        return wfi_op_fail(
            g, node, WF_SHAPE,
            "kernel %lld, stride %lld, pad %lld do not fit %s (pad is less than the kernel)",
            (long long)kernel, (long long)a->pool.stride, (long long)pad, wfi_show(x).text);
    *y_out = *x;
    for (int d = 2; d < 4; d++) y_out->dim[d] = pooled(x->dim[d], a);
    return WF_OK;
}

static wf_status check_forward(wf_graph *g, wfi_node *node, wf_shape *y_out) {
    WF_TRY(wfi_check_inputs(g, node, "f"));
    WF_TRY(wfi_check_image(g, node, 0));
    wf_shape x = wfi_in_shape(g, node, 0);
    WF_TRY(check_window(g, node, &x, y_out));
    return wfi_node_output(g, node, WF_F32, y_out);
}

/* node->shape is x's; dy must be what pooling it gives. */
static wf_status check_backward(wf_graph *g, wfi_node *node) {
    wf_shape dy = wfi_in_shape(g, node, 0), y;
    WF_TRY(check_window(g, node, &node->shape, &y));
    if (!wfi_shape_equal(&dy, &y))
        return wfi_op_fail(g, node, WF_SHAPE, "dy %s does not belong to x %s", wfi_show(&dy).text,
                           wfi_show(&node->shape).text);
    return wfi_node_output(g, node, WF_F32, &node->shape);
}

static double window_flops(const wf_graph *g, const wfi_node *node) {
    int64_t k = node->attr.pool.kernel;
    return wfi_flops_of_output(g, node, (double)(k * k));
}

/* The part of a window that lies inside the image, along one dim. */
typedef struct window {
    int64_t begin, end;
} window;

static window window_at(const wfi_attr *attr, int64_t i, int64_t n) {
    int64_t begin = i * attr->pool.stride - attr->pool.pad;
    return (window){wfi_max_i64(begin, 0), wfi_min_i64(begin + attr->pool.kernel, n)};
}

/* ---- max ---- */

static wf_status max_pool_check(wf_graph *g, wfi_node *node) {
    wf_shape y;
    WF_TRY(check_forward(g, node, &y));
    return wfi_node_opaque_output(g, node, wf_shape_n_elem(&y) * (int64_t)sizeof(int32_t));
}

static wf_status max_pool_gradient(wfi_autodiff *ad, const wfi_node *node) {
    wf_shape x = wfi_in_shape(wfi_graph_of(ad), node, 0);
    return wfi_pass(ad, node->in[0], &wfi_op_max_pool_backward, &node->attr, &x, 2,
                    (int32_t[]){wfi_gradient_of(ad, node->out[0]), node->out[1]});
}

static void max_pool_reference(const wfi_call *call) {
    const wfi_operand *x = &call->in[0], *y = &call->out[0];
    const int64_t *dim = y->shape.dim;
    int64_t height = x->shape.dim[2], width = x->shape.dim[3];
    for (int64_t n = 0; n < dim[0]; n++)
        for (int64_t c = 0; c < dim[1]; c++) {
            const float *image = wfi_plane(x, n, c);
            for (int64_t i = 0; i < dim[2]; i++)
                for (int64_t j = 0; j < dim[3]; j++) {
                    window r = window_at(call->attr, i, height),
                           s = window_at(call->attr, j, width);
                    int64_t at = r.begin * width + s.begin;
                    for (int64_t h = r.begin; h < r.end; h++)
                        for (int64_t w = s.begin; w < s.end; w++)
                            if (image[(h * width + w) * wfi_pixel_step(x)] >
                                image[at * wfi_pixel_step(x)])
                                at = h * width + w;
                    int64_t o = wfi_image_at(y, n, c, i, j);
                    ((float *)y->data)[o] = image[at * wfi_pixel_step(x)];
                    ((int32_t *)call->out[1].data)[o] = (int32_t)at;
                }
        }
}

const wfi_op wfi_op_max_pool = {
    .name = "max_pool",
    .flags = WFI_OP_IMAGE,
    .check = max_pool_check,
    .gradient = max_pool_gradient,
    .flops = window_flops,
    .reference = max_pool_reference,
};

static wf_status max_pool_backward_check(wf_graph *g, wfi_node *node) {
    WF_TRY(wfi_check_inputs(g, node, "fb"));
    WF_TRY(wfi_check_image(g, node, 0));
    return check_backward(g, node);
}

static void max_pool_backward_reference(const wfi_call *call) {
    const wfi_operand *dy = &call->in[0], *dx = &call->out[0];
    const int64_t *dim = dy->shape.dim;
    memset(dx->data, 0, (size_t)wf_shape_n_elem(&dx->shape) * sizeof(float));
    for (int64_t n = 0; n < dim[0]; n++)
        for (int64_t c = 0; c < dim[1]; c++)
            for (int64_t i = 0; i < dim[2]; i++)
                for (int64_t j = 0; j < dim[3]; j++) {
                    int64_t o = wfi_image_at(dy, n, c, i, j);
                    int64_t at = ((const int32_t *)call->in[1].data)[o];
                    wfi_plane(dx, n, c)[at * wfi_pixel_step(dx)] += ((const float *)dy->data)[o];
                }
}

const wfi_op wfi_op_max_pool_backward = {
    .name = "max_pool_backward",
    .flags = WFI_OP_IMAGE,
    .tolerance = 1e-6f,
    .check = max_pool_backward_check,
    .reference = max_pool_backward_reference,
};

wf_tensor wf_max_pool(wf_tensor x, int64_t kernel, int64_t stride, int64_t pad) {
    wfi_attr attr = {.pool = {kernel, stride, pad}};
    return wfi_build(&wfi_op_max_pool, &attr, NULL, 1, &x);
}

/* ---- average ---- */

static wf_status avg_pool_check(wf_graph *g, wfi_node *node) {
    wf_shape y;
    return check_forward(g, node, &y);
}

static wf_status avg_pool_gradient(wfi_autodiff *ad, const wfi_node *node) {
    wf_shape x = wfi_in_shape(wfi_graph_of(ad), node, 0);
    return wfi_pass(ad, node->in[0], &wfi_op_avg_pool_backward, &node->attr, &x, 1,
                    (int32_t[]){wfi_gradient_of(ad, node->out[0])});
}

static void avg_pool_reference(const wfi_call *call) {
    const wfi_operand *x = &call->in[0], *y = &call->out[0];
    const int64_t *dim = y->shape.dim;
    int64_t height = x->shape.dim[2], width = x->shape.dim[3], kernel = call->attr->pool.kernel;
    for (int64_t n = 0; n < dim[0]; n++)
        for (int64_t c = 0; c < dim[1]; c++) {
            const float *image = wfi_plane(x, n, c);
            for (int64_t i = 0; i < dim[2]; i++)
                for (int64_t j = 0; j < dim[3]; j++) {
                    window r = window_at(call->attr, i, height),
                           s = window_at(call->attr, j, width);
                    double sum = 0;
                    for (int64_t h = r.begin; h < r.end; h++)
                        for (int64_t w = s.begin; w < s.end; w++)
                            sum += image[(h * width + w) * wfi_pixel_step(x)];
                    ((float *)y->data)[wfi_image_at(y, n, c, i, j)] =
                        (float)(sum / (double)(kernel * kernel));
                }
        }
}

const wfi_op wfi_op_avg_pool = {
    .name = "avg_pool",
    .flags = WFI_OP_IMAGE,
    .tolerance = 1e-6f,
    .check = avg_pool_check,
    .gradient = avg_pool_gradient,
    .flops = window_flops,
    .reference = avg_pool_reference,
};

static wf_status avg_pool_backward_check(wf_graph *g, wfi_node *node) {
    WF_TRY(wfi_check_inputs(g, node, "f"));
    WF_TRY(wfi_check_image(g, node, 0));
    return check_backward(g, node);
}

static void avg_pool_backward_reference(const wfi_call *call) {
    const wfi_operand *dy = &call->in[0], *dx = &call->out[0];
    const int64_t *dim = dy->shape.dim;
    int64_t height = dx->shape.dim[2], width = dx->shape.dim[3], kernel = call->attr->pool.kernel;
    memset(dx->data, 0, (size_t)wf_shape_n_elem(&dx->shape) * sizeof(float));
    for (int64_t n = 0; n < dim[0]; n++)
        for (int64_t c = 0; c < dim[1]; c++) {
            float *image = wfi_plane(dx, n, c);
            for (int64_t i = 0; i < dim[2]; i++)
                for (int64_t j = 0; j < dim[3]; j++) {
                    window r = window_at(call->attr, i, height),
                           s = window_at(call->attr, j, width);
                    float d = ((const float *)dy->data)[wfi_image_at(dy, n, c, i, j)] /
                              (float)(kernel * kernel);
                    for (int64_t h = r.begin; h < r.end; h++)
                        for (int64_t w = s.begin; w < s.end; w++)
                            image[(h * width + w) * wfi_pixel_step(dx)] += d;
                }
        }
}

const wfi_op wfi_op_avg_pool_backward = {
    .name = "avg_pool_backward",
    .flags = WFI_OP_IMAGE,
    .tolerance = 1e-6f,
    .check = avg_pool_backward_check,
    .reference = avg_pool_backward_reference,
};

wf_tensor wf_avg_pool(wf_tensor x, int64_t kernel, int64_t stride, int64_t pad) {
    wfi_attr attr = {.pool = {kernel, stride, pad}};
    return wfi_build(&wfi_op_avg_pool, &attr, NULL, 1, &x);
}

/* ---- the whole image ---- */

static wf_status global_avg_pool_check(wf_graph *g, wfi_node *node) {
    WF_TRY(wfi_check_inputs(g, node, "f"));
    WF_TRY(wfi_check_image(g, node, 0));
    wf_shape x = wfi_in_shape(g, node, 0);
    return wfi_node_output(g, node, WF_F32, &WF_SHAPE(x.dim[0], x.dim[1]));
}

static wf_status global_avg_pool_gradient(wfi_autodiff *ad, const wfi_node *node) {
    wf_shape x = wfi_in_shape(wfi_graph_of(ad), node, 0);
    return wfi_pass(ad, node->in[0], &wfi_op_global_avg_pool_backward, NULL, &x, 1,
                    (int32_t[]){wfi_gradient_of(ad, node->out[0])});
}

static double global_flops(const wf_graph *g, const wfi_node *node) {
    wf_shape x = wfi_in_shape(g, node, 0);
    return (double)wf_shape_n_elem(&x);
}

static void global_avg_pool_reference(const wfi_call *call) {
    const wfi_operand *x = &call->in[0];
    const int64_t *dim = x->shape.dim;
    int64_t n_pixels = dim[2] * dim[3];
    for (int64_t n = 0; n < dim[0]; n++)
        for (int64_t c = 0; c < dim[1]; c++) {
            const float *image = wfi_plane(x, n, c);
            double sum = 0;
            for (int64_t i = 0; i < n_pixels; i++) sum += image[i * wfi_pixel_step(x)];
            ((float *)call->out[0].data)[n * dim[1] + c] = (float)(sum / (double)n_pixels);
        }
}

const wfi_op wfi_op_global_avg_pool = {
    .name = "global_avg_pool",
    .flags = WFI_OP_IMAGE,
    .tolerance = 1e-6f,
    .check = global_avg_pool_check,
    .gradient = global_avg_pool_gradient,
    .flops = global_flops,
    .reference = global_avg_pool_reference,
};

static wf_status global_avg_pool_backward_check(wf_graph *g, wfi_node *node) {
    WF_TRY(wfi_check_inputs(g, node, "f"));
    wf_shape dy = wfi_in_shape(g, node, 0);
    const wf_shape *x = &node->shape;
    if (dy.n_dims != 2 || x->n_dims != 4 || dy.dim[0] != x->dim[0] || dy.dim[1] != x->dim[1])
        return wfi_op_fail(g, node, WF_SHAPE, "dy %s does not belong to x %s", wfi_show(&dy).text,
                           wfi_show(x).text);
    return wfi_node_output(g, node, WF_F32, x);
}

static void global_avg_pool_backward_reference(const wfi_call *call) {
    const wfi_operand *dx = &call->out[0];
    const int64_t *dim = dx->shape.dim;
    int64_t n_pixels = dim[2] * dim[3];
    for (int64_t n = 0; n < dim[0]; n++)
        for (int64_t c = 0; c < dim[1]; c++) {
            float *image = wfi_plane(dx, n, c);
            float d = ((const float *)call->in[0].data)[n * dim[1] + c] / (float)n_pixels;
            for (int64_t i = 0; i < n_pixels; i++) image[i * wfi_pixel_step(dx)] = d;
        }
}

const wfi_op wfi_op_global_avg_pool_backward = {
    .name = "global_avg_pool_backward",
    .flags = WFI_OP_IMAGE,
    .tolerance = 1e-6f,
    .check = global_avg_pool_backward_check,
    .reference = global_avg_pool_backward_reference,
};

wf_tensor wf_global_avg_pool(wf_tensor x) {
    return wfi_build(&wfi_op_global_avg_pool, NULL, NULL, 1, &x);
}
