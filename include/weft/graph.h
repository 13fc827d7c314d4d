/* A graph: what one microbatch computes, written as maths.
 *
 * A model function declares inputs, parameters and ops. It never sees a rank, a
 * device or a microbatch; the leading dim of every input is the microbatch.
 *
 *     static void toy(wf_graph *g, const void *config) {
 *         wf_tensor x = wf_input(g, "x", WF_F32, WF_SHAPE(10));
 *         wf_tensor y = wf_input(g, "y", WF_F32, WF_SHAPE(5));
 *         x = wf_next_stage(wf_relu(wf_linear(x, "net1", 10)), "second");
 *         wf_loss(wf_mse(wf_linear(x, "net2", 5), y));
 *     }
 *
 * Errors are sticky: an op that fails returns an inert tensor, every later op on
 * it is inert too, and the first failure is reported once, by the function that
 * was given the model. A wf_tensor is a value to pass around; the graph owns it.
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
    /* Parameters that do not train, joined by + or commas: each by its name, or all whose names
     * begin with such a word and a dot ("conv1+layer1"). NULL: all train. */
    const char *freeze;
    /* Learning rates by such words, times the recipe's: "fc=10+layer4=0.5"; of several words for a
     * parameter the last counts. NULL: all learn alike. */
    const char *lr_scale;
} wf_graph_config;

#define WF_GRAPH_CONFIG_INIT                                                                       \
    { sizeof(wf_graph_config), 1, 1, NULL, NULL }

/* How a parameter starts; element i is a function of (seed, name, i) alone. */
typedef enum wf_init_kind { WF_INIT_CONSTANT, WF_INIT_UNIFORM, WF_INIT_NORMAL } wf_init_kind;
typedef struct wf_init {
    wf_init_kind kind;
    float value; /* the constant, the bound of [-value, value), or the standard deviation */
} wf_init;

typedef struct wf_conv2d_shape {
    int64_t stride, pad, groups; /* 0 means stride 1, pad 0, one group */
    int64_t dilation;            /* the kernel sees every dilation-th pixel; 0 means 1 */
} wf_conv2d_shape;

#ifdef __cplusplus
extern "C" {
#endif

/* Runs `model` on an empty graph. With `training`, also derives the backward; then every
 * parameter has to reach the loss, and every input has to be read.
 * The graph belongs to the caller. Errors: whatever the first failing op said; INVALID_ARG: the
 * sentence names all parameters and inputs that are of no use, or the name in `freeze` that no
 * parameter has. */
WF_API WF_NODISCARD wf_status wf_graph_create(wf_context *ctx, const wf_graph_config *config,
                                              wf_model_function model, const void *model_config,
                                              wf_graph **graph_out);
WF_API void wf_graph_destroy(wf_graph *graph);

/* 1 while a graph is built for training, 0 for forward only. */
WF_API int wf_graph_is_training(const wf_graph *graph);

/* Marks the graph as failed with a sentence; for model functions that check
 * their configuration. */
WF_API void wf_graph_fail(wf_graph *graph, const char *sentence);

WF_API wf_shape wf_tensor_shape(wf_tensor tensor); /* of an inert tensor: a scalar */

/* ---- declarations ---- */

/* A named input of shape [batch, sample...]. */
WF_API wf_tensor wf_input(wf_graph *graph, const char *name, wf_dtype dtype, wf_shape sample);

/* A trained F32 parameter. The same name and shape again is the same parameter
 * (a tied weight). Scopes (below) prefix the name. */
WF_API wf_tensor wf_parameter(wf_graph *graph, const char *name, wf_shape shape, wf_init init);

/* Names are prefixed by the scopes that are open, joined by dots. `format` as printf. */
WF_API void wf_scope(wf_graph *graph, const char *format, ...);
WF_API void wf_scope_end(wf_graph *graph);

/* What follows belongs to the unit `name`: a place where the model may be cut.
 * Returns `x` as it is. */
WF_API wf_tensor wf_cut(wf_tensor x, const char *name);

/* A cut where the next pipeline stage begins: the tutorials' .to('cuda:1'). A plan with as
 * many stages as the model marks this way, and no cut= of its own, takes the model's. */
WF_API wf_tensor wf_next_stage(wf_tensor x, const char *name);

/* Gives a value a name under which a forward run returns it. */
WF_API void wf_output(wf_tensor x, const char *name);

/* Trains on the mean of `loss` over the global batch; `loss` is [rows], one
 * value a row (a sample, or a token). Called once. */
WF_API void wf_loss(wf_tensor loss);
/* The same of a loss that adds cross entropies with different labels: rows count by `labels`
 * [rows], an input, and hits are those of the cross entropy with them. */
WF_API void wf_loss_by(wf_tensor loss, wf_tensor labels);

/* ---- ops; x is [..., n] unless said; F32 unless said ---- */

WF_API wf_tensor wf_matmul(wf_tensor a,
                           wf_tensor b); /* [.., m, k] x [.., k, n], equal batch dims */
/* x [..., in], weight [out, in], bias [out] or inert: x weight^T + bias, [..., out] */
WF_API wf_tensor wf_linear_with(wf_tensor x, wf_tensor weight, wf_tensor bias);
/* the same with weight [in, out] */
WF_API wf_tensor wf_linear_in_out_with(wf_tensor x, wf_tensor weight, wf_tensor bias);
/* x [n, c, h, w], weight [out, c / groups, kh, kw], bias [out] or inert */
WF_API wf_tensor wf_conv2d_with(wf_tensor x, wf_tensor weight, wf_tensor bias, wf_conv2d_shape s);
/* The convolution backwards, as PyTorch's conv_transpose2d: x [n, in, h, w], weight [in, out /
 * groups, k, k]: [n, out, (h - 1) stride - 2 pad + (k - 1) dilation + 1, ...]. */
WF_API wf_tensor wf_conv_transpose2d_with(wf_tensor x, wf_tensor weight, wf_conv2d_shape s);
/* Over the last dim; scale and shift [n]. */
WF_API wf_tensor wf_layer_norm_with(wf_tensor x, wf_tensor scale, wf_tensor shift, float eps);
WF_API wf_tensor wf_relu(wf_tensor x);
WF_API wf_tensor wf_leaky_relu(wf_tensor x, float slope); /* slope x below 0, 0 <= slope < 1 */
WF_API wf_tensor wf_gelu(wf_tensor x);                    /* exact, with erf */
WF_API wf_tensor wf_gelu_tanh(wf_tensor x);               /* GPT-2's approximation */
WF_API wf_tensor wf_tanh(wf_tensor x);
WF_API wf_tensor wf_sigmoid(wf_tensor x);
/* b has a's shape, or is broadcast: its dims equal a's last dims. */
WF_API wf_tensor wf_add(wf_tensor a, wf_tensor b);
WF_API wf_tensor wf_mul(wf_tensor a, wf_tensor b); /* equal shapes */
WF_API wf_tensor wf_scale(wf_tensor x, float factor);
WF_API wf_tensor wf_softmax(wf_tensor x);     /* over the last dim */
WF_API wf_tensor wf_log_softmax(wf_tensor x); /* over the last dim */
/* logits [..., classes], labels I32 [...] in [0, classes), negative = ignored:
 * [rows], -log softmax of the label, 0 where ignored. */
WF_API wf_tensor wf_cross_entropy(wf_tensor logits, wf_tensor labels);
/* In training (elsewhere it is wf_cross_entropy) against 1 - smoothing for the label and smoothing
 * / classes for every class, as PyTorch's label_smoothing; smoothing is in [0, 1). */
WF_API wf_tensor wf_smoothed_cross_entropy(wf_tensor logits, wf_tensor labels, double smoothing);
/* [rows]: the mean over a sample's elements of the squared difference. */
WF_API wf_tensor wf_mse(wf_tensor prediction, wf_tensor target);
/* Of logits against targets from 0 to 1 (F32) of the same shape: [samples], the mean over a sample,
 * as PyTorch's BCEWithLogitsLoss. Targets get no gradient. */
WF_API wf_tensor wf_binary_cross_entropy(wf_tensor logits, wf_tensor target);
/* Half the square of a difference below 1, and what it is linear beyond: PyTorch's SmoothL1Loss and
 * HuberLoss; [samples], the mean over a sample. */
WF_API wf_tensor wf_smooth_l1(wf_tensor prediction, wf_tensor target);
/* x [..., n], index I32 [...]: of each row the element of that number, as a Q-value of its action;
 * [...]. 0 where the index is no element's. */
WF_API wf_tensor wf_gather(wf_tensor x, wf_tensor index);

/* x [n, c, h, w]; the average divides by kernel * kernel, padding included. */
WF_API wf_tensor wf_max_pool(wf_tensor x, int64_t kernel, int64_t stride, int64_t pad);
WF_API wf_tensor wf_avg_pool(wf_tensor x, int64_t kernel, int64_t stride, int64_t pad);
WF_API wf_tensor wf_global_avg_pool(wf_tensor x); /* [n, c, h, w] -> [n, c] */
/* ids I32 [...] in [0, rows), table [rows, n]: [..., n] */
WF_API wf_tensor wf_embedding_with(wf_tensor ids, wf_tensor table);
/* Zeroes with probability p and scales the rest by 1 / (1 - p); the mask is a
 * function of (seed, name, step, sample, element). Identity when not training. */
WF_API wf_tensor wf_dropout(wf_tensor x, const char *name, float p);
/* One dim may be -1. dim 0 stays the microbatch's if the graph is to be cut there. */
WF_API wf_tensor wf_reshape(wf_tensor x, wf_shape shape);
WF_API wf_tensor wf_transpose(wf_tensor x, int dim_a, int dim_b);
WF_API wf_tensor wf_concat(const wf_tensor *parts, int n_parts, int dim);
WF_API wf_tensor wf_slice(wf_tensor x, int dim, int64_t start, int64_t length);
/* parts_out gets n_parts equal slices along dim. */
WF_API void wf_split(wf_tensor x, int dim, int n_parts, wf_tensor *parts_out);
WF_API wf_tensor wf_sum(wf_tensor x, int dim);  /* the dim is removed */
WF_API wf_tensor wf_mean(wf_tensor x, int dim); /* the dim is removed */
/* qkv [n, t, 3 c] (queries, keys, values): softmax(q k^T / sqrt(c / heads)) v, [n, t, c];
 * causal: position i attends to 0..i. */
WF_API wf_tensor wf_self_attention(wf_tensor qkv, int64_t n_heads, int causal);
/* The same, causal, of one text token by token: the graph's samples are its tokens, qkv [n, 3 c],
 * position I32 [n] of each in the text, below n_positions (else, as where it is negative, a token
 * is nowhere in the text and the result is 0). Keys and values
 * stay in the cache `name` from run to run, so that the next tokens need not compute them again; a
 * new text begins at position 0. Graphs for forward runs only; a cache is not saved. */
WF_API wf_tensor wf_cached_attention(wf_tensor qkv, wf_tensor position, const char *name,
                                     int64_t n_heads, int64_t n_positions);

#ifdef __cplusplus
}
#endif
#endif
