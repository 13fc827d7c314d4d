/* Convolutions. Activations keep the layout that the graph gave them; weights and
 * their gradients are in the format that the library likes best. */
#include "kernel/onednn/onednn.h"

#include <string.h>

/* In the images' layout; by Winograd's algorithm; on row-major or channels-last copies, where 1x1
 * convolutions are products of matrices; or in the images' layout, without weights of the window
 * that a smaller image never meets. */
enum form { DIRECT, WINOGRAD, NCHW, NHWC, TRIMMED };
const char *const wfi_conv_forms[] = {"direct", "winograd", "nchw", "nhwc", "trimmed", NULL};

enum direction { FORWARD, BACKWARD_DATA, BACKWARD_WEIGHT, N_DIRECTIONS };

typedef struct convolution {
    enum direction direction;
    int x, weight, bias, y; /* operands: the values, or their gradients */
    wfi_md x_md, weight_md, bias_md, y_md;
    wfi_spatial_window window;
} convolution;

/* Whether Winograd's F(4x4, 3x3) is faster, from the shape alone. Winograd works on tiles of 4 x 4
 * outputs. Enough outputs must amortize its fixed cost for the weights (36 values for every 9), and
 * tiles across the edge are partly wasted.
 *
 * Direct time / Winograd time of forward, backward data, backward weight with 2.6.3
 * on one Zen 5 core, minimum of 5 to 15 interleaved runs; the rows of ResNet-50 at
 * 128 x 128 (outputs = n h w):
 *
 *   channels size   batch 4             batch 12            batch 32
 *      64   32x32   1.79 1.92 1.32      1.62 1.79 1.31      1.82 1.87 1.25
 *     128   16x16   1.28 1.37 1.88      1.66 1.62 1.58      1.89 1.85 1.74
 *     256    8x8    0.70 0.68 1.06      1.22 1.14 1.95      1.70 1.94 2.20
 *     512    4x4    0.48 0.35 0.43      0.56 0.47 1.05      1.08 0.86 1.93
 *
 * and at 28 x 28 and batch 128: 7x7 1.3 1.4 1.0 (64 channels) to 2.3 2.4 2.8 (512),
 * 4x4 1.5 1.1 1.4 to 2.3 2.1 2.8, 2x2 0.5 0.4 0.4 to 0.7 0.9 1.2. */
static bool winograd_pays(const convolution *conv) {
    static const int64_t enough[N_DIRECTIONS] = {512, 768, 256};
    const int64_t *y = conv->y_md.dim;
    int64_t n_outputs = y[0] * y[2] * y[3];
    int64_t n_tiles = y[0] * ((y[2] + 3) / 4) * ((y[3] + 3) / 4);
    return n_outputs >= enough[conv->direction] && n_outputs >= 8 * n_tiles;
}

/* oneDNN 3 has none any more: it declines, and direct is taken. */
static bool winograd_possible(const convolution *conv) {
    const wfi_spatial_window *window = &conv->window;
    return conv->weight_md.n_dims == 4 && window->kernel[0] == 3 && window->kernel[1] == 3 &&
           window->stride == 1 && window->pad == 1 && !window->gap &&
           conv->x_md.kind == WFI_MD_C16 && conv->y_md.kind == WFI_MD_C16;
}

static wf_status describe_with(const wfi_kernel *kernel, const convolution *conv,
                               dnnl_alg_kind_t alg, dnnl_primitive_desc_t *hint_out,
                               dnnl_primitive_desc_t *desc_out) {
    const wfi_onednn_library lib = wfi_library_at(kernel);
    wfi_md any = conv->weight_md, gradient = conv->weight_md;
    any.kind = gradient.kind = WFI_MD_ANY;
    any.type = conv->x_md.type;
    wfi_primitive_op forward = {.kind = dnnl_convolution,
                                .alg = alg,
                                .md = {conv->x_md, any, {0}, conv->y_md},
                                .window = conv->window},
                     backward = forward;
    wf_status status;
    *hint_out = NULL;
    if (conv->direction == FORWARD) {
        forward.md[2] = conv->bias_md;
        status = wfi_describe(&lib, dnnl_forward_training, &forward, desc_out);
    } else {
        bool is_data = conv->direction == BACKWARD_DATA;
        backward.md[1] = is_data ? any : gradient;
        backward.md[2] = conv->bias_md;
        status = wfi_describe_backward(&lib, is_data ? dnnl_backward_data : dnnl_backward_weights,
                                       &forward, &backward, hint_out, desc_out);
    }
    if (status != WF_OK || !wfi_desc_is_reference(*desc_out)) return status;
    dnnl_primitive_desc_destroy(*desc_out);
    if (*hint_out) dnnl_primitive_desc_destroy(*hint_out);
    return WF_UNSUPPORTED;
}

static const struct {
    int x, weight, bias, y;
} args_of[N_DIRECTIONS] = {
    {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_BIAS, DNNL_ARG_DST},
    {DNNL_ARG_DIFF_SRC, DNNL_ARG_WEIGHTS, 0, DNNL_ARG_DIFF_DST},
    {DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_BIAS, DNNL_ARG_DIFF_DST},
};

static wf_status bind_parameters(wfi_kernel *kernel, wfi_primitive *primitive,
                                 const convolution *conv) {
    if (conv->bias_md.kind != WFI_MD_ABSENT)
        WF_TRY(wfi_bind(kernel, primitive, args_of[conv->direction].bias, conv->bias));
    return wfi_bind_format(kernel, primitive, args_of[conv->direction].weight, conv->weight,
                           &conv->weight_md);
}

/* Whether the image has another layout than the form, so that it must be reordered. */
static bool lay_out(enum form form, const wfi_md *image, wfi_md *md_out) {
    int64_t c = image->dim[1], h = image->dim[2], w = image->dim[3];
    *md_out = wfi_md_make(WFI_MD_STRIDED, 4, image->dim);
    md_out->type = image->type;
    if (form == NCHW) return image->kind == WFI_MD_C16;
    const dnnl_dims_t last = {c * h * w, 1, w * c, c};
    memcpy(md_out->stride, last, 4 * sizeof *last);
    return true;
}

/* The library convolves row-major images of any channels (LeNet's 6 -> 16), but not between a
 * row-major and a blocked one, nor in odd groups: operands in other layouts are reordered through
 * scratch memory. */
static wf_status describe_through_scratch(wfi_kernel *kernel, const convolution *conv,
                                          enum form form, const char **reason_out) {
    wfi_onednn *state = wfi_onednn_of(kernel);
    convolution plain = *conv;
    bool moves_x = lay_out(form, &conv->x_md, &plain.x_md);
    bool moves_y = lay_out(form, &conv->y_md, &plain.y_md);
    bool writes_x = conv->direction == BACKWARD_DATA, writes_y = conv->direction == FORWARD;
    size_t x_bytes = moves_x ? wfi_md_row_major_bytes(&plain.x_md) : 0;
    size_t y_bytes = moves_y ? wfi_md_row_major_bytes(&plain.y_md) : 0;
    size_t y_place = wfi_round_up(x_bytes, WFI_ALIGN_BYTES);
    state->own_scratch_bytes = wfi_round_up(y_place + y_bytes, WFI_ALIGN_BYTES);
    if (moves_x && !writes_x)
        WF_TRY(wfi_add_move(kernel, &conv->x_md, conv->x, 0, &plain.x_md, WFI_SCRATCH, 0));
    if (moves_y && !writes_y)
        WF_TRY(wfi_add_move(kernel, &conv->y_md, conv->y, 0, &plain.y_md, WFI_SCRATCH, y_place));
    dnnl_primitive_desc_t hint, desc;
    wfi_primitive *primitive;
    WF_TRY(describe_with(kernel, &plain, dnnl_convolution_direct, &hint, &desc));
    WF_TRY(wfi_add_primitive(kernel, desc, hint, reason_out, &primitive));
    kernel->detail = wfi_desc_name(desc);
    int x_arg = args_of[conv->direction].x, y_arg = args_of[conv->direction].y;
    WF_TRY(moves_x ? wfi_bind_at(kernel, primitive, x_arg, WFI_SCRATCH, 0)
                   : wfi_bind(kernel, primitive, x_arg, conv->x));
    WF_TRY(moves_y ? wfi_bind_at(kernel, primitive, y_arg, WFI_SCRATCH, y_place)
                   : wfi_bind(kernel, primitive, y_arg, conv->y));
    WF_TRY(bind_parameters(kernel, primitive, conv));
    if (moves_x && writes_x)
        return wfi_add_move(kernel, &plain.x_md, WFI_SCRATCH, 0, &conv->x_md, conv->x, 0);
    if (moves_y && writes_y)
        return wfi_add_move(kernel, &plain.y_md, WFI_SCRATCH, y_place, &conv->y_md, conv->y, 0);
    return WF_OK;
}

/* Finds the padding at the end that the last output needs; it may be negative. */
static void find_pad_end(convolution *conv) {
    wfi_spatial_window *window = &conv->window;
    for (int i = 0; i < 2; i++)
        window->pad_end[i] = (conv->y_md.dim[2 + i] - 1) * window->stride +
                             (window->kernel[i] - 1) * (window->gap + 1) + 1 -
                             conv->x_md.dim[2 + i] - window->pad;
}

/* Whether weight `k` of a row or column of the window meets the image for any output. */
static bool meets_image(const convolution *conv, int dim, int64_t k) {
    const wfi_spatial_window *window = &conv->window;
    int64_t begin = k * (window->gap + 1) - window->pad, n_y = conv->y_md.dim[2 + dim];
    int64_t y = begin < 0 ? (-begin + window->stride - 1) / window->stride : 0;
    return y < n_y && begin + y * window->stride < conv->x_md.dim[2 + dim];
}

/* Leaves the weights out that are multiplied by padding only: of 3 x 3 on an image of one pixel,
 * all but the one in the middle. */
static bool trim(convolution *conv) {
    wfi_spatial_window *window = &conv->window;
    int64_t first[2], n[2];
    for (int i = 0; i < 2; i++) {
        first[i] = 0, n[i] = window->kernel[i];
        while (n[i] > 1 && !meets_image(conv, i, first[i])) first[i]++, n[i]--;
        while (n[i] > 1 && !meets_image(conv, i, first[i] + n[i] - 1)) n[i]--;
    }
    bool is_whole = n[0] == window->kernel[0] && n[1] == window->kernel[1];
    int64_t before = first[0] * (window->gap + 1);
    if (conv->weight_md.n_dims != 4 || is_whole || first[0] != first[1] || before > window->pad)
        return false;
    window->pad -= before;
    conv->weight_md.is_part = true;
    conv->weight_md.first = first[0] * window->kernel[1] + first[1];
    for (int i = 0; i < 2; i++) conv->weight_md.dim[2 + i] = window->kernel[i] = n[i];
    find_pad_end(conv);
    return true;
}

static wf_status describe_as_it_lies(wfi_kernel *kernel, const convolution *conv,
                                     dnnl_alg_kind_t alg, const char **reason_out) {
    dnnl_primitive_desc_t hint, desc;
    wfi_primitive *primitive;
    WF_TRY(describe_with(kernel, conv, alg, &hint, &desc));
    bool fits = true;
    wf_status status = WF_OK;
    if (conv->weight_md.is_part && conv->direction == BACKWARD_WEIGHT)
        status = wfi_md_is_blocked(kernel->ctx, wfi_desc_md(desc, args_of[conv->direction].weight),
                                   &conv->weight_md, &fits);
    if (status == WF_OK && !fits)
        status = wfi_decline(reason_out, "a part of a gradient is summed from blocks of 16 x 16");
    if (status != WF_OK) {
        dnnl_primitive_desc_destroy(desc);
        if (hint) dnnl_primitive_desc_destroy(hint);
        return status;
    }
    WF_TRY(wfi_add_primitive(kernel, desc, hint, reason_out, &primitive));
    WF_TRY(wfi_bind(kernel, primitive, args_of[conv->direction].x, conv->x));
    WF_TRY(wfi_bind(kernel, primitive, args_of[conv->direction].y, conv->y));
    return bind_parameters(kernel, primitive, conv);
}

/* In the form of kernel->way. */
static wf_status describe_in(wfi_kernel *kernel, const convolution *conv, const char **reason_out) {
    enum form form = (enum form)kernel->way.form;
    convolution trimmed = *conv;
    if (form == NCHW || form == NHWC)
        return describe_through_scratch(kernel, conv, form, reason_out);
    if (form == WINOGRAD && !winograd_possible(conv))
        return wfi_decline(reason_out, "Winograd's algorithm does not support this shape");
    if (form == TRIMMED && !trim(&trimmed))
        return wfi_decline(reason_out, "all weights meet the image");
    return describe_as_it_lies(
        kernel, form == TRIMMED ? &trimmed : conv,
        form == WINOGRAD ? dnnl_convolution_winograd : dnnl_convolution_direct, reason_out);
}

/* Where the library does not have one form, it has the next. */
static wf_status describe_usual(wfi_kernel *kernel, const convolution *conv,
                                const char **reason_out) {
    static const enum form forms[] = {TRIMMED, WINOGRAD, DIRECT, NCHW};
    wf_conv choice = kernel->options.conv;
    bool winograd = choice == WF_CONV_WINOGRAD || (choice == WF_CONV_AUTO && winograd_pays(conv));
    bool takes[] = {choice == WF_CONV_AUTO, winograd, true, true};
    wf_status status = WF_UNSUPPORTED;
    for (size_t k = 0; k < WFI_COUNT(forms) && status == WF_UNSUPPORTED; k++) {
        if (!takes[k]) continue;
        kernel->way.form = forms[k];
        status = describe_in(kernel, conv, reason_out);
    }
    return status;
}

static wf_status describe(wfi_kernel *kernel, convolution *conv, const char **reason_out) {
    const wfi_attr *attr = &kernel->node->attr;
    conv->x_md = wfi_operand_md(kernel, conv->x);
    conv->y_md = wfi_operand_md(kernel, conv->y);
    conv->bias_md.kind = WFI_MD_ABSENT;
    if (conv->bias >= 0) conv->bias_md = wfi_operand_md(kernel, conv->bias);
    const int64_t *w = wfi_operand_value(kernel, conv->weight)->shape.dim;
    int64_t groups = attr->conv.groups, stride = attr->conv.stride, pad = attr->conv.pad;
    conv->weight_md =
        groups == 1
            ? wfi_md_make(WFI_MD_STRIDED, 4, w)
            : wfi_md_make(WFI_MD_STRIDED, 5, (int64_t[]){groups, w[0] / groups, w[1], w[2], w[3]});
    conv->weight_md.type = wfi_operand_md(kernel, conv->weight).type;
    int64_t dilation = attr->conv.dilation;
    conv->window = (wfi_spatial_window){
        .kernel = {w[2], w[3]}, .stride = stride, .pad = pad, .gap = dilation - 1};
    find_pad_end(conv);
    return kernel->way.form < 0 ? describe_usual(kernel, conv, reason_out)
                                : describe_in(kernel, conv, reason_out);
}

/* x, weight, bias -> y */
wf_status wfi_describe_conv2d(wfi_kernel *kernel, const char **reason_out) {
    convolution conv = {.direction = FORWARD, .x = 0, .weight = 1, .bias = 2, .y = 3};
    if (kernel->node->n_in == 2) conv.bias = -1, conv.y = 2;
    return describe(kernel, &conv, reason_out);
}

/* dy, weight -> dx */
wf_status wfi_describe_conv2d_backward_data(wfi_kernel *kernel, const char **reason_out) {
    convolution conv = {.direction = BACKWARD_DATA, .y = 0, .weight = 1, .bias = -1, .x = 2};
    return describe(kernel, &conv, reason_out);
}

/* dy, x -> dweight, dbias */
wf_status wfi_describe_conv2d_backward_weight(wfi_kernel *kernel, const char **reason_out) {
    convolution conv = {.direction = BACKWARD_WEIGHT, .y = 0, .x = 1, .weight = 2, .bias = 3};
    if (kernel->node->n_out == 1) conv.bias = -1;
    return describe(kernel, &conv, reason_out);
}
