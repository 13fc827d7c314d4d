/* A small model with units of several slices. */
#pragma once

#include "test.h"

/* small_net, wide enough for several slices; its tied weight lies across their borders. */
static inline void wide_net(wf_graph *g, const void *config) {
    wf_tensor x = wf_input(g, "x", WF_F32, WF_SHAPE(3, 8, 8));
    wf_tensor y = wf_input(g, "y", WF_I32, WF_SCALAR);
    wf_tensor none = {g, -1};
    wf_conv2d_shape half = {.stride = 2, .pad = 1}, same = {.pad = 1};
    wf_tensor h = wf_relu(wf_batch_norm(wf_conv2d(x, "conv1", 16, 3, half), "bn1"));
    wf_cut(h, "block");
    h = wf_relu(wf_batch_norm(wf_conv2d(h, "conv2", 48, 3, same), "bn2"));
    wf_cut(h, "head");
    h = wf_linear(wf_global_avg_pool(h), "fc1", 80);
    wf_tensor tied = wf_parameter(g, "tied", WF_SHAPE(80, 80), (wf_init){WF_INIT_NORMAL, 0.1f});
    h = wf_gelu(wf_linear_with(h, tied, none));
    wf_cut(h, "last");
    h = wf_linear(wf_linear_with(h, tied, none), "fc2", 70);
    wf_loss(wf_cross_entropy(wf_linear(h, "fc", 10), y));
}
