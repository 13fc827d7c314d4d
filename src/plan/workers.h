/* Workers with parameters of their own, in a recipe. Private. */
#pragma once

#include "plan/plan.h"

/* Checks the fields of update=async and update=local of a recipe with lanes, with the plan (or
 * NULL), and gives the number of workers its default. `opens_lanes`: lanes that the workers cannot
 * share are replaced. Errors: INVALID_ARG. */
wf_status wfi_recipe_resolve_workers(wf_context *ctx, wf_recipe *r, const wf_plan *plan,
                                     bool opens_lanes);

/* The recipe of one worker, which trains on its part of each batch as if it were alone. `recipe` is
 * resolved. */
wf_recipe wfi_recipe_of_worker(const wf_recipe *recipe);
