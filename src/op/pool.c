/* Poolings of images; any layout.
 *
 * max_pool(x) -> y, workspace; max_pool_backward(dy, workspace) -> dx
 * avg_pool(x) -> y; avg_pool_backward(dy) -> dx; padding counts in the divisor
 * global_avg_pool(x) -> y [n, c]; global_avg_pool_backward(dy) -> dx
 *
 * x [n, c, h, w], y [n, c, oh, ow]. node->shape of a backward is x's. The reference's
 * workspace holds an I32 an element of y, in y's order: the pixel of x, counted
 * row by row, that is the largest (the first of them). */
#include "op/plain.h"

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

static int64_t plane_at(const wfi_operand *image, int64_t plane) {
    int64_t n_channels = image->shape.dim[1];
    return wfi_image_at(image, plane / n_channels, plane % n_channels, 0, 0);
}

#define PLANE(operand, n_pixels) plane_at(plain_operand(a.call, operand), GROUP_INDEX)
#define APART(operand)           wfi_pixel_step(plain_operand(a.call, operand))
#define FOR_PLANE(row, col, height, width)                                                         \
    for (int64_t row = 0; row < (height); row++)                                                   \
        for (int64_t col = 0; col < (width); col++)
#include "op/pool.cl"

static wfi_numbers numbers_of(const wfi_call *call, const wf_shape *x, const wf_shape *y) {
    const wfi_attr *a = call->attr;
    return (wfi_numbers){.n_groups = x->dim[0] * x->dim[1],
                         .n = {0, x->dim[2], x->dim[3], y->dim[2], y->dim[3], a->pool.kernel,
                               a->pool.stride, a->pool.pad}};
}

static wfi_numbers pool_numbers(const wfi_call *call) {
    return numbers_of(call, &call->in[0].shape, &call->out[0].shape);
}

static wfi_numbers backward_numbers(const wfi_call *call) {
    return numbers_of(call, &call->out[0].shape, &call->in[0].shape);
}

/* Both ops of a pooling. The backward reads also `kept` (0: nothing). The sample is last. */
#define POOL_OPS(label, allowed, backward_allowed, kept, its_check, its_flops, backward_flops,     \
                 ...)                                                                              \
    PLAIN_REFERENCE(label##_reference, label, pool_numbers)                                        \
    PLAIN_REFERENCE(label##_backward_reference, label##_backward, backward_numbers)                \
    static const wfi_op_sample label##_samples[] = {{.n_in = 1, __VA_ARGS__}, {0}};                \
    const wfi_op wfi_op_##label = {                                                                \
        .name = #label,                                                                            \
        .flags = WFI_OP_IMAGE | WFI_OP_ONE_TYPE,                                                   \
        .tolerance = allowed,                                                                      \
        .check = its_check##_check,                                                                \
        .backward =                                                                                \
            (const wfi_op_backward[]){                                                             \
                {.op = &wfi_op_##label##_backward, .in = {WFI_DY, kept}, .has_shape = true}, {0}}, \
        .flops = its_flops,                                                                        \
        .work = {1, WFI_X},                                                                        \
        .reference = label##_reference,                                                            \
        .numbers = pool_numbers,                                                                   \
        .samples = label##_samples,                                                                \
        .place = wfi_place_images,                                                                 \
    };                                                                                             \
    const wfi_op wfi_op_##label##_backward = {                                                     \
        .name = #label "_backward",                                                                \
        .flags = WFI_OP_IMAGE | WFI_OP_ONE_TYPE,                                                   \
        .tolerance = backward_allowed,                                                             \
        .makes = {WFI_OWN_SHAPE},                                                                  \
        .flops = backward_flops,                                                                   \
        .reference = label##_backward_reference,                                                   \
        .numbers = backward_numbers,                                                               \
    };

POOL_OPS(max_pool, 0, 1e-6f, WFI_Y + 1, pool, pool_flops, pool_backward_flops,
         .in = {WFI_DIMS(2, 4, 7, 5)}, .attr = {.pool = {3, 2, 1}}, .bend = WFI_BENDS_AT_TIES)
POOL_OPS(avg_pool, 1e-6f, 1e-6f, 0, pool, pool_flops, pool_backward_flops,
         .in = {WFI_DIMS(2, 4, 6, 9)}, .attr = {.pool = {2, 3, 1}})

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

POOL_OPS(global_avg_pool, 2e-6f, 1e-6f, 0, global_avg_pool, NULL, NULL,
         .in = {WFI_DIMS(2, 4, 3, 5)})

wf_tensor wf_global_avg_pool(wf_tensor x) {
    return wfi_build(&wfi_op_global_avg_pool, NULL, NULL, 1, &x);
}
