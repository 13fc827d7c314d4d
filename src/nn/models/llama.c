/* Llama, Qwen2 and Mistral, of any size, with Hugging Face's parameter names. Qwen2 has biases of
 * queries, keys and values; Mistral has a window of attention.
 *
 * Touvron et al., LLaMA: Open and Efficient Foundation Language Models, 2023; grouped heads as in
 * Llama 2 and 3.
 */
#include "nn/models/registry.h"
#include "op/op_table.h"

#include <math.h>
#include <stdio.h>
#include <weft/nn.h>

#define INIT_STD 0.02f

static wf_tensor project(wf_tensor x, const char *name, int64_t n_out, float std, int has_bias) {
    wf_graph *g = x.graph;
    wf_tensor bias = {g, -1};
    wf_shape shape = wf_tensor_shape(x);
    int64_t n_in = shape.n_dims ? shape.dim[shape.n_dims - 1] : 0;
    wf_scope(g, "%s", name);
    wf_tensor weight =
        wf_parameter(g, "weight", WF_SHAPE(n_out, n_in), (wf_init){WF_INIT_NORMAL, std});
    if (has_bias) bias = wf_parameter(g, "bias", WF_SHAPE(n_out), (wf_init){WF_INIT_CONSTANT, 0});
    wf_scope_end(g);
    return wf_linear_with(x, weight, bias);
}

static wf_tensor attend(wf_tensor x, wf_tensor position, const wf_model_config *c, float std) {
    int64_t d = c->hidden / c->n_heads;
    wf_tensor q = project(x, "q_proj", c->n_heads * d, INIT_STD, c->qkv_bias),
              k = project(x, "k_proj", c->n_kv_heads * d, INIT_STD, c->qkv_bias),
              v = project(x, "v_proj", c->n_kv_heads * d, INIT_STD, c->qkv_bias);
    wf_tensor qkv =
        wf_rotary_scaled(q, k, v, position, c->n_heads, c->n_kv_heads, (float)c->rope_theta,
                         c->rope_factor, c->rope_low, c->rope_high, c->rope_positions);
    int causal = c->window && c->window < c->n_tokens ? (int)c->window : 1;
    wf_tensor y =
        c->cached ? wfi_cached_attention(qkv, position, "cache", c->n_heads, c->n_positions, causal)
                  : wf_self_attention(qkv, c->n_heads, causal);
    return project(y, "o_proj", c->hidden, std, 0);
}

static wf_tensor mlp(wf_tensor x, const wf_model_config *c, float std) {
    wf_tensor gate = wf_silu(project(x, "gate_proj", c->ffn, INIT_STD, 0));
    return project(wf_mul(gate, project(x, "up_proj", c->ffn, INIT_STD, 0)), "down_proj", c->hidden,
                   std, 0);
}

static wf_tensor block(wf_tensor x, wf_tensor position, const wf_model_config *c) {
    /* Each of the 2 n_layers branches adds its variance to the residual stream. */
    float branch_std = INIT_STD / sqrtf(2.0f * (float)c->n_layers);
    wf_graph *g = x.graph;
    wf_tensor a = wf_rms_norm(x, "input_layernorm", (float)c->norm_eps);
    wf_scope(g, "self_attn");
    a = attend(a, position, c, branch_std);
    wf_scope_end(g);
    x = wf_add(x, a);
    wf_tensor m = wf_rms_norm(x, "post_attention_layernorm", (float)c->norm_eps);
    wf_scope(g, "mlp");
    m = mlp(m, c, branch_std);
    wf_scope_end(g);
    return wf_add(x, m);
}

/* The output layer; `tied`: the embedding. */
static wf_tensor head(wf_tensor x, const wf_model_config *c) {
    wf_graph *g = x.graph;
    wf_tensor none = {g, -1};
    x = wf_rms_norm(x, "model.norm", (float)c->norm_eps);
    wf_tensor weight =
        wf_parameter(g, c->tied ? "model.embed_tokens.weight" : "lm_head.weight",
                     WF_SHAPE(c->n_classes, c->hidden), (wf_init){WF_INIT_NORMAL, INIT_STD});
    return wf_linear_with(x, weight, none);
}

void wfi_model_llama(wf_graph *g, const void *config) {
    const wf_model_config *c = config;
    wf_tensor ids, position;
    char text[32];
    if (!wfi_model_read_tokens(g, c, &ids, &position)) return;
    wf_tensor x =
        wf_embedding(wf_cut(ids, "embed"), "model.embed_tokens", c->n_classes, c->hidden, INIT_STD);
    for (int64_t i = 0; i < c->n_layers; i++) {
        snprintf(text, sizeof text, "layers.%lld", (long long)i);
        x = wf_cut(x, text);
        wf_scope(g, "model.layers.%lld", (long long)i);
        x = block(x, position, c);
        wf_scope_end(g);
    }
    wf_tensor logits = head(wf_cut(x, "head"), c);
    wfi_model_predict_tokens(logits, c);
}
