/* Layers: parameters by name, then an op. Initial values are PyTorch's defaults
 * (torchvision's for convolutions). */
#include "op/op_table.h"

#include <math.h>
#include <stdio.h>
#include <weft/nn.h>

/* The size of dim d, counted from the end for d < 0; 1 if the dim does not exist: the following op
 * will refuse the shape with an error. */
static int64_t dim_of(wf_tensor x, int d) {
    wf_shape shape = wf_tensor_shape(x);
    if (d < 0) d += shape.n_dims;
    return d >= 0 && d < shape.n_dims ? shape.dim[d] : 1;
}

static wf_init constant(float value) {
    return (wf_init){WF_INIT_CONSTANT, value};
}

wf_tensor wf_linear(wf_tensor x, const char *name, int64_t n_out) {
    wf_graph *g = x.graph;
    int64_t n_in = dim_of(x, -1);
    wf_init init = {WF_INIT_UNIFORM, (float)(1 / sqrt((double)(n_in > 0 ? n_in : 1)))};
    wf_scope(g, "%s", name);
    wf_tensor weight = wf_parameter(g, "weight", WF_SHAPE(n_out, n_in), init);
    wf_tensor bias = wf_parameter(g, "bias", WF_SHAPE(n_out), init);
    wf_scope_end(g);
    return wf_linear_with(x, weight, bias);
}

wf_tensor wf_linear_in_out(wf_tensor x, const char *name, int64_t n_out, float std) {
    wf_graph *g = x.graph;
    wf_scope(g, "%s", name);
    wf_tensor weight =
        wf_parameter(g, "weight", WF_SHAPE(dim_of(x, -1), n_out), (wf_init){WF_INIT_NORMAL, std});
    wf_tensor bias = wf_parameter(g, "bias", WF_SHAPE(n_out), constant(0));
    wf_scope_end(g);
    return wf_linear_in_out_with(x, weight, bias);
}

wf_tensor wf_conv2d(wf_tensor x, const char *name, int64_t n_out, int64_t kernel,
                    wf_conv2d_shape shape) {
    wf_graph *g = x.graph;
    int64_t groups = shape.groups > 0 ? shape.groups : 1;
    double fan_out = (double)n_out * (double)kernel * (double)kernel;
    float std = fan_out > 0 ? (float)sqrt(2 / fan_out) : 0;
    wf_scope(g, "%s", name);
    wf_tensor weight =
        wf_parameter(g, "weight", WF_SHAPE(n_out, dim_of(x, 1) / groups, kernel, kernel),
                     (wf_init){WF_INIT_NORMAL, std});
    wf_scope_end(g);
    return wf_conv2d_with(x, weight, wfi_inert(g), shape);
}

/* The op writes the batch's statistics; they are folded into the running ones at the
 * end of the step, in the order of the microbatches. */
static void note_statistics(wf_graph *g, const wfi_node *node, wf_tensor x, wf_tensor mean,
                            wf_tensor var, wf_tensor n_batches) {
    wf_shape shape = wf_tensor_shape(x);
    wfi_graph_add_stat(g, (wfi_stat){.mean = node->out[1],
                                     .var = node->out[2],
                                     .running_mean = mean.id,
                                     .running_var = var.id,
                                     .n_batches = n_batches.id,
                                     .unit = node->unit,
                                     .n_reduced = wf_shape_n_elem(&shape) / shape.dim[1],
                                     .momentum = 0.1});
}

wf_tensor wf_batch_norm(wf_tensor x, const char *name) {
    wf_graph *g = x.graph;
    wf_shape channels = WF_SHAPE(dim_of(x, 1));
    wfi_attr attr = {.norm = {.eps = 1e-5}};
    wf_scope(g, "%s", name);
    wf_tensor scale = wf_parameter(g, "weight", channels, constant(1));
    wf_tensor shift = wf_parameter(g, "bias", channels, constant(0));
    wf_tensor mean = wfi_buffer(g, "running_mean", WF_F32, channels, 0);
    wf_tensor var = wfi_buffer(g, "running_var", WF_F32, channels, 1);
    wf_tensor n_batches = wfi_buffer(g, "num_batches_tracked", WF_I64, WF_SCALAR, 0);
    wf_scope_end(g);
    if (!wf_graph_is_training(g))
        return wfi_graph_op(g, &wfi_op_batch_norm_inference, &attr, NULL, 5,
                            (wf_tensor[]){x, scale, shift, mean, var});
    const wfi_node *node =
        wfi_graph_add(g, &wfi_op_batch_norm, &attr, NULL, 3, (wf_tensor[]){x, scale, shift});
    if (!node) return wfi_inert(g);
    wf_shape shape = wf_tensor_shape(x);
    if (wf_shape_n_elem(&shape) == shape.dim[1]) {
        wfi_graph_fail(g, WF_INVALID_ARG,
                       "batch_norm '%s': one value a channel has no variance; train with a larger "
                       "microbatch or a larger image",
                       name);
        return wfi_inert(g);
    }
    note_statistics(g, node, x, mean, var, n_batches);
    return wfi_tensor(g, node->out[0]);
}

wf_tensor wf_rms_norm(wf_tensor x, const char *name, float eps) {
    wf_scope(x.graph, "%s", name);
    wf_tensor scale = wf_parameter(x.graph, "weight", WF_SHAPE(dim_of(x, -1)), constant(1));
    wf_scope_end(x.graph);
    return wf_rms_norm_with(x, scale, eps);
}

wf_tensor wf_layer_norm(wf_tensor x, const char *name) {
    wf_graph *g = x.graph;
    wf_shape features = WF_SHAPE(dim_of(x, -1));
    wf_scope(g, "%s", name);
    wf_tensor scale = wf_parameter(g, "weight", features, constant(1));
    wf_tensor shift = wf_parameter(g, "bias", features, constant(0));
    wf_scope_end(g);
    return wf_layer_norm_with(x, scale, shift, 1e-5f);
}

wf_tensor wf_embedding(wf_tensor ids, const char *name, int64_t n_rows, int64_t n, float std) {
    wf_graph *g = ids.graph;
    wf_scope(g, "%s", name);
    wf_tensor table =
        wf_parameter(g, "weight", WF_SHAPE(n_rows, n), (wf_init){WF_INIT_NORMAL, std});
    wf_scope_end(g);
    return wf_embedding_with(ids, table);
}

wf_tensor wf_lstm(wf_tensor x, const char *name, int layer, int64_t hidden) {
    static const char *const parts[] = {"weight_ih", "weight_hh", "bias_ih", "bias_hh"};
    wf_graph *g = x.graph;
    float limit = (float)(1 / sqrt((double)(hidden > 0 ? hidden : 1)));
    wf_shape shapes[] = {WF_SHAPE(4 * hidden, dim_of(x, -1)), WF_SHAPE(4 * hidden, hidden),
                         WF_SHAPE(4 * hidden), WF_SHAPE(4 * hidden)};
    wf_tensor in[6] = {x};
    char text[32];
    wf_scope(g, "%s", name);
    for (int k = 0; k < 4; k++) {
        snprintf(text, sizeof text, "%s_l%d", parts[k], layer);
        in[1 + k] = wf_parameter(g, text, shapes[k], (wf_init){WF_INIT_UNIFORM, limit});
    }
    snprintf(text, sizeof text, "l%d", layer);
    in[5] = wfi_hidden_state(g, text, WF_SHAPE(2, hidden));
    wf_scope_end(g);
    const wfi_node *node = wfi_graph_add(g, &wfi_op_lstm, NULL, NULL, 6, in);
    if (!node) return wfi_inert(g);
    wfi_graph_add_hidden(g, (wfi_hidden){in[5].id, node->out[1]});
    return wfi_tensor(g, node->out[0]);
}
