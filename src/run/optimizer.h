/* Optimizers: one loop over a unit's flat buffers. Private. PyTorch's formulas. */
#ifndef WFI_OPTIMIZER_H
#define WFI_OPTIMIZER_H

#include "program/program.h"

#include <weft/recipe.h>

/* `state` [n_states][n]: SGD: momentum; Adam, AdamW: first, then second moment.
 * `step` counts from 0; gradients are multiplied by `gradient_scale` first. */
void wfi_optimizer_update(const wf_recipe *recipe, double lr, int64_t step, float gradient_scale,
                          float *param, const float *gradient, float *state, size_t n);

/* One sum of squares for every WFI_NORM_BLOCK_ELEMENTS elements of `gradient` [n], inner order
 * fixed. */
void wfi_gradient_squares(const float *gradient, size_t n, double *squares_out);

/* Adds n doubles over a fixed balanced tree. */
double wfi_tree_sum(const double *values, size_t n);

#endif
