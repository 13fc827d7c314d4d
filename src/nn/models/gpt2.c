/* GPT-2, of any size, with Hugging Face's parameter names; the output layer is the embedding.
 *
 * Radford et al., Language Models are Unsupervised Multitask Learners, 2019.
 */
#include "nn/models/registry.h"

#include <math.h>
#include <stdio.h>
#include <weft/nn.h>

#define INIT_STD 0.02f

/* Adds the positions of a sample's tokens: the first rows of the table, or, if a sample is one
 * token, the row of its position. */
static wf_tensor embed(wf_tensor ids, wf_tensor position, const wf_model_config *c) {
    wf_tensor x = wf_embedding(ids, "wte", c->n_classes, c->hidden, INIT_STD);
    wf_tensor positions = wf_parameter(ids.graph, "wpe.weight", WF_SHAPE(c->n_positions, c->hidden),
                                       (wf_init){WF_INIT_NORMAL, INIT_STD});
    x = wf_add(x, c->cached ? wf_embedding_with(position, positions)
                            : wf_slice(positions, 0, 0, c->n_tokens));
    return wf_dropout(x, "drop", (float)c->dropout);
}

/* x + attention(ln_1(x)), then x + mlp(ln_2(x)) */
static wf_tensor block(wf_tensor x, wf_tensor position, const wf_model_config *c) {
    /* Each of the 2 n_layers branches adds its variance to the residual stream. */
    float branch_std = INIT_STD / sqrtf(2.0f * (float)c->n_layers);

    wf_tensor a = wf_layer_norm(x, "ln_1");
    a = wf_linear_in_out(a, "attn.c_attn", 3 * c->hidden, INIT_STD);
    a = c->cached ? wf_cached_attention(a, position, "attn.cache", c->n_heads, c->n_positions)
                  : wf_self_attention(a, (int)c->n_heads, 1);
    a = wf_linear_in_out(a, "attn.c_proj", c->hidden, branch_std);
    x = wf_add(x, wf_dropout(a, "attn.resid_dropout", (float)c->dropout));

    wf_tensor m = wf_layer_norm(x, "ln_2");
    m = wf_gelu_tanh(wf_linear_in_out(m, "mlp.c_fc", 4 * c->hidden, INIT_STD));
    m = wf_linear_in_out(m, "mlp.c_proj", c->hidden, branch_std);
    return wf_add(x, wf_dropout(m, "mlp.dropout", (float)c->dropout));
}

static wf_tensor head(wf_tensor x, const wf_model_config *c) {
    wf_graph *g = x.graph;
    wf_tensor no_bias = {g, -1};
    wf_tensor wte = wf_parameter(g, "wte.weight", WF_SHAPE(c->n_classes, c->hidden),
                                 (wf_init){WF_INIT_NORMAL, INIT_STD});
    return wf_linear_with(wf_layer_norm(x, "ln_f"), wte, no_bias);
}

void wfi_model_gpt2(wf_graph *g, const void *config) {
    const wf_model_config *c = config;
    wf_tensor ids, position;
    char text[32];
    if (!wfi_model_read_tokens(g, c, &ids, &position)) return;
    wf_tensor x = embed(wf_cut(ids, "embed"), position, c);
    wf_scope(g, "h");
    for (int64_t i = 0; i < c->n_layers; i++) {
        snprintf(text, sizeof text, "h.%lld", (long long)i);
        x = wf_cut(x, text);
        wf_scope(g, "%lld", (long long)i);
        x = block(x, position, c);
        wf_scope_end(g);
    }
    wf_scope_end(g);
    wf_tensor logits = head(wf_cut(x, "head"), c);
    wfi_model_predict_tokens(logits, c);
}
