/* The recipe: every setting that affects results, except model and data.
 *
 * The same recipe gives the same bits under every plan.
 */
#ifndef WEFT_RECIPE_H
#define WEFT_RECIPE_H

#include <stdint.h>
#include <weft/context.h>
#include <weft/model.h>
#include <weft/plan.h>
#include <weft/types.h>

typedef enum wf_optimizer { WF_SGD, WF_ADAM, WF_ADAMW } wf_optimizer;
/* The factor of the learning rate in step s (from 0) of N warm-up steps. LINEAR: (s + 1) / N. LOG:
 * log(s + 1) / log(N). */
typedef enum wf_warmup_shape { WF_WARMUP_LINEAR, WF_WARMUP_LOG } wf_warmup_shape;
/* PLATEAU follows wf_trainer_evaluated, as PyTorch's ReduceLROnPlateau without a threshold. */
typedef enum wf_lr_schedule {
    WF_LR_CONSTANT,
    WF_LR_STEP,
    WF_LR_COSINE,
    WF_LR_PLATEAU
} wf_lr_schedule;
/* Winograd convolutions differ from direct ones by rounding. AUTO chooses by shape. */
typedef enum wf_conv { WF_CONV_AUTO, WF_CONV_DIRECT, WF_CONV_WINOGRAD } wf_conv;
/* FAST uses the libraries. REFERENCE uses only weft's plain C kernels, which are slow: an oracle.
 */
typedef enum wf_kernels { WF_KERNELS_FAST, WF_KERNELS_REFERENCE } wf_kernels;

/* Multiplication of F32 on devices that have TF32: TF32 first rounds the mantissa to 10 bits. */
typedef enum wf_matmul_precision { WF_MATMUL_F32, WF_MATMUL_TF32 } wf_matmul_precision;

/* SYNC: a step sums the gradients of the whole batch, and updates once. ASYNC and LOCAL: workers
 * with parameters of their own take equal parts of each batch (weft/workers.h). */
typedef enum wf_update_mode { WF_UPDATE_SYNC, WF_UPDATE_ASYNC, WF_UPDATE_LOCAL } wf_update_mode;
/* wf_recipe.staleness has no bound if it is this number or a larger one. */
#define WF_STALENESS_UNBOUNDED INT64_C(1000000000)

/* Names joined by "+", such as "conv1+layer1"; "" is none. */
typedef struct wf_names {
    char text[1024];
} wf_names;

/* Kernels by shape, as wf_tuning finds them: "SHAPE=WAY" joined by "+". "" and NULL mean the
 * default kernel for every shape. The text belongs to the caller, who keeps it while a function
 * reads the recipe. In a recipe that weft fills, the text belongs to the context and lives as long.
 */
typedef const char *wf_tuned;

/* One row per field: type, field, name, kind, words, default, min, max, use, help. The rows
 * generate the struct and its defaults, the range checks, the consistency check of ranks and the
 * recipe's text. They also generate the program's options with their help, reports and checkpoints,
 * so that none of these misses a field.
 *
 * Kinds: COUNT is int64_t, SEED uint64_t, INT and FLAG int, REAL double; NAMES is a text of at most
 * `max` characters, TABLE a pointer to one; CHOICE is an enum with `words` in order.
 * wf_recipe_resolve replaces a COUNT or INT of 0 where 0 is not a valid size. Use: FORWARD fields
 * affect every run, UPDATE fields only training. */
#define WF_RECIPE_FIELDS(X)                                                                        \
    X(int64_t, batch, "batch", COUNT, "", 32, 1, 1e9, FORWARD,                                     \
      "samples per optimizer step, over all ranks")                                                \
    X(int64_t, n_micro, "micro", COUNT, "", 0, 0, 1e6, FORWARD,                                    \
      "microbatches per step, over all ranks; 0: one per lane; if they do not "                    \
      "divide the batch, the last ones have one sample less")                                      \
    X(int64_t, n_lanes, "lanes", COUNT, "", 0, 0, 1e6, FORWARD,                                    \
      "independent gradient sums, added in a fixed tree; 0: the largest power of two up to 8 "     \
      "that divides the microbatches, or the batch (with batch norm: leaving 16 samples each)")    \
    X(int64_t, n_slices, "slices", COUNT, "", 0, 0, 4096, FORWARD,                                 \
      "parts of each pair of layers, added in a fixed tree; 0: the largest "                       \
      "power of two up to 4 that divides the attention heads, 1 without "                          \
      "attention")                                                                                 \
    X(uint64_t, seed, "seed", SEED, "", 0, 0, 1.8446744073709552e19, FORWARD,                      \
      "seed of weights, sample order and augmentation")                                            \
    X(wf_dtype, dtype, "dtype", CHOICE, "f32|bf16", WF_F32, 0, 1, FORWARD,                         \
      "type of weights, activations and gradients; sums, losses and updates "                      \
      "are f32")                                                                                   \
    X(int, n_threads, "threads", INT, "", 1, 0, 1024, FORWARD,                                     \
      "compute threads per rank; 0: the machine's cores divided by the plan's "                    \
      "ranks, so the bits depend on both")                                                         \
    X(wf_conv, conv, "conv", CHOICE, "auto|direct|winograd", WF_CONV_AUTO, 0, 2, FORWARD,          \
      "algorithm of 3x3 convolutions; auto: by shape")                                             \
    X(wf_matmul_precision, matmul_precision, "matmul_precision", CHOICE, "f32|tf32",               \
      WF_MATMUL_F32, 0, 1, FORWARD,                                                                \
      "precision of f32 products in cuBLASLt and cuDNN; tf32: inputs rounded "                     \
      "to 10 bits, faster")                                                                        \
    X(wf_kernels, kernels, "kernels", CHOICE, "fast|reference", WF_KERNELS_FAST, 0, 1, FORWARD,    \
      "set of kernels; fast: libraries; reference: plain C, slow, for "                            \
      "comparison")                                                                                \
    X(wf_tuned, tuned, "tuned", TABLE, "", NULL, 0, 16383, FORWARD,                                \
      "library kernel for each shape: SHAPE=WAY+SHAPE=WAY, as written by weft "                    \
      "tune")                                                                                      \
                                                                                                   \
    X(wf_optimizer, optimizer, "optimizer", CHOICE, "sgd|adam|adamw", WF_SGD, 0, 2, UPDATE,        \
      "update rule")                                                                               \
    X(double, lr, "lr", REAL, "", 0.1, 0, 1e6, UPDATE, "peak learning rate")                       \
    X(double, momentum, "momentum", REAL, "", 0, 0, 1, UPDATE, "momentum for sgd")                 \
    X(int, nesterov, "nesterov", FLAG, "", 0, 0, 1, UPDATE, "Nesterov momentum for sgd")           \
    X(double, weight_decay, "weight_decay", REAL, "", 0, 0, 1e6, UPDATE,                           \
      "weight decay; sgd and adam: added to the gradient; adamw: decoupled")                       \
    X(int, no_bias_decay, "no_bias_decay", FLAG, "", 0, 0, 1, UPDATE,                              \
      "exclude parameters of one dim from weight decay: biases and norm weights")                  \
    X(double, beta1, "beta1", REAL, "", 0.9, 0, 0.9999999, UPDATE, "beta1 for adam and adamw")     \
    X(double, beta2, "beta2", REAL, "", 0.999, 0, 0.9999999, UPDATE, "beta2 for adam and adamw")   \
    X(double, epsilon, "epsilon", REAL, "", 1e-8, 0, 1, UPDATE, "epsilon for adam and adamw")      \
    X(double, clip_norm, "clip_norm", REAL, "", 0, 0, 1e30, UPDATE,                                \
      "clip gradients to this global norm; 0: off")                                                \
    X(double, ema, "ema", REAL, "", 0, 0, 0.9999999, UPDATE,                                       \
      "decay of the exponential moving average of the weights, used in tests; "                    \
      "0: off")                                                                                    \
    X(wf_names, freeze, "freeze", NAMES, "", {""}, 0, 1023, UPDATE,                                \
      "parameters to freeze, by name or prefix: conv1,layer1; running "                            \
      "statistics of norms are still updated")                                                     \
    X(wf_names, lr_scale, "lr_scale", NAMES, "", {""}, 0, 1023, UPDATE,                            \
      "learning-rate factors by name or prefix: fc=10,layer4=0.5; the last "                       \
      "matching entry applies")                                                                    \
                                                                                                   \
    X(wf_lr_schedule, lr_schedule, "lr_schedule", CHOICE, "constant|step|cosine|plateau",          \
      WF_LR_CONSTANT, 0, 3, UPDATE,                                                                \
      "learning-rate decay; plateau: when the test loss stops falling")                            \
    X(int64_t, warmup_steps, "warmup", COUNT, "", 0, 0, 1e15, UPDATE,                              \
      "warm-up steps, in which the learning rate rises to --lr")                                   \
    X(wf_warmup_shape, warmup_shape, "warmup_shape", CHOICE, "linear|log", WF_WARMUP_LINEAR, 0, 1, \
      UPDATE,                                                                                      \
      "shape of --warmup; log: from 0, fastest at first, as in DeepSpeed's "                       \
      "WarmupLR")                                                                                  \
    X(int64_t, schedule_steps, "lr_step", COUNT, "", 0, 0, 1e15, UPDATE,                           \
      "step: decay every N steps; cosine: reach zero at step N")                                   \
    X(double, lr_gamma, "lr_gamma", REAL, "", 0.1, 0, 1e6, UPDATE,                                 \
      "step and plateau: decay factor")                                                            \
    X(int64_t, lr_patience, "lr_patience", COUNT, "", 0, 0, 1e6, UPDATE,                           \
      "plateau: decay after more than N tests in a row without a lower loss")                      \
                                                                                                   \
    X(wf_update_mode, update, "update", CHOICE, "sync|async|local", WF_UPDATE_SYNC, 0, 2, UPDATE,  \
      "sync: one update per step; async: servers apply each worker's gradient when it arrives; "   \
      "local: workers train alone and average their changes")                                      \
    X(int64_t, n_workers, "workers", COUNT, "", 0, 0, 4096, UPDATE,                                \
      "async, local: workers with parameters of their own; each takes an equal part of a batch")   \
    X(int64_t, staleness, "staleness", COUNT, "", WF_STALENESS_UNBOUNDED, 0, 1e15, UPDATE,         \
      "async: maximum staleness of a gradient, in steps; 0: the bits of sync")                     \
    X(int, staleness_lr, "staleness_lr", FLAG, "", 0, 0, 1, UPDATE,                                \
      "async: divide the learning rate by the staleness of each gradient")                         \
    X(int64_t, n_backup, "backup", COUNT, "", 0, 0, 4095, UPDATE,                                  \
      "async with --staleness 0: spare workers; a step drops the last N gradients to arrive")      \
    X(int64_t, local_steps, "local_steps", COUNT, "", 30, 1, 1e9, UPDATE,                          \
      "local: steps between averages")                                                             \
    X(double, outer_lr, "outer_lr", REAL, "", 0.7, 0, 1e6, UPDATE,                                 \
      "local: learning rate of the average change")                                                \
    X(double, outer_momentum, "outer_momentum", REAL, "", 0.9, 0, 1, UPDATE,                       \
      "local: Nesterov momentum of the average change")

typedef struct wf_recipe {
    size_t struct_size;
#define WF_RECIPE_MEMBER(type, field, name, kind, words, value, least, most, use, help) type field;
    WF_RECIPE_FIELDS(WF_RECIPE_MEMBER)
#undef WF_RECIPE_MEMBER
} wf_recipe;

#define WF_RECIPE_VALUE(type, field, name, kind, words, value, least, most, use, help) , value
#define WF_RECIPE_INIT                                                                             \
    { sizeof(wf_recipe) WF_RECIPE_FIELDS(WF_RECIPE_VALUE) }

#ifdef __cplusplus
extern "C" {
#endif

/* Parses a recipe such as "batch=20,lr=0.001,optimizer=adamw", with the rows' names as keys.
 * Missing keys have their defaults, and so has every key if `text` is NULL. wf_recipe_resolve
 * checks the ranges. Errors: INVALID_ARG (the sentence names the key or value, its position and the
 * legal ones), NO_MEMORY. */
WF_API WF_NODISCARD wf_status wf_recipe_parse(wf_context *ctx, const char *text,
                                              wf_recipe *recipe_out);
/* Prints all fields; parsing the text gives the same bits. Free the text with wf_text_free. Errors:
 * INVALID_ARG (struct_size), NO_MEMORY. */
WF_API WF_NODISCARD wf_status wf_recipe_text(wf_context *ctx, const wf_recipe *recipe,
                                             char **text_out);

/* The learning rate of step `step`, from 0, without the cuts of PLATEAU. */
WF_API double wf_recipe_lr(const wf_recipe *recipe, int64_t step);

/* Checks every field and replaces each 0 by its default. Defaults depend on the recipe and the
 * model, never on the plan, except for threads. `model` NULL means a model without batch norm and
 * attention. `plan` NULL skips the check that the recipe suits a plan. Errors: INVALID_ARG (the
 * sentence names the field, its value and the nearest legal ones, or the lanes and slices that the
 * plan needs), those of the model function (wf_graph_create), NO_MEMORY. */
WF_API WF_NODISCARD wf_status wf_recipe_resolve(wf_context *ctx, const wf_recipe *recipe,
                                                const wf_model *model, const wf_plan *plan,
                                                wf_recipe *resolved_out);
/* The same, but if the plan needs other lanes or slices than the default, fields that are 0 get the
 * plan's. The result is another recipe, with other results also on one rank. For plans that are
 * only inspected, not trained. Errors: those of wf_recipe_resolve. */
WF_API WF_NODISCARD wf_status wf_recipe_resolve_for(wf_context *ctx, const wf_recipe *recipe,
                                                    const wf_model *model, const wf_plan *plan,
                                                    wf_recipe *resolved_out);

/* Finds the samples of part `part` of `n_parts`, such as a replica of dp=n_parts, in a step of
 * `n_samples`: those of its microbatches. `recipe` must be resolved, and n_parts must divide
 * n_micro. */
WF_API void wf_recipe_part(const wf_recipe *recipe, int64_t n_samples, int n_parts, int part,
                           int64_t *first_out, int64_t *n_out);

#ifdef __cplusplus
}
#endif
#endif
