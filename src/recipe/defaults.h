/* Defaults of a recipe for a model. Private. */
#pragma once

#include "nn/model.h"
#include "pass/pass.h"

#include <weft/recipe.h>

/* Fills lanes and slices that are open. Without a model there is one slice. */
wf_status wfi_recipe_fill(const wf_model *model, wf_recipe *r);
/* The facts of a model that defaults depend on; of NULL: none. */
wf_status wfi_recipe_look(const wf_model *model, int32_t most_slices, wfi_model_facts *facts_out);
/* Errors: the model cannot be cut into so many slices. */
wf_status wfi_recipe_check_slices(const wf_model *model, int32_t n_slices);
