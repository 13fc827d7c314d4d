/* A model: a named model function with its configuration. */
#ifndef WEFT_MODEL_H
#define WEFT_MODEL_H

#include <weft/graph.h>

typedef struct wf_model wf_model;

typedef enum wf_loss_kind { WF_LOSS_CROSS_ENTROPY, WF_LOSS_MSE } wf_loss_kind;

/* What the ready-made models can be asked for. A field that a model has no use
 * for must be left at its initial value. */
typedef struct wf_model_config {
    size_t struct_size;
    int64_t channels, height, width; /* of images */
    int64_t n_classes;               /* also the vocabulary of token models */
    int64_t n_tokens;                /* per sample, token models */
    wf_loss_kind loss;               /* MSE wants targets F32 [n_classes] instead of labels I32 */
    int small_stem;                  /* resnets: 3x3 stride 1 and no max pool, for small images */
    double dropout;                  /* gpt2: after embedding, attention and MLP; lstm: after the
                                      * embedding and each layer; 0 = none */
    /* gpt, and lstm, which has neither heads nor positions; 0 = as the registry says; of heads, the
     * most up to that which divide the width. Positions are the most tokens that a sample may have;
     * 0 = 1024, or n_tokens if there are more. */
    int64_t n_layers, hidden, n_heads, n_positions;
    /* gpt2, gpt: a sample is one token, and the input "position" (I32) says where in its text: for
     * forward runs token by token (wf_cached_attention). There is no loss; n_tokens is left at 0.
     */
    int cached;
    double label_smoothing; /* of cross entropy, in training: wf_smoothed_cross_entropy; 0 = none */
    int64_t embedding;      /* lstm: width of the embedding; 0 = hidden */
    int tied; /* lstm: the output layer is the embedding, which has the hidden width */
    /* Images, cross entropy, in training: the loss is share CE(y) + partner_share CE(y_partner),
     * with the inputs "y_partner" (I32), "share" and "partner_share" (F32) beside "x" and "y". */
    int mixup;
} wf_model_config;

#define WF_MODEL_CONFIG_INIT                                                                       \
    {                                                                                              \
        sizeof(wf_model_config), 3, 224, 224, 1000, 0, WF_LOSS_CROSS_ENTROPY, 0, 0, 0, 0, 0, 0, 0, \
            0, 0, 0, 0                                                                             \
    }

/* What there is to know of a ready-made model before it is made. Static. */
typedef struct wf_model_info {
    const char *name;
    int takes_tokens; /* I32 [n_tokens] rather than images */
    int has_stem;     /* config.small_stem means something */
    int has_sizes;    /* config.n_layers, hidden, n_heads and n_positions do */
    /* Sizes that make a fair benchmark with samples that are made up. */
    int64_t image; /* height and width; 0: no images */
    int64_t n_tokens, n_classes;
    int64_t n_layers, hidden, n_heads; /* of token models */
    const char *classifier;            /* images: the layer that tells classes apart; else NULL */
    int is_recurrent; /* sample s of a batch goes on where that of the batch before has ended:
                       * streams of a text side by side (wf_data_config.n_streams) */
} wf_model_info;

#ifdef __cplusplus
extern "C" {
#endif

/* A model of one's own. `config` (config_bytes) is copied; it may be NULL. */
WF_API WF_NODISCARD wf_status wf_model_create(wf_context *ctx, const char *name,
                                              wf_model_function function, const void *config,
                                              size_t config_bytes, wf_model **model_out);

/* A ready-made model, by a name of the registry. Errors: INVALID_ARG: an unknown name, and the
 * sentence lists the known ones; a field that the model has no use for. */
WF_API WF_NODISCARD wf_status wf_model_find(wf_context *ctx, const char *name,
                                            const wf_model_config *config, wf_model **model_out);

/* The ready-made models, in order: NULL past the last. By name: NULL if there is none. */
WF_API const wf_model_info *wf_model_registry(int i);
WF_API const wf_model_info *wf_model_registry_find(const char *name);

/* What a ready-made model was made with, nothing that it reads being 0 any more; NULL for one of
 * one's own. Borrowed. */
WF_API const wf_model_config *wf_model_config_of(const wf_model *model);

WF_API const char *wf_model_name(const wf_model *model);
WF_API void wf_model_destroy(wf_model *model);

#ifdef __cplusplus
}
#endif
#endif
