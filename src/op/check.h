/* Functions shared by the checks, gradients and builders of many ops. Private to src/op. */
#pragma once

#include "graph/op.h"
#include "op/op_table.h"

static inline wf_graph *wfi_graph_of(wfi_autodiff *ad) {
    return wfi_autodiff_graph(ad);
}
/* A copy: declaring an output may move the graph's values. Input i must be there. */
static inline wf_shape wfi_in_shape(const wf_graph *g, const wfi_node *node, int i) {
    return g->values[node->in[i]].shape;
}
static inline wf_shape wfi_out_shape(const wf_graph *g, const wfi_node *node, int i) {
    return g->values[node->out[i]].shape;
}

/* Use as wfi_show(&shape).text inside one expression. */
typedef struct wfi_shown {
    char text[WFI_SHAPE_TEXT];
} wfi_shown;
wfi_shown wfi_show(const wf_shape *shape);

/* Records "<op>: <sentence>". */
wf_status wfi_op_fail(const wf_graph *g, const wfi_node *node, wf_status status, const char *format,
                      ...) WFI_PRINTF(4, 5);

/* One character an input: f F32, i I32; '?' after it: may be absent. */
wf_status wfi_check_inputs(const wf_graph *g, const wfi_node *node, const char *kinds);

/* Cuts of elementwise ops, and of ops that need the whole last dim: by the first of several
 * dims. */
extern const wfi_op_cut wfi_place_elements[], wfi_place_rows[];
/* Cuts of images: by sample and by channel. */
extern const wfi_op_cut wfi_place_images[];

/* Inputs F32 of one shape; one output like them. */
wf_status wfi_check_elementwise(wf_graph *g, wfi_node *node);
/* The same, and the last dim is not empty. */
wf_status wfi_check_rowwise(wf_graph *g, wfi_node *node);
/* Input 0 is normalized along its last dim, which input `along` has, too; attr.norm.eps. */
wf_status wfi_check_normalized(const wf_graph *g, const wfi_node *node, int along);
/* Input i is an image [n, c, h, w] without an empty dim. */
wf_status wfi_check_image(const wf_graph *g, const wfi_node *node, int i);

/* Input i has the shape `want`; `name` is for the sentence. */
wf_status wfi_check_shape(const wf_graph *g, const wfi_node *node, int i, const char *name,
                          wf_shape want);
/* Input 2, which may be absent, is a bias for n_out outputs. */
wf_status wfi_check_bias(const wf_graph *g, const wfi_node *node, int64_t n_out);

/* If v wants a gradient: adds the node and contributes its first output to v. */
wf_status wfi_pass(wfi_autodiff *ad, int32_t v, const wfi_op *op, const wfi_attr *attr,
                   const wf_shape *shape, int n_in, const int32_t *in);
/* The gradients of a node of x, weight and perhaps a bias: `data` of dy and weight; `weights`, with
 * the attributes `attr`, of dy and x. The shapes of both are the nodes' own. */
wf_status wfi_pass_weighted(wfi_autodiff *ad, const wfi_node *node, const wfi_op *data,
                            const wfi_op *weights, const wfi_attr *attr);

/* For the public builders: an inert first input gives an inert output. */
wf_tensor wfi_build(const wfi_op *op, const wfi_attr *attr, const wf_shape *shape, int n_in,
                    const wf_tensor *in);

/* `factor` times the elements of the first output. */
double wfi_flops_of_output(const wf_graph *g, const wfi_node *node, double factor);

/* In a channel of an image of either layout: from one pixel to the next. */
static inline int64_t wfi_pixel_step(const wfi_operand *o) {
    return o->layout == WFI_C16 ? 16 : 1;
}
/* The channel's first pixel. */
static inline float *wfi_plane(const wfi_operand *o, int64_t n, int64_t c) {
    return (float *)o->data + wfi_image_at(o, n, c, 0, 0);
}

/* A group for each row of x; a thread for each element of it, and rows of n[1]. */
static inline wfi_numbers wfi_row_numbers(const wf_shape *x) {
    int64_t n_rows = wfi_n_rows(x);
    return (wfi_numbers){.n_groups = n_rows, .n = {n_rows, wfi_last_dim(x)}};
}
/* Of norms over rows, and of the gradients of their weights (layer_norm.c). */
wfi_numbers wfi_norm_numbers(const wfi_call *call);
wfi_numbers wfi_norm_weight_numbers(const wfi_call *call);
static inline wfi_numbers wfi_element_numbers(const wf_shape *x, int64_t row) {
    int64_t n = wf_shape_n_elem(x);
    return (wfi_numbers){.n_threads = n, .n = {n, row}};
}

/* ---- elements.c ---- */

void wfi_relu_reference(const wfi_call *call);
void wfi_tanh_forward_reference(const wfi_call *call);
void wfi_sigmoid_reference(const wfi_call *call);
void wfi_silu_reference(const wfi_call *call);
void wfi_silu_backward_reference(const wfi_call *call);
void wfi_scale_reference(const wfi_call *call);
void wfi_leaky_relu_reference(const wfi_call *call);
void wfi_relu_backward_reference(const wfi_call *call);
void wfi_leaky_relu_backward_reference(const wfi_call *call);
void wfi_tanh_backward_reference(const wfi_call *call);
void wfi_sigmoid_backward_reference(const wfi_call *call);
void wfi_add_reference(const wfi_call *call);
void wfi_add_relu_reference(const wfi_call *call);
void wfi_mul_reference(const wfi_call *call);
void wfi_gelu_reference(const wfi_call *call);
void wfi_gelu_backward_reference(const wfi_call *call);
wfi_numbers wfi_scale_numbers(const wfi_call *call);
wfi_numbers wfi_gelu_numbers(const wfi_call *call);
