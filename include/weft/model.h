/* Models: a model function with a name and a configuration. */
#ifndef WEFT_MODEL_H
#define WEFT_MODEL_H

#include <weft/graph.h>

typedef struct wf_model wf_model;

typedef enum wf_loss_kind { WF_LOSS_CROSS_ENTROPY, WF_LOSS_MSE } wf_loss_kind;

/* Fields of the configuration of ready-made models: X(type, field, value, least, most, has_effect,
 * models, help). `value` is the initial one. A field must keep it unless `has_effect`, a condition
 * on the model's info `m` and the configuration `c`, which holds for `models`.
 */
#define WF_MODEL_FIELDS(X)                                                                         \
    X(int64_t, channels, 3, 1, 1 << 24, !m->takes_tokens, "models of images",                      \
      "channels of images")                                                                        \
    X(int64_t, height, 224, 1, 1 << 24, !m->takes_tokens, "models of images", "height of images")  \
    X(int64_t, width, 224, 1, 1 << 24, !m->takes_tokens, "models of images", "width of images")    \
    X(int64_t, n_classes, 1000, 0, INT32_MAX, 1, "all models",                                     \
      "classes, or vocabulary size of token models; 0: that of the published model")               \
    X(int64_t, n_tokens, 0, 0, 1e12, m->takes_tokens && !c->cached,                                \
      "models of tokens without cached", "tokens per sample; 0: n_positions, or for lstm 35")      \
    X(wf_loss_kind, loss, WF_LOSS_CROSS_ENTROPY, 0, 1, !m->takes_tokens, "models of images",       \
      "MSE: targets are F32 [n_classes] instead of labels I32")                                    \
    X(int, small_stem, 0, 0, 1, m->has_stem, "resnets",                                            \
      "3x3 convolution of stride 1 and no max pool, for small images")                             \
    X(double, dropout, 0, 0, 0.9999999, m->takes_tokens && !m->is_gated, "gpt and lstm",           \
      "probability after embedding, attention and MLP, or after each layer of lstm")               \
    X(int64_t, n_layers, 0, 0, 4096, m->has_sizes, "gpt, llama and lstm",                          \
      "layers; 0: the registry's")                                                                 \
    X(int64_t, hidden, 0, 0, 1 << 19, m->has_sizes, "gpt, llama and lstm",                         \
      "width; 0: the registry's")                                                                  \
    X(int64_t, n_heads, 0, 0, 1 << 19, m->has_sizes && !m->is_recurrent, "gpt and llama",          \
      "heads; 0: the largest number up to the registry's that divides the width")                  \
    X(int64_t, n_positions, 0, 0, 1e12, m->has_sizes && !m->is_recurrent, "gpt",                   \
      "maximum of tokens per sample; 0: 1024, or n_tokens if that is larger")                      \
    X(int, cached, 0, 0, 1, m->takes_tokens && !m->is_recurrent, "gpt2, gpt and llama",            \
      "generation with a key-value cache (wf_cached_attention), for forward runs only: a "         \
      "sample is one token, the input \"position\" (I32) is its position in the text, and "        \
      "there is no loss")                                                                          \
    X(double, label_smoothing, 0, 0, 0.9999999, c->loss == WF_LOSS_CROSS_ENTROPY, "cross entropy", \
      "of cross entropy in training (wf_smoothed_cross_entropy)")                                  \
    X(int64_t, embedding, 0, 0, 1 << 19, m->is_recurrent, "lstm",                                  \
      "width of the embedding; 0: hidden")                                                         \
    X(int, tied, 0, 0, 1, m->is_recurrent || m->is_gated, "lstm and llama",                        \
      "the output layer shares the embedding's weights; needs embedding = hidden")                 \
    X(int, mixup, 0, 0, 1, !m->takes_tokens && c->loss == WF_LOSS_CROSS_ENTROPY,                   \
      "images with labels",                                                                        \
      "in training the loss is share CE(y) + partner_share CE(y_partner), with the inputs "        \
      "\"y_partner\" (I32), \"share\" and \"partner_share\" (F32)")                                \
    X(int64_t, n_kv_heads, 0, 0, 1 << 19, m->is_gated, "llama",                                    \
      "heads of keys and values; 0: n_heads")                                                      \
    X(int64_t, ffn, 0, 0, 1 << 19, m->is_gated, "llama",                                           \
      "width of the gated MLP; 0: 8/3 of hidden, rounded up to a multiple of 256, or of 32 below") \
    X(double, rope_theta, 0, 0, 1e12, m->is_gated, "llama",                                        \
      "base of the angles of rotary positions; 0: 500,000")                                        \
    X(double, norm_eps, 0, 0, 1, m->is_gated, "llama",                                             \
      "added to the mean of squares in norms; 0: 1e-5")                                            \
    X(double, rope_factor, 0, 0, 1e12, m->is_gated, "llama",                                       \
      "factor of wf_rotary_scaled; 0: rotary positions are not scaled")                            \
    X(double, rope_low, 0, 0, 1e12, c->rope_factor > 0, "llama with rope_factor", "its low")       \
    X(double, rope_high, 0, 0, 1e12, c->rope_factor > 0, "llama with rope_factor", "its high")     \
    X(int64_t, rope_positions, 0, 0, 1e12, c->rope_factor > 0, "llama with rope_factor",           \
      "its n_positions")                                                                           \
    X(int, qkv_bias, 0, 0, 1, m->is_gated, "llama", "queries, keys and values have a bias")        \
    X(int64_t, window, 0, 0, INT32_MAX, m->is_gated && c->window != 1, "llama, from 2 on",         \
      "positions that a token attends to at most, the last ones; 0: all")

typedef struct wf_model_config {
    size_t struct_size;
#define WF_MODEL_MEMBER(type, field, ...) type field;
    WF_MODEL_FIELDS(WF_MODEL_MEMBER)
#undef WF_MODEL_MEMBER
} wf_model_config;

#define WF_MODEL_VALUE(type, field, value, ...) , value
#define WF_MODEL_CONFIG_INIT                                                                       \
    { sizeof(wf_model_config) WF_MODEL_FIELDS(WF_MODEL_VALUE) }

/* Properties of a ready-made model. Static. */
typedef struct wf_model_info {
    const char *name;
    int takes_tokens; /* samples are I32 [n_tokens], not images */
    int has_stem;     /* the model uses config.small_stem */
    int has_sizes;    /* the model uses config.n_layers, hidden, n_heads and n_positions */
    /* Sizes for a fair benchmark with synthetic samples. */
    int64_t image; /* height and width; 0 for token models */
    int64_t n_tokens, n_classes;
    int64_t n_layers, hidden, n_heads; /* of token models */
    const char *classifier;            /* images: the name of the classification layer; else NULL */
    int is_gated;     /* the model uses config.n_kv_heads, ffn, rope_theta and tied */
    int is_recurrent; /* sample s of a batch continues where sample s of the previous batch ended:
                       * parallel streams of a text (wf_data_config.n_streams) */
} wf_model_info;

#ifdef __cplusplus
extern "C" {
#endif

/* Creates a model from a model function. `name` and the config_bytes bytes of `config`, which may
 * be NULL, are copied. This call does not run the function. Errors: NO_MEMORY. */
WF_API WF_NODISCARD wf_status wf_model_create(wf_context *ctx, const char *name,
                                              wf_model_function function, const void *config,
                                              size_t config_bytes, wf_model **model_out);

/* Creates a ready-made model by its name in the registry. `config` NULL means
 * WF_MODEL_CONFIG_INIT. Errors: INVALID_ARG (an unknown name; the sentence lists the known ones; a
 * field that is out of range or that the model does not use), NO_MEMORY. */
WF_API WF_NODISCARD wf_status wf_model_find(wf_context *ctx, const char *name,
                                            const wf_model_config *config, wf_model **model_out);

/* The ready-made models by index, NULL past the last; or by name, NULL if unknown. */
WF_API const wf_model_info *wf_model_registry(int i);
WF_API const wf_model_info *wf_model_registry_find(const char *name);

/* The resolved configuration of a ready-made model, in which every field that the model uses has
 * its value; NULL for other models. Borrowed. */
WF_API const wf_model_config *wf_model_config_of(const wf_model *model);

/* The model's name; borrowed. Programs and trainers keep a copy of the model, so it may be
 * destroyed after their creation. wf_model_destroy(NULL) is allowed. */
WF_API const char *wf_model_name(const wf_model *model);
WF_API void wf_model_destroy(wf_model *model);

#ifdef __cplusplus
}
#endif
#endif
