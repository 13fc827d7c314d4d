/* A multi-layer perceptron over the pixels: two hidden layers of 256. */
#include "nn/models/registry.h"

#include <weft/nn.h>

#define N_HIDDEN 256

void wfi_model_mlp(wf_graph *g, const void *config) {
    const wf_model_config *c = config;
    int64_t n_pixels = c->channels * c->height * c->width;
    wf_tensor x = wf_input(g, "x", WF_F32, WF_SHAPE(c->channels, c->height, c->width));
    x = wf_cut(x, "net1");
    x = wf_reshape(x, WF_SHAPE(-1, n_pixels));
    x = wf_cut(wf_relu(wf_linear(x, "net1", N_HIDDEN)), "net2");
    x = wf_cut(wf_relu(wf_linear(x, "net2", N_HIDDEN)), "net3");
    wfi_model_classify(wf_linear(x, "net3", c->n_classes), c);
}
