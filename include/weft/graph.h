/* The graph of one microbatch, written as maths.
 *
 * A model function declares inputs, parameters and ops. Ranks, devices and microbatches do not
 * occur in it; the leading dim of every input is the microbatch.
 *
 *     static void toy(wf_graph *g, const void *config) {
 *         wf_tensor x = wf_input(g, "x", WF_F32, WF_SHAPE(10));
 *         wf_tensor y = wf_input(g, "y", WF_F32, WF_SHAPE(5));
 *         x = wf_next_stage(wf_relu(wf_linear(x, "net1", 10)), "second");
 *         wf_loss(wf_mse(wf_linear(x, "net2", 5), y));
 *     }
 *
 * Errors are sticky: an op that fails returns an inert tensor, and every later op on it returns an
 * inert tensor too. The function that received the model reports the first failure, once. A
 * wf_tensor is a handle, passed by value; the graph owns the tensor.
 */
#ifndef WEFT_GRAPH_H
#define WEFT_GRAPH_H

#include <weft/context.h>
#include <weft/types.h>

typedef struct wf_graph wf_graph;

typedef struct wf_tensor {
    wf_graph *graph;
    int32_t id; /* < 0: inert */
} wf_tensor;

typedef void (*wf_model_function)(wf_graph *graph, const void *config);

typedef struct wf_graph_config {
    size_t struct_size;
    int64_t batch; /* samples in the microbatch, >= 1 */
    int training;  /* 0: forward only, batch norm uses running statistics, no dropout */
    /* Frozen parameters: words joined by + or commas ("conv1+layer1"). A word matches the parameter
     * of that name, and all names that begin with the word and a dot. NULL: all are trained. */
    const char *freeze;
    /* Factors of the recipe's learning rate for such words: "fc=10+layer4=0.5". The last matching
     * word applies. NULL: all factors are 1. */
    const char *lr_scale;
} wf_graph_config;

#define WF_GRAPH_CONFIG_INIT                                                                       \
    { sizeof(wf_graph_config), 1, 1, NULL, NULL }

/* The initial value of a parameter; element i is a function of (seed, name, i) alone. */
typedef enum wf_init_kind { WF_INIT_CONSTANT, WF_INIT_UNIFORM, WF_INIT_NORMAL } wf_init_kind;
typedef struct wf_init {
    wf_init_kind kind;
    float value; /* the constant, the bound of [-value, value), or the standard deviation */
} wf_init;

typedef struct wf_conv2d_shape {
    int64_t stride, pad, groups; /* 0: stride 1, pad 0, one group */
    int64_t dilation;            /* spacing of the kernel's pixels; 0: 1 */
} wf_conv2d_shape;

#ifdef __cplusplus
extern "C" {
#endif

/* Runs `model` on an empty graph. With `training`, also derives the backward pass; then every
 * parameter must reach the loss, and every input must be used. The caller owns the graph. Errors:
 * those of the first failing op, often SHAPE; INVALID_ARG (unused parameters or inputs, all of
 * which the sentence names; a word of `freeze` or `lr_scale` that matches no parameter);
 * UNSUPPORTED (wf_loss on a sum of cross entropies with different labels; training with
 * wf_cached_attention); NO_MEMORY. */
WF_API WF_NODISCARD wf_status wf_graph_create(wf_context *ctx, const wf_graph_config *config,
                                              wf_model_function model, const void *model_config,
                                              wf_graph **graph_out);
/* NULL is allowed. */
WF_API void wf_graph_destroy(wf_graph *graph);

/* 1 while a graph is built for training, 0 for forward only. */
WF_API int wf_graph_is_training(const wf_graph *graph);

/* Marks the graph as failed with a sentence. For model functions that check their configuration. */
WF_API void wf_graph_fail(wf_graph *graph, const char *sentence);

WF_API wf_shape wf_tensor_shape(wf_tensor tensor); /* a scalar if `tensor` is inert */

/* ---- declarations ---- */

/* An input called `name`, of shape [batch, sample...]. */
WF_API wf_tensor wf_input(wf_graph *graph, const char *name, wf_dtype dtype, wf_shape sample);

/* A trainable F32 parameter. A second call with the same name and shape returns the same parameter
 * (weight tying). Open scopes prefix the name. */
WF_API wf_tensor wf_parameter(wf_graph *graph, const char *name, wf_shape shape, wf_init init);

/* Opens or closes a scope. The names of all open scopes, joined by dots, prefix the names that
 * are declared inside, such as those of parameters. `format` is as in printf. */
WF_API void wf_scope(wf_graph *graph, const char *format, ...);
WF_API void wf_scope_end(wf_graph *graph);

/* Begins the unit `name`: later ops belong to the unit. A plan may cut the model between units.
 * Returns `x` unchanged. */
WF_API wf_tensor wf_cut(wf_tensor x, const char *name);

/* A cut at which the next pipeline stage begins, like .to('cuda:1') in PyTorch's tutorials. The
 * model's stages apply to a plan with the same number of stages and without cut=. */
WF_API wf_tensor wf_next_stage(wf_tensor x, const char *name);

/* Names a value, so that a forward run can return it. */
WF_API void wf_output(wf_tensor x, const char *name);

/* Sets the training loss: the mean of `loss` [rows] over the global batch. A row is a sample or a
 * token. Call it once. */
WF_API void wf_loss(wf_tensor loss);
/* The same for a sum of cross entropies with different labels. `labels` [rows], an input, decides
 * which rows count; hits are those of the cross entropy with these labels. */
WF_API void wf_loss_by(wf_tensor loss, wf_tensor labels);

/* ---- ops; unless noted, x is [..., n] and tensors are F32 ---- */

WF_API wf_tensor wf_matmul(wf_tensor a,
                           wf_tensor b); /* [.., m, k] x [.., k, n], equal batch dims */
/* x [..., in], weight [out, in], bias [out] or inert: x weight^T + bias, [..., out] */
WF_API wf_tensor wf_linear_with(wf_tensor x, wf_tensor weight, wf_tensor bias);
/* The same with weight [in, out]. */
WF_API wf_tensor wf_linear_in_out_with(wf_tensor x, wf_tensor weight, wf_tensor bias);
/* x [n, c, h, w], weight [out, c / groups, kh, kw], bias [out] or inert */
WF_API wf_tensor wf_conv2d_with(wf_tensor x, wf_tensor weight, wf_tensor bias, wf_conv2d_shape s);
/* Transposed convolution, as in PyTorch's conv_transpose2d: x [n, in, h, w], weight [in, out /
 * groups, k, k] -> [n, out, (h - 1) stride - 2 pad + (k - 1) dilation + 1, ...]. */
WF_API wf_tensor wf_conv_transpose2d_with(wf_tensor x, wf_tensor weight, wf_conv2d_shape s);
/* Layer normalization over the last dim; scale and shift [n]. */
WF_API wf_tensor wf_layer_norm_with(wf_tensor x, wf_tensor scale, wf_tensor shift, float eps);
/* Root mean square normalization over the last dim: x / sqrt(mean(x^2) + eps) * scale [n]. */
WF_API wf_tensor wf_rms_norm_with(wf_tensor x, wf_tensor scale, float eps);
WF_API wf_tensor wf_relu(wf_tensor x);
WF_API wf_tensor wf_leaky_relu(wf_tensor x, float slope); /* slope * x for x < 0; 0 <= slope < 1 */
WF_API wf_tensor wf_gelu(wf_tensor x);                    /* exact, with erf */
WF_API wf_tensor wf_silu(wf_tensor x);                    /* x sigmoid(x) */
WF_API wf_tensor wf_gelu_tanh(wf_tensor x);               /* GPT-2's approximation */
WF_API wf_tensor wf_tanh(wf_tensor x);
WF_API wf_tensor wf_sigmoid(wf_tensor x);
/* b has the shape of a, or is broadcast: its dims equal the last dims of a. */
WF_API wf_tensor wf_add(wf_tensor a, wf_tensor b);
WF_API wf_tensor wf_mul(wf_tensor a, wf_tensor b); /* equal shapes */
WF_API wf_tensor wf_scale(wf_tensor x, float factor);
WF_API wf_tensor wf_softmax(wf_tensor x);     /* over the last dim */
WF_API wf_tensor wf_log_softmax(wf_tensor x); /* over the last dim */
/* logits [..., classes], labels I32 [...] in [0, classes), negative = ignored -> [rows]: -log
 * softmax of the label, 0 where ignored. */
WF_API wf_tensor wf_cross_entropy(wf_tensor logits, wf_tensor labels);
/* Cross entropy with label smoothing, as in PyTorch: the target is 1 - smoothing for the label plus
 * smoothing / classes for every class. smoothing is in [0, 1). Outside training the same as
 * wf_cross_entropy. */
WF_API wf_tensor wf_smoothed_cross_entropy(wf_tensor logits, wf_tensor labels, double smoothing);
/* Mean of the squared difference over a sample's elements -> [rows]. */
WF_API wf_tensor wf_mse(wf_tensor prediction, wf_tensor target);
/* Logits against targets from 0 to 1 (F32) of the same shape, as PyTorch's BCEWithLogitsLoss; the
 * mean over a sample -> [samples]. Targets do not get a gradient. */
WF_API wf_tensor wf_binary_cross_entropy(wf_tensor logits, wf_tensor target);
/* Half the square of a difference below 1, and linear above, as PyTorch's SmoothL1Loss and
 * HuberLoss; the mean over a sample -> [samples]. */
WF_API wf_tensor wf_smooth_l1(wf_tensor prediction, wf_tensor target);
/* x [..., n], index I32 [...] -> [...]: the indexed element of each row, such as the Q-value of an
 * action; 0 where the index is out of range. */
WF_API wf_tensor wf_gather(wf_tensor x, wf_tensor index);

/* x [n, c, h, w]. The average divides by kernel * kernel, padding included. */
WF_API wf_tensor wf_max_pool(wf_tensor x, int64_t kernel, int64_t stride, int64_t pad);
WF_API wf_tensor wf_avg_pool(wf_tensor x, int64_t kernel, int64_t stride, int64_t pad);
WF_API wf_tensor wf_global_avg_pool(wf_tensor x); /* [n, c, h, w] -> [n, c] */
/* ids I32 [...] in [0, rows), table [rows, n] -> [..., n] */
WF_API wf_tensor wf_embedding_with(wf_tensor ids, wf_tensor table);
/* Zeroes elements with probability p and scales the rest by 1 / (1 - p). The mask is a function of
 * (seed, name, step, sample, element). Identity when not training. */
WF_API wf_tensor wf_dropout(wf_tensor x, const char *name, float p);
/* One dim of `shape` may be -1. Dim 0 must stay the microbatch if the graph may be cut there. */
WF_API wf_tensor wf_reshape(wf_tensor x, wf_shape shape);
/* Exchanges two dims; joins tensors along dim; takes `length` rows along dim from `start`. */
WF_API wf_tensor wf_transpose(wf_tensor x, int dim_a, int dim_b);
WF_API wf_tensor wf_concat(const wf_tensor *parts, int n_parts, int dim);
WF_API wf_tensor wf_slice(wf_tensor x, int dim, int64_t start, int64_t length);
/* Splits x into n_parts equal slices along dim, into parts_out. */
WF_API void wf_split(wf_tensor x, int dim, int n_parts, wf_tensor *parts_out);
WF_API wf_tensor wf_sum(wf_tensor x, int dim);  /* removes the dim */
WF_API wf_tensor wf_mean(wf_tensor x, int dim); /* removes the dim */
/* Rotary positions: q [n, t, n_heads d], k and v [n, t, n_keys d] -> qkv [n, t, (n_heads + 2
 * n_keys) d] for wf_self_attention. Elements i and i + d / 2 of each head of q and k turn by the
 * angle p theta^(-2 i / d) at position p. `positions` inert: 0 to t - 1; else I32 [n], and q, k and
 * v have no t. */
WF_API wf_tensor wf_rotary(wf_tensor q, wf_tensor k, wf_tensor v, wf_tensor positions,
                           int64_t n_heads, int64_t n_keys, float theta);
/* The same with Llama 3's scaling to longer texts. A pair that turns at most `low` times in
 * n_positions turns slower by `factor`; one that turns `high` times or more is not scaled. */
WF_API wf_tensor wf_rotary_scaled(wf_tensor q, wf_tensor k, wf_tensor v, wf_tensor positions,
                                  int64_t n_heads, int64_t n_keys, float theta, double factor,
                                  double low, double high, int64_t n_positions);
/* qkv [n, t, 3 c] (queries, keys, values) -> [n, t, c]: softmax(q k^T / sqrt(c / heads)) v. With
 * `causal` 1, position i attends to 0..i; with w > 1, only to the last w of these. If wf_rotary
 * made qkv with fewer heads of keys, n_heads / n_keys heads of queries attend to each. */
WF_API wf_tensor wf_self_attention(wf_tensor qkv, int64_t n_heads, int causal);
/* Causal attention with a key-value cache, for generation. The samples of the graph are tokens of
 * one text: qkv [n, 3 c], position I32 [n] of each token in the text. Positions must be in [0,
 * n_positions); the result of a token outside is 0. The cache `name` keeps keys and values from run
 * to run; a new text begins at position 0. For forward runs only; checkpoints do not contain
 * caches. */
WF_API wf_tensor wf_cached_attention(wf_tensor qkv, wf_tensor position, const char *name,
                                     int64_t n_heads, int64_t n_positions);

#ifdef __cplusplus
}
#endif
#endif
