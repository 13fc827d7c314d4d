/* The recipe: everything that the numbers depend on, beside model and data.
 * The same recipe gives the same bits under every plan. */
#ifndef WEFT_RECIPE_H
#define WEFT_RECIPE_H

#include <weft/context.h>
#include <weft/plan.h>
#include <weft/types.h>

typedef enum wf_optimizer { WF_SGD, WF_ADAM, WF_ADAMW } wf_optimizer;
typedef enum wf_lr_schedule { WF_LR_CONSTANT, WF_LR_STEP, WF_LR_COSINE } wf_lr_schedule;
/* Winograd convolutions differ from direct ones by rounding. AUTO decides by shape. */
typedef enum wf_conv { WF_CONV_AUTO, WF_CONV_DIRECT, WF_CONV_WINOGRAD } wf_conv;
/* FAST uses the libraries; REFERENCE only weft's plain C kernels (slow: an oracle). */
typedef enum wf_kernels { WF_KERNELS_FAST, WF_KERNELS_REFERENCE } wf_kernels;

typedef struct wf_recipe {
    size_t struct_size;
    int64_t batch;   /* samples per optimizer step, over all ranks */
    int64_t n_micro; /* microbatches per step, over all ranks; 0 = n_lanes. If they do not divide
                      * the batch, the last ones are a sample smaller */
    int64_t n_lanes; /* independent gradient sums, added in a fixed tree; 0 = the plan's dp */
    uint64_t seed;
    wf_dtype dtype; /* WF_F32 */
    int n_threads;  /* of each rank's kernels; 0 = this process's cores / the plan's ranks */
    wf_conv conv;
    wf_kernels kernels;

    wf_optimizer optimizer;
    double lr;                    /* learning rate at its highest */
    double momentum;              /* SGD */
    int nesterov;                 /* SGD */
    double weight_decay;          /* SGD and Adam: added to the gradient; AdamW: decoupled */
    double beta1, beta2, epsilon; /* Adam, AdamW */
    double clip_norm;             /* > 0: gradients are scaled down to this global norm */

    wf_lr_schedule lr_schedule;
    int64_t warmup_steps;   /* linear from 0 to lr */
    int64_t schedule_steps; /* COSINE: reaches 0 here; STEP: every so many steps ... */
    double lr_gamma;        /* ... times this */
} wf_recipe;

#define WF_RECIPE_INIT                                                                             \
    {                                                                                              \
        sizeof(wf_recipe), 32, 0, 0, 0, WF_F32, 1, WF_CONV_AUTO, WF_KERNELS_FAST, WF_SGD, 0.1, 0,  \
            0, 0, 0.9, 0.999, 1e-8, 0, WF_LR_CONSTANT, 0, 0, 0.1                                   \
    }

#ifdef __cplusplus
extern "C" {
#endif

/* Learning rate of step `step`, counted from 0. */
WF_API double wf_recipe_lr(const wf_recipe *recipe, int64_t step);

/* Checks every field and resolves what is 0 for `plan`, giving *resolved_out. Errors: INVALID_ARG;
 * the sentence names the field, its value and the nearest legal ones (e.g. which microbatch counts
 * divide the batch). */
WF_API WF_NODISCARD wf_status wf_recipe_resolve(wf_context *ctx, const wf_recipe *recipe,
                                                const wf_plan *plan, wf_recipe *resolved_out);

/* Which samples of a step of `n_samples` are part `part` of `n_parts`, such as a replica of
 * dp=n_parts: those of its microbatches. `recipe` is resolved, and n_parts divides n_micro. */
WF_API void wf_recipe_part(const wf_recipe *recipe, int64_t n_samples, int n_parts, int part,
                           int64_t *first_out, int64_t *n_out);

#ifdef __cplusplus
}
#endif
#endif
