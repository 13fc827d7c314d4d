/* Poolings of images; any layout.
 *
 * max_pool(x) -> y, workspace; max_pool_backward(dy, workspace) -> dx
 * avg_pool(x) -> y; avg_pool_backward(dy) -> dx; padding counts in the divisor
 * global_avg_pool(x) -> y [n, c]; global_avg_pool_backward(dy) -> dx
 *
 * x [n, c, h, w], y [n, c, oh, ow]. node->shape of a backward is x's. The reference's
 * workspace holds an I32 an element of y, in y's order: the pixel of x, counted
 * row by row, that is the largest (the first of them). */
#include "op/check.h"

#include <math.h>

/* ---- checks ---- */

static wf_status check_window(const wf_graph *g, const wfi_node *node, const wf_shape *x,
                              wf_shape *y_out) {
    int64_t kernel = node->attr.pool.kernel, stride = node->attr.pool.stride;
    int64_t pad = node->attr.pool.pad;
    /* With a larger pad, a window could lie in it entirely. */
    if (kernel < 1 || stride < 1 || pad < 0 || pad > kernel / 2 || kernel > INT32_MAX ||
        stride > INT32_MAX)
        return wfi_op_fail(g, node, WF_INVALID_ARG,
                           "kernel %lld, stride %lld, pad %lld: kernel and stride start at 1, the "
                           "pad is at most half the kernel",
                           (long long)kernel, (long long)stride, (long long)pad);
    *y_out = *x;
    for (int d = 2; d < 4; d++) {
        int64_t room = x->dim[d] + 2 * pad - kernel;
        if (room < 0)
            return wfi_op_fail(g, node, WF_SHAPE,
                               "a window of %lld is larger than x %s with pad "
                               "%lld",
                               (long long)kernel, wfi_show(x).text, (long long)pad);
        y_out->dim[d] = room / stride + 1;
    }
    if (x->dim[2] * x->dim[3] > INT32_MAX)
        return wfi_op_fail(g, node, WF_SHAPE, "x %s has too many pixels", wfi_show(x).text);
    return WF_OK;
}

static wf_status pool_check(wf_graph *g, wfi_node *node) {
    WF_TRY(wfi_check_inputs(g, node, "f"));
    WF_TRY(wfi_check_image(g, node, 0));
    wf_shape x = wfi_in_shape(g, node, 0), y;
    WF_TRY(check_window(g, node, &x, &y));
    WF_TRY(wfi_node_output(g, node, WF_F32, &y));
    if (node->op != &wfi_op_max_pool) return WF_OK;
    return wfi_node_opaque_output(g, node, wf_shape_n_elem(&y) * (int64_t)sizeof(int32_t));
}

static wf_status pool_backward_check(wf_graph *g, wfi_node *node) {
    WF_TRY(wfi_check_inputs(g, node, node->op == &wfi_op_max_pool_backward ? "fb" : "f"));
    wf_shape dy = wfi_in_shape(g, node, 0), y;
    if (node->shape.n_dims != 4)
        return wfi_op_fail(g, node, WF_SHAPE, "x %s is not an image", wfi_show(&node->shape).text);
    WF_TRY(check_window(g, node, &node->shape, &y));
    if (!wfi_shape_equal(&dy, &y))
        return wfi_op_fail(g, node, WF_SHAPE, "dy is %s, but y is %s", wfi_show(&dy).text,
                           wfi_show(&y).text);
    return wfi_node_output(g, node, WF_F32, &node->shape);
}

/* ---- gradient, work ---- */

static double window_flops(const wf_shape *y, const wfi_node *node) {
    double kernel = (double)node->attr.pool.kernel;
    return (double)wf_shape_n_elem(y) * kernel * kernel;
}

static double pool_flops(const wf_graph *g, const wfi_node *node) {
    wf_shape y = wfi_out_shape(g, node, 0);
    return window_flops(&y, node);
}

static double pool_backward_flops(const wf_graph *g, const wfi_node *node) {
    wf_shape dy = wfi_in_shape(g, node, 0);
    return window_flops(&dy, node);
}

/* ---- references ---- */

typedef struct span {
    int64_t first, end;
} span;

/* The pixels below `size` that window `place` covers. */
static span window_of(const wfi_attr *attr, int64_t place, int64_t size) {
    int64_t first = place * attr->pool.stride - attr->pool.pad;
    return (span){wfi_max_i64(first, 0), wfi_min_i64(first + attr->pool.kernel, size)};
}

/* The windows, `n_out` of them, that cover `pixel`. */
static span windows_over(const wfi_attr *attr, int64_t pixel, int64_t n_out) {
    int64_t stride = attr->pool.stride, last = pixel + attr->pool.pad;
    int64_t before = last - attr->pool.kernel; /* the last start that is too early */
    return (span){before < 0 ? 0 : before / stride + 1, wfi_min_i64(last / stride + 1, n_out)};
}

static int32_t largest(const wfi_operand *x, const float *plane, span rows, span cols) {
    int64_t w = x->shape.dim[3], step = wfi_pixel_step(x);
    int64_t best = rows.first * w + cols.first;
    for (int64_t i = rows.first; i < rows.end; i++)
        for (int64_t j = cols.first; j < cols.end; j++) {
            float value = plane[(i * w + j) * step];
            if (value > plane[best * step] || (isnan(value) && !isnan(plane[best * step])))
                best = i * w + j;
        }
    return (int32_t)best;
}

static void max_pool_reference(const wfi_call *call) {
    const wfi_operand *x = &call->in[0], *y = &call->out[0];
    const int64_t *dim = y->shape.dim;
    int32_t *winner = call->out[1].data;
    for (int64_t n = 0; n < dim[0]; n++)
        for (int64_t c = 0; c < dim[1]; c++)
            for (int64_t i = 0; i < dim[2]; i++)
                for (int64_t j = 0; j < dim[3]; j++) {
                    const float *plane = wfi_plane(x, n, c);
                    int64_t at = wfi_image_at(y, n, c, i, j);
                    winner[at] = largest(x, plane, window_of(call->attr, i, x->shape.dim[2]),
                                         window_of(call->attr, j, x->shape.dim[3]));
                    ((float *)y->data)[at] = plane[winner[at] * wfi_pixel_step(x)];
                }
}

/* What the windows over a pixel that chose it send back, in ascending order. */
static double sum_if_chosen(const wfi_operand *dy, const int32_t *winner, int64_t n, int64_t c,
                            int64_t pixel, span rows, span cols) {
    double sum = 0;
    for (int64_t i = rows.first; i < rows.end; i++)
        for (int64_t j = cols.first; j < cols.end; j++) {
            int64_t at = wfi_image_at(dy, n, c, i, j);
            if (winner[at] == pixel) sum += ((float *)dy->data)[at];
        }
    return sum;
}

static void max_pool_backward_reference(const wfi_call *call) {
    const wfi_operand *dy = &call->in[0], *dx = &call->out[0];
    const int64_t *dim = dx->shape.dim;
    for (int64_t n = 0; n < dim[0]; n++)
        for (int64_t c = 0; c < dim[1]; c++)
            for (int64_t i = 0; i < dim[2]; i++)
                for (int64_t j = 0; j < dim[3]; j++)
                    ((float *)dx->data)[wfi_image_at(dx, n, c, i, j)] =
                        (float)sum_if_chosen(dy, call->in[1].data, n, c, i * dim[3] + j,
                                             windows_over(call->attr, i, dy->shape.dim[2]),
                                             windows_over(call->attr, j, dy->shape.dim[3]));
}

static double sum_of(const wfi_operand *image, int64_t n, int64_t c, span rows, span cols) {
    const float *plane = wfi_plane(image, n, c);
    double sum = 0;
    for (int64_t i = rows.first; i < rows.end; i++)
        for (int64_t j = cols.first; j < cols.end; j++)
            sum += plane[(i * image->shape.dim[3] + j) * wfi_pixel_step(image)];
    return sum;
}

static void avg_pool_reference(const wfi_call *call) {
    const wfi_operand *x = &call->in[0], *y = &call->out[0];
    const int64_t *dim = y->shape.dim;
    double n_pixels = (double)call->attr->pool.kernel * (double)call->attr->pool.kernel;
    for (int64_t n = 0; n < dim[0]; n++)
        for (int64_t c = 0; c < dim[1]; c++)
            for (int64_t i = 0; i < dim[2]; i++)
                for (int64_t j = 0; j < dim[3]; j++)
                    ((float *)y->data)[wfi_image_at(y, n, c, i, j)] =
                        (float)(sum_of(x, n, c, window_of(call->attr, i, x->shape.dim[2]),
                                       window_of(call->attr, j, x->shape.dim[3])) /
                                n_pixels);
}

static void avg_pool_backward_reference(const wfi_call *call) {
    const wfi_operand *dy = &call->in[0], *dx = &call->out[0];
    const int64_t *dim = dx->shape.dim;
    double n_pixels = (double)call->attr->pool.kernel * (double)call->attr->pool.kernel;
    for (int64_t n = 0; n < dim[0]; n++)
        for (int64_t c = 0; c < dim[1]; c++)
            for (int64_t i = 0; i < dim[2]; i++)
                for (int64_t j = 0; j < dim[3]; j++)
                    ((float *)dx->data)[wfi_image_at(dx, n, c, i, j)] =
                        (float)(sum_of(dy, n, c, windows_over(call->attr, i, dy->shape.dim[2]),
                                       windows_over(call->attr, j, dy->shape.dim[3])) /
                                n_pixels);
}

static const wfi_op_sample max_pool_samples[] = {{.n_in = 1,
                                                  .in = {WFI_DIMS(2, 4, 7, 5)},
                                                  .attr = {.pool = {3, 2, 1}},
                                                  .bend = WFI_BENDS_AT_TIES},
                                                 {0}};

const wfi_op wfi_op_max_pool = {
    .name = "max_pool",
    .flags = WFI_OP_IMAGE | WFI_OP_ONE_TYPE,
    .tolerance = 0,
    .check = pool_check,
    .backward =
        (const wfi_op_backward[]){
            {.op = &wfi_op_max_pool_backward, .in = {WFI_DY, WFI_Y + 1}, .has_shape = true}, {0}},
    .flops = pool_flops,
    .reference = max_pool_reference,
    .samples = max_pool_samples,
    .place = wfi_place_images,
};

const wfi_op wfi_op_max_pool_backward = {
    .name = "max_pool_backward",
    .flags = WFI_OP_IMAGE | WFI_OP_ONE_TYPE,
    .tolerance = 1e-6f,
    .check = pool_backward_check,
    .flops = pool_backward_flops,
    .reference = max_pool_backward_reference,
};

static const wfi_op_sample avg_pool_samples[] = {
    {.n_in = 1, .in = {WFI_DIMS(2, 4, 6, 9)}, .attr = {.pool = {2, 3, 1}}}, {0}};

const wfi_op wfi_op_avg_pool = {
    .name = "avg_pool",
    .flags = WFI_OP_IMAGE | WFI_OP_ONE_TYPE,
    .tolerance = 1e-6f,
    .check = pool_check,
    .backward =
        (const wfi_op_backward[]){
            {.op = &wfi_op_avg_pool_backward, .in = {WFI_DY}, .has_shape = true}, {0}},
    .flops = pool_flops,
    .reference = avg_pool_reference,
    .samples = avg_pool_samples,
    .place = wfi_place_images,
};

const wfi_op wfi_op_avg_pool_backward = {
    .name = "avg_pool_backward",
    .flags = WFI_OP_IMAGE | WFI_OP_ONE_TYPE,
    .tolerance = 1e-6f,
    .check = pool_backward_check,
    .flops = pool_backward_flops,
    .reference = avg_pool_backward_reference,
};

static wf_tensor build_pool(const wfi_op *op, wf_tensor x, int64_t kernel, int64_t stride,
                            int64_t pad) {
    wfi_attr attr = {.pool = {kernel, stride, pad}};
    return wfi_build(op, &attr, NULL, 1, &x);
}

wf_tensor wf_max_pool(wf_tensor x, int64_t kernel, int64_t stride, int64_t pad) {
    return build_pool(&wfi_op_max_pool, x, kernel, stride, pad);
}

wf_tensor wf_avg_pool(wf_tensor x, int64_t kernel, int64_t stride, int64_t pad) {
    return build_pool(&wfi_op_avg_pool, x, kernel, stride, pad);
}

/* ---- the mean of a channel ---- */

static wf_status global_avg_pool_check(wf_graph *g, wfi_node *node) {
    WF_TRY(wfi_check_inputs(g, node, "f"));
    WF_TRY(wfi_check_image(g, node, 0));
    wf_shape x = wfi_in_shape(g, node, 0);
    return wfi_node_output(g, node, WF_F32, &WF_SHAPE(x.dim[0], x.dim[1]));
}

static wf_status global_avg_pool_backward_check(wf_graph *g, wfi_node *node) {
    WF_TRY(wfi_check_inputs(g, node, "f"));
    wf_shape dy = wfi_in_shape(g, node, 0);
    const wf_shape *x = &node->shape;
    if (x->n_dims != 4 || dy.n_dims != 2 || dy.dim[0] != x->dim[0] || dy.dim[1] != x->dim[1])
        return wfi_op_fail(g, node, WF_SHAPE, "dy %s is not one value a channel of x %s",
                           wfi_show(&dy).text, wfi_show(x).text);
    return wfi_node_output(g, node, WF_F32, x);
}

static void global_avg_pool_reference(const wfi_call *call) {
    const wfi_operand *x = &call->in[0];
    const int64_t *dim = x->shape.dim;
    span rows = {0, dim[2]}, cols = {0, dim[3]};
    float *y = call->out[0].data;
    for (int64_t n = 0; n < dim[0]; n++)
        for (int64_t c = 0; c < dim[1]; c++)
            y[n * dim[1] + c] = (float)(sum_of(x, n, c, rows, cols) / (double)(dim[2] * dim[3]));
}

static void global_avg_pool_backward_reference(const wfi_call *call) {
    const float *dy = call->in[0].data;
    const wfi_operand *dx = &call->out[0];
    const int64_t *dim = dx->shape.dim;
    int64_t n_pixels = dim[2] * dim[3], step = wfi_pixel_step(dx);
    for (int64_t n = 0; n < dim[0]; n++)
        for (int64_t c = 0; c < dim[1]; c++) {
            float *plane = wfi_plane(dx, n, c), value = dy[n * dim[1] + c] / (float)n_pixels;
            for (int64_t i = 0; i < n_pixels; i++) plane[i * step] = value;
        }
}

static const wfi_op_sample global_avg_pool_samples[] = {{.n_in = 1, .in = {WFI_DIMS(2, 4, 3, 5)}},
                                                        {0}};

const wfi_op wfi_op_global_avg_pool = {
    .name = "global_avg_pool",
    .flags = WFI_OP_IMAGE | WFI_OP_ONE_TYPE,
    .tolerance = 2e-6f,
    .check = global_avg_pool_check,
    .backward =
        (const wfi_op_backward[]){
            {.op = &wfi_op_global_avg_pool_backward, .in = {WFI_DY}, .has_shape = true}, {0}},
    .work = {1, WFI_X},
    .reference = global_avg_pool_reference,
    .samples = global_avg_pool_samples,
    .place = wfi_place_images,
};

const wfi_op wfi_op_global_avg_pool_backward = {
    .name = "global_avg_pool_backward",
    .flags = WFI_OP_IMAGE | WFI_OP_ONE_TYPE,
    .tolerance = 1e-6f,
    .check = global_avg_pool_backward_check,
    .reference = global_avg_pool_backward_reference,
};

wf_tensor wf_global_avg_pool(wf_tensor x) {
    return wfi_build(&wfi_op_global_avg_pool, NULL, NULL, 1, &x);
}
