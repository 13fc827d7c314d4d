/* Optimizers: a descriptor each, in a file of its own. Private.
 *
 * An update is elementwise, so a part of a unit's flat buffers is an update by itself.
 */
#pragma once

#include "base/base.h"
#include "base/variants.h"

#include <weft/recipe.h>

#define WFI_MAX_STATES 3

/* Operands of an update: n elements. */
typedef struct wfi_update {
    const wf_recipe *recipe;
    double lr;
    int64_t step; /* from 0 */
    float scale;  /* gradients are multiplied by it first */
    float *param;
    const float *gradient;
    float *state[WFI_MAX_STATES];
    size_t n;
} wfi_update;

/* By which formula of rules.cl parameters are updated in a step, and the numbers in it. */
typedef enum wfi_rule_kind {
    WFI_RULE_SGD,
    WFI_RULE_MOMENTUM,
    WFI_RULE_NESTEROV,
    WFI_RULE_ADAM
} wfi_rule_kind;
typedef struct wfi_update_rule {
    wfi_rule_kind kind;
    float numbers[10];
} wfi_update_rule;

typedef struct wfi_optimizer {
    const char *states[WFI_MAX_STATES]; /* names, as in checkpoints; NULL: there is none */
    /* How many of them a recipe needs. */
    int (*n_states)(const wf_recipe *recipe);
    wfi_update_rule (*rule)(const wfi_update *update);
} wfi_optimizer;

extern const wfi_optimizer wfi_optimizer_sgd, wfi_optimizer_adam;

/* The update in plain C. */
void wfi_update_run(wfi_variant variant, const wfi_update *update);

const wfi_optimizer *wfi_optimizer_of(const wf_recipe *recipe);
/* Number of buffers of a parameter's size for the update: the optimizer's states, then the weights'
 * average, if the recipe has one. */
int wfi_recipe_n_states(const wf_recipe *recipe);
/* As in checkpoints. */
const char *wfi_recipe_state_name(const wf_recipe *recipe, int state);
/* Which of them is the average; -1: there is none. */
int wfi_recipe_average(const wf_recipe *recipe);

/* Which tensor is non-finite after an update; larger is worse. */
typedef enum wfi_update_result {
    WFI_UPDATE_FINITE,
    WFI_UPDATE_STATE,
    WFI_UPDATE_PARAM
} wfi_update_result;

/* `state` [n_states] of n each. A non-finite gradient makes its parameter non-finite at any
 * learning rate. */
wfi_update_result wfi_optimizer_update(const wf_recipe *recipe, double lr, int64_t step,
                                       float gradient_scale, float *param, const float *gradient,
                                       float *const *state, size_t n);

/* The weight of the parameters in the average at a step: 1 at the first step, before which the
 * average is zero. */
float wfi_average_weight(const wf_recipe *recipe, int64_t step);
/* The average [n] after that step, which has left `param` [n]. */
void wfi_average_update(wfi_variant variant, const wf_recipe *recipe, int64_t step,
                        const float *param, float *average, size_t n);

/* ---- the norm of a gradient ---- */

#define WFI_NORM_BLOCK_ELEMENTS 1024

/* One sum of squares for every WFI_NORM_BLOCK_ELEMENTS elements of `gradient` [n], inner order
 * fixed. */
void wfi_gradient_squares(wfi_variant variant, const float *gradient, size_t n,
                          double *squares_out);

/* Adds n doubles over a fixed balanced tree. */
double wfi_tree_sum(const double *values, size_t n);
