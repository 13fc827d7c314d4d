/* Residual networks: torchvision's version 1.5 (a bottleneck strides in its 3x3
 * convolution) and its parameter names.
 *
 * He et al., Deep Residual Learning for Image Recognition, 2015.
 */
#include "nn/models/registry.h"

#include <stdio.h>
#include <weft/nn.h>

typedef struct resnet {
    int n_blocks[4];   /* of layer1 ... layer4 */
    int is_bottleneck; /* 1x1, 3x3, 1x1 convolutions instead of 3x3, 3x3 */
} resnet;

/* A bottleneck's output has this many times its inner channels. */
#define EXPANSION 4

static wf_tensor conv_bn(wf_tensor x, const char *conv, const char *bn, int64_t n_out,
                         int64_t kernel, int64_t stride) {
    wf_conv2d_shape shape = {.stride = stride, .pad = kernel / 2};
    return wf_batch_norm(wf_conv2d(x, conv, n_out, kernel, shape), bn);
}

static wf_tensor stem(wf_tensor x, int is_small) {
    x = wf_relu(conv_bn(x, "conv1", "bn1", 64, is_small ? 3 : 7, is_small ? 1 : 2));
    return is_small ? x : wf_max_pool(x, 3, 2, 1);
}

/* relu(f(x) + x), or relu(f(x) + projection of x) where the shapes differ. The block is also cut
 * before its last convolution: whole blocks are too coarse to balance stages. */
static wf_tensor block(wf_tensor x, const resnet *net, int64_t n_inner, int64_t stride,
                       const char *last_unit) {
    int64_t n_in = wf_tensor_shape(x).dim[1];
    int64_t n_out = net->is_bottleneck ? n_inner * EXPANSION : n_inner;
    wf_tensor f;
    if (net->is_bottleneck) {
        f = wf_relu(conv_bn(x, "conv1", "bn1", n_inner, 1, 1));
        f = wf_relu(conv_bn(f, "conv2", "bn2", n_inner, 3, stride));
        f = conv_bn(wf_cut(f, last_unit), "conv3", "bn3", n_out, 1, 1);
    } else {
        f = wf_relu(conv_bn(x, "conv1", "bn1", n_inner, 3, stride));
        f = conv_bn(wf_cut(f, last_unit), "conv2", "bn2", n_out, 3, 1);
    }
    if (stride != 1 || n_in != n_out)
        x = conv_bn(x, "downsample.0", "downsample.1", n_out, 1, stride);
    return wf_relu(wf_add(f, x));
}

/* The units are "layer1.0", "layer1.0.conv3", "layer1.1", ...: a plan's cut=layer3 means
 * layer3.0. */
static wf_tensor layer(wf_tensor x, const resnet *net, int i) {
    char unit[32], last_unit[48];
    wf_scope(x.graph, "layer%d", i + 1);
    for (int b = 0; b < net->n_blocks[i]; b++) {
        snprintf(unit, sizeof unit, "layer%d.%d", i + 1, b);
        snprintf(last_unit, sizeof last_unit, "%s.conv%d", unit, net->is_bottleneck ? 3 : 2);
        x = wf_cut(x, unit);
        wf_scope(x.graph, "%d", b);
        x = block(x, net, INT64_C(64) << i, b == 0 && i > 0 ? 2 : 1, last_unit);
        wf_scope_end(x.graph);
    }
    wf_scope_end(x.graph);
    return x;
}

static void build(wf_graph *g, const wf_model_config *c, const resnet *net) {
    wf_tensor x = wf_input(g, "x", WF_F32, WF_SHAPE(c->channels, c->height, c->width));
    x = stem(wf_cut(x, "stem"), c->small_stem);
    for (int i = 0; i < 4; i++) x = layer(x, net, i);
    x = wf_global_avg_pool(wf_cut(x, "head"));
    wfi_model_classify(wf_linear(x, "fc", c->n_classes), c);
}

void wfi_model_resnet18(wf_graph *g, const void *config) {
    build(g, config, &(resnet){{2, 2, 2, 2}, 0});
}

void wfi_model_resnet34(wf_graph *g, const void *config) {
    build(g, config, &(resnet){{3, 4, 6, 3}, 0});
}

void wfi_model_resnet50(wf_graph *g, const void *config) {
    build(g, config, &(resnet){{3, 4, 6, 3}, 1});
}
