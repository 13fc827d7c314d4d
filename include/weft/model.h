/* Models: a model function with a name and a configuration. */
#ifndef WEFT_MODEL_H
#define WEFT_MODEL_H

#include <weft/graph.h>

typedef struct wf_model wf_model;

typedef enum wf_loss_kind { WF_LOSS_CROSS_ENTROPY, WF_LOSS_MSE } wf_loss_kind;

/* Configuration of ready-made models. Leave fields that a model does not use at their initial
 * values. */
typedef struct wf_model_config {
    size_t struct_size;
    int64_t channels, height, width; /* of images */
    int64_t n_classes;               /* number of classes, or vocabulary size of token models */
    int64_t n_tokens;                /* tokens per sample of token models */
    wf_loss_kind loss;               /* MSE: targets are F32 [n_classes] instead of labels I32 */
    int small_stem;                  /* resnets: 3x3 stride 1 and no max pool, for small images */
    double dropout;                  /* probability; gpt2: after embedding, attention and MLP; lstm:
                                      * after the embedding and each layer; 0 = none */
    /* gpt, and lstm without heads and positions. 0 = the registry's value; for n_heads, the largest
     * number up to the registry's that divides the width. n_positions is the maximum of tokens per
     * sample; 0 = 1024, or n_tokens if that is larger. */
    int64_t n_layers, hidden, n_heads, n_positions;
    /* gpt2, gpt: build the model for generation with a key-value cache (wf_cached_attention), for
     * forward runs only. A sample is one token, and the input "position" (I32) is its position in
     * the text. The model then does not have a loss, and n_tokens must stay 0. */
    int cached;
    double label_smoothing; /* of cross entropy in training (wf_smoothed_cross_entropy);
                             * 0 = none */
    int64_t embedding;      /* lstm: width of the embedding; 0 = hidden */
    int tied; /* lstm: the output layer shares the embedding's weights; needs embedding = hidden */
    /* Images with cross entropy, in training: the loss is share CE(y) + partner_share
     * CE(y_partner), with the additional inputs "y_partner" (I32), "share" and "partner_share"
     * (F32). */
    int mixup;
} wf_model_config;

#define WF_MODEL_CONFIG_INIT                                                                       \
    {                                                                                              \
        sizeof(wf_model_config), 3, 224, 224, 1000, 0, WF_LOSS_CROSS_ENTROPY, 0, 0, 0, 0, 0, 0, 0, \
            0, 0, 0, 0                                                                             \
    }

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
