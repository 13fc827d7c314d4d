/* A language model of LSTM layers, with the parameter names of PyTorch's word_language_model.
 *
 * Zaremba, Sutskever, Vinyals, Recurrent Neural Network Regularization, 2014; tied weights: Press
 * and Wolf, Using the Output Embedding to Improve Language Models, 2016.
 */
#include "nn/models/registry.h"

#include <stdio.h>
#include <weft/nn.h>

#define INIT_LIMIT 0.1f

static wf_tensor table(wf_graph *g, const char *name, const wf_model_config *c, int64_t width) {
    return wf_parameter(g, name, WF_SHAPE(c->n_classes, width),
                        (wf_init){WF_INIT_UNIFORM, INIT_LIMIT});
}

void wfi_model_lstm(wf_graph *g, const void *config) {
    const wf_model_config *c = config;
    wf_tensor ids = wf_cut(wf_input(g, "x", WF_I32, WF_SHAPE(c->n_tokens)), "encoder");
    wf_tensor x = wf_embedding_with(ids, table(g, "encoder.weight", c, c->embedding));
    char name[32] = "drop";
    for (int64_t i = 0; i < c->n_layers; i++) {
        x = wf_dropout(x, name, (float)c->dropout);
        snprintf(name, sizeof name, "rnn.%lld", (long long)i);
        x = wf_lstm(wf_cut(x, name), "rnn", (int)i, c->hidden);
        snprintf(name, sizeof name, "rnn.drop%lld", (long long)i);
    }
    x = wf_cut(wf_dropout(x, name, (float)c->dropout), "decoder");
    const char *weight = c->tied ? "encoder.weight" : "decoder.weight";
    wf_tensor bias =
        wf_parameter(g, "decoder.bias", WF_SHAPE(c->n_classes), (wf_init){WF_INIT_CONSTANT, 0});
    wf_tensor logits = wf_linear_with(x, table(g, weight, c, c->hidden), bias);
    wf_output(logits, "logits");
    wf_tensor y = wf_input(g, "y", WF_I32, WF_SHAPE(c->n_tokens));
    wf_loss(wf_smoothed_cross_entropy(logits, y, c->label_smoothing));
}
