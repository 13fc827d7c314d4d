/* Optimizers: one loop over a unit's flat buffers. Private. PyTorch's formulas. */
#ifndef WFI_OPTIMIZER_H
#define WFI_OPTIMIZER_H

#include "program/program.h"

#include <weft/recipe.h>

/* What is not finite after an update, the worse the larger. */
typedef enum wfi_update_result {
    WFI_UPDATE_FINITE,
    WFI_UPDATE_STATE,
    WFI_UPDATE_PARAM
} wfi_update_result;

/* `state` [n_states][n]: SGD: momentum; Adam, AdamW: first, then second moment.
 * `step` counts from 0; gradients are multiplied by `gradient_scale` first. A gradient that is not
 * finite makes its parameter so, whatever the rates are. */
wfi_update_result wfi_optimizer_update(const wf_recipe *recipe, double lr, int64_t step,
                                       float gradient_scale, float *param, const float *gradient,
                                       float *state, size_t n);

/* One sum of squares for every WFI_NORM_BLOCK_ELEMENTS elements of `gradient` [n], inner order
 * fixed. */
void wfi_gradient_squares(const float *gradient, size_t n, double *squares_out);

/* Adds n doubles over a fixed balanced tree. */
double wfi_tree_sum(const double *values, size_t n);

#endif
